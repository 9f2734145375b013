"""PINGREQ and PINGRESP (sections 3.12 and 3.13)."""

from __future__ import annotations

import pytest

from tests.integration.mqtt.building import PINGREQ, packet_bytes
from tests.integration.mqtt.dialogue import Client
from tests.integration.mqtt.packets import Kind
from tests.integration.mqtt.statements import mosquitto_departs


def test_a_ping_is_answered(client: Client) -> None:
    assert client.call(PINGREQ, Kind.PINGRESP).size == 2


def test_each_ping_is_answered(client: Client) -> None:
    client.send(PINGREQ * 3)

    client.receive_many(3, Kind.PINGRESP)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(packet_bytes(Kind.PINGREQ, flags=1), id="with a flag"),
        pytest.param(packet_bytes(Kind.PINGREQ, b"x"), id="with content"),
    ],
)
@mosquitto_departs("answers it")
def test_a_ping_against_the_rules_ends_the_connection(client: Client, data: bytes) -> None:
    client.send(data)

    client.expect_refusal(0x81)
