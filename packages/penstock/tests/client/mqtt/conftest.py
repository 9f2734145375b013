"""A fabric over each broker that speaks MQTT, and a line to it that a test may cut."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from penstock.client import connect
from penstock.client.mqtt.fabric import MqttFabric
from tests.client.line import Line
from tests.peers import MqttBroker


@pytest.fixture
async def fabric(mqtt_broker: MqttBroker) -> AsyncIterator[MqttFabric]:
    async with connect(mqtt_broker.mqtt_url) as fabric:
        yield fabric.mqtt


@pytest.fixture
async def line(mqtt_broker: MqttBroker) -> AsyncIterator[Line]:
    async with Line(mqtt_broker.mqtt_port) as line:
        yield line
