"""A message that cannot be taken now (MQTT 5.0, section 3.4.2.1; 3.1.1, section 4.8).

Here because a queue of AMQP is full that refuses what is too much.
"""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest

from tests.integration.mqtt.building import publish_bytes
from tests.integration.mqtt.dialogue import Client
from tests.integration.mqtt.packets import MQTT_3, MQTT_5, Kind
from tests.peers import Penstock


@pytest.fixture
def full(mqtt_penstock: Penstock, topic: str) -> Iterator[None]:
    """The topic leads to a queue that has no room."""
    connection = pika.BlockingConnection(pika.URLParameters(mqtt_penstock.url))
    channel = connection.channel()
    limits = {"x-max-length": 0, "x-overflow": "reject-publish"}
    channel.queue_declare(topic, exclusive=True, arguments=limits)
    channel.queue_bind(topic, "amq.topic", topic.replace("/", "."))
    yield
    connection.close()


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize(("qos", "answer"), [(1, Kind.PUBACK), (2, Kind.PUBREC)])
def test_a_client_of_5_0_is_told(
    mqtt_penstock: Penstock, topic: str, qos: int, answer: Kind
) -> None:
    with Client(mqtt_penstock.mqtt_port, MQTT_5) as client:
        client.connect()
        client.send(publish_bytes(topic, qos=qos, number=1))

        assert client.receive(answer).reason == 0x97
        assert client.settle() == []


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_of_3_1_1_cannot_be_told_and_is_closed(
    mqtt_penstock: Penstock, topic: str, qos: int
) -> None:
    with Client(mqtt_penstock.mqtt_port, MQTT_3) as client:
        client.connect()
        client.send(publish_bytes(topic, version=MQTT_3, qos=qos, number=1))

        assert client.end() is None
