"""Maximum packet size, both ways (sections 3.1.2.11.4 and 3.2.2.3.6)."""

from __future__ import annotations

import pytest

from tests.fixtures import NewPenstock
from tests.integration.mqtt.building import answer_bytes, publish_bytes
from tests.integration.mqtt.dialogue import Client, Connect
from tests.integration.mqtt.packets import MQTT_3, Kind, Property
from tests.integration.mqtt.statements import mosquitto_departs, mqtt_5
from tests.peers import Penstock


def limited(connect: Connect, limit: int) -> Client:
    return connect(properties=[(Property.MAXIMUM_PACKET_SIZE, limit)])


@mqtt_5
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_too_large_for_a_client_is_not_sent_to_it(
    connect: Connect, publisher: Client, topic: str, qos: int
) -> None:
    client = limited(connect, 200)
    client.subscribe(topic, options=qos)

    publisher.publish(topic, b"x" * 200, qos=qos)
    publisher.publish(topic, b"small", qos=qos)

    assert [packet.payload for packet in client.settle()] == [b"small"]


@mqtt_5
@mosquitto_departs("counts a byte too few")
def test_what_just_fits_is_sent(connect: Connect, publisher: Client, topic: str) -> None:
    client = limited(connect, 200)
    client.subscribe(topic)
    overhead = 1 + 2 + 2 + len(topic) + 1  # type, length of two bytes, topic, no properties

    publisher.publish(topic, b"x" * (200 - overhead))
    publisher.publish(topic, b"x" * (200 - overhead + 1))

    assert [packet.size for packet in client.settle()] == [200]


@mqtt_5
@mosquitto_departs("waits for an answer to what it did not send")
def test_what_is_too_large_does_not_take_up_the_window(
    connect: Connect, publisher: Client, topic: str
) -> None:
    client = connect(
        properties=[(Property.MAXIMUM_PACKET_SIZE, 200), (Property.RECEIVE_MAXIMUM, 1)]
    )
    client.subscribe(topic, options=1)

    publisher.publish(topic, b"x" * 200)
    publisher.publish(topic, b"small")

    assert client.receive(Kind.PUBLISH).payload == b"small"


@mqtt_5
def test_what_is_too_large_for_one_is_sent_to_others(
    connect: Connect, publisher: Client, topic: str
) -> None:
    small, large = limited(connect, 200), connect()
    for client in (small, large):
        client.subscribe(topic)

    publisher.publish(topic, b"x" * 200)

    assert (len(small.settle()), len(large.settle())) == (0, 1)


@mqtt_5
def test_a_large_retained_message_is_not_sent_either(
    connect: Connect, publisher: Client, topic: str
) -> None:
    publisher.publish(topic, b"x" * 400_000, retain=True)
    client = limited(connect, 200)

    client.subscribe(topic)

    assert client.settle() == []


@mqtt_5
def test_properties_count(connect: Connect, publisher: Client, topic: str) -> None:
    client = limited(connect, 200)
    client.subscribe(topic)

    publisher.publish(topic, properties=[(Property.USER_PROPERTY, ("a", "x" * 200))])

    assert client.settle() == []


@mqtt_5
@pytest.mark.parametrize("limit", [20, 30, 60])
def test_every_answer_fits(connect: Connect, topic: str, limit: int) -> None:
    """Reason strings and user properties are what a broker has to leave out.

    The broker's own topics are not for clients to publish on, so that it has reasons to give.
    """
    client = limited(connect, limit)

    answers = [
        client.subscribe(topic, options=2),
        client.publish(topic="$SYS/refused/" + "x" * 80, qos=1),
        client.call(publish_bytes("$SYS/refused/" + "x" * 80, qos=2, number=9), Kind.PUBREC),
        client.call(answer_bytes(Kind.PUBREL, 99), Kind.PUBCOMP),
        client.call(answer_bytes(Kind.PUBREC, 99), Kind.PUBREL),
        client.unsubscribe(topic, "unknown"),
    ]

    assert max(answer.size for answer in answers) <= limit


def small_penstock(new_penstock: NewPenstock) -> Penstock:
    limit = {"PENSTOCK_BROKER__MQTT__MAX_PACKET_BYTES": "1024"}
    return new_penstock(mqtt=True, environment=limit)


def test_the_limit_of_the_broker_is_told_and_held(new_penstock: NewPenstock, topic: str) -> None:
    with Client(small_penstock(new_penstock).mqtt_port) as client:
        limit = client.connect().get(Property.MAXIMUM_PACKET_SIZE)
        overhead = len(publish_bytes(topic, b"x" * 200, qos=1, number=1)) - 200

        assert limit == 1024
        assert client.publish(topic, b"x" * (limit - overhead)).kind is Kind.PUBACK
        client.send(publish_bytes(topic, b"x" * (limit - overhead + 1), qos=1, number=1))
        client.expect_refusal(0x95)


def test_a_client_of_3_1_1_over_the_limit_is_closed(new_penstock: NewPenstock, topic: str) -> None:
    with Client(small_penstock(new_penstock).mqtt_port, MQTT_3, "small") as client:
        client.connect()

        client.send(publish_bytes(topic, b"x" * 1024, version=MQTT_3))

        client.expect_refusal()
