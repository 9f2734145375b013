"""Every way to a broker that a fleet may take."""

from __future__ import annotations

import pytest

from tests.peers import MqttBroker, Penstock


@pytest.fixture(
    params=[
        "penstock-amqp",
        "penstock-mqtt",
        pytest.param("mosquitto", marks=pytest.mark.peer),
    ]
)
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "mosquitto":
        mosquitto: MqttBroker = request.getfixturevalue("mosquitto")
        return mosquitto.mqtt_url
    penstock: Penstock = request.getfixturevalue("mqtt_penstock")
    return penstock.url if request.param == "penstock-amqp" else penstock.mqtt_url


@pytest.fixture
def mqtt_url(mqtt_broker: MqttBroker) -> str:
    return mqtt_broker.mqtt_url
