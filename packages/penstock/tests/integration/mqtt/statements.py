"""Marks that say for whom a statement of the standard holds.

`mqtt_5` and `mqtt_3` are for what only one version has. `mosquitto_departs` is for what mosquitto
2.0.11 does otherwise than the standard says, `left_open` for what it does otherwise and may: the
reason stands where the test is read, and the test asks Penstock only.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.integration.mqtt.packets import MQTT_3, MQTT_5

mqtt_3: Final = pytest.mark.parametrize("version", [MQTT_3], ids=["3.1.1"])
mqtt_5: Final = pytest.mark.parametrize("version", [MQTT_5], ids=["5.0"])


_penstock: Final = pytest.mark.parametrize(
    "mqtt_broker", ["mqtt_penstock"], ids=["penstock"], indirect=True
)


def mosquitto_departs(how: str) -> pytest.MarkDecorator:
    """Only for Penstock, because mosquitto does this against the standard."""
    assert how
    return _penstock


def left_open(how: str) -> pytest.MarkDecorator:
    """Only for Penstock, because the standard lets mosquitto do this instead."""
    assert how
    return _penstock
