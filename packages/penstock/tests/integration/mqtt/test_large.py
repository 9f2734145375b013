"""Messages larger than a broker keeps in one piece: every promise holds for them too."""

from __future__ import annotations

from typing import Final

import pytest

from tests.integration.mqtt.building import answer_bytes, publish_bytes
from tests.integration.mqtt.dialogue import Client, Connect, lasting
from tests.integration.mqtt.packets import MQTT_5, Kind, Property, Will
from tests.integration.mqtt.statements import mqtt_5

PAYLOAD: Final = bytes(range(256)) * 2000


@pytest.mark.parametrize("qos", [1, 2])
def test_one_that_is_not_acknowledged_is_sent_again(
    connect: Connect, publisher: Client, version: int, topic: str, qos: int
) -> None:
    first = connect(**lasting(version))
    first.subscribe(topic, options=qos)
    publisher.publish(topic, PAYLOAD, qos=qos)
    packet = first.receive(Kind.PUBLISH)
    first.close()

    again = connect(first.client_id, **lasting(version)).receive(Kind.PUBLISH)

    assert (again.number, again.dup) == (packet.number, True)
    assert again.payload == PAYLOAD


def test_one_waits_in_its_place(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    first = connect(**lasting(version))
    first.subscribe(topic, options=1)
    first.disconnect()
    for payload in (b"before", PAYLOAD, b"after"):
        publisher.publish(topic, payload)

    packets = connect(first.client_id, **lasting(version)).receive_many(3)

    assert [packet.payload for packet in packets] == [b"before", PAYLOAD, b"after"]


def test_one_sent_twice_before_its_release_is_delivered_once(
    client: Client, publisher: Client, version: int, topic: str
) -> None:
    client.subscribe(topic)
    for dup in (False, True):
        data = publish_bytes(topic, PAYLOAD, version=version, qos=2, number=5, dup=dup)
        publisher.call(data, Kind.PUBREC)
    publisher.call(answer_bytes(Kind.PUBREL, 5), Kind.PUBCOMP)

    assert [packet.payload for packet in client.settle()] == [PAYLOAD]


@pytest.mark.parametrize("taken_over", [False, True])
def test_one_cut_off_is_no_message(
    connect: Connect, client: Client, publisher: Client, version: int, topic: str, taken_over: bool
) -> None:
    client.subscribe(topic)
    broken = connect()
    broken.send(publish_bytes(topic, PAYLOAD, version=version, qos=1, number=1)[:-100])

    if taken_over:
        connect(broken.client_id)
    else:
        broken.close()
    publisher.publish(topic, b"whole")

    assert [packet.payload for packet in client.settle()] == [b"whole"]


def test_one_is_sent_once_to_overlapping_subscriptions_or_whole_to_each(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe(topic, f"{topic}/#", options=1)

    publisher.publish(topic, PAYLOAD)

    assert {packet.payload for packet in client.settle()} == {PAYLOAD}


def test_a_will_may_be_large(connect: Connect, client: Client, topic: str) -> None:
    client.subscribe(topic)

    connect(will=Will(topic, PAYLOAD[:60_000])).close()

    assert client.receive(Kind.PUBLISH).payload == PAYLOAD[:60_000]


@mqtt_5
def test_its_properties_come_with_it(connect: Connect, client: Client, topic: str) -> None:
    properties = [
        (Property.CONTENT_TYPE, "application/octet-stream"),
        (Property.USER_PROPERTY, ("b", "1")),
        (Property.USER_PROPERTY, ("a", "2")),
    ]
    client.subscribe(topic, options=1)

    connect(version=MQTT_5).publish(topic, PAYLOAD, properties=properties)

    packet = client.receive(Kind.PUBLISH)
    assert sorted(packet.properties) == sorted(properties)
    assert packet.payload == PAYLOAD
