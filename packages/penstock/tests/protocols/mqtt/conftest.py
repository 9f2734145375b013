"""A house for each test: a virtual host, and terminals that callers reach without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.protocols.mqtt.broker import MqttTestBroker


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[MqttTestBroker]:
    house = MqttTestBroker(tmp_path)
    yield house
    await house.close()
