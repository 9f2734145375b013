"""Topic aliases, both ways (section 3.3.2.3.4)."""

from __future__ import annotations

import pytest

from tests.integration.mqtt.building import publish_bytes
from tests.integration.mqtt.dialogue import Client, Connect, lasting
from tests.integration.mqtt.packets import MQTT_5, Kind, Packet, Properties, Property
from tests.integration.mqtt.statements import mosquitto_departs, mqtt_5

pytestmark = mqtt_5


def alias(number: int) -> Properties:
    return [(Property.TOPIC_ALIAS, number)]


def allowed(client: Client) -> int:
    assert client.connack is not None
    return int(client.connack.get(Property.TOPIC_ALIAS_MAXIMUM) or 0)


# The client uses them


def test_an_alias_stands_for_the_topic_it_came_with(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe(topic)

    publisher.publish(topic, b"named", properties=alias(1))
    publisher.publish("", b"by alias", properties=alias(1))

    packets = client.receive_many(2)
    assert [(packet.topic, packet.payload) for packet in packets] == [
        (topic, b"named"),
        (topic, b"by alias"),
    ]


def test_an_alias_is_not_passed_on(client: Client, publisher: Client, topic: str) -> None:
    client.subscribe(topic)

    publisher.publish(topic, properties=alias(1))

    assert client.receive(Kind.PUBLISH).get(Property.TOPIC_ALIAS) is None


def test_an_alias_may_be_given_to_another_topic(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe(f"{topic}/+")

    for name in (f"{topic}/a", f"{topic}/b", ""):
        publisher.publish(name, properties=alias(1))

    topics = [packet.topic for packet in client.receive_many(3)]
    assert topics == [f"{topic}/a", f"{topic}/b", f"{topic}/b"]


def test_all_that_the_broker_offered_can_be_used(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe(f"{topic}/+")
    last = allowed(publisher)
    assert last > 0

    for number in (1, last):
        publisher.publish(f"{topic}/{number}", properties=alias(number))
    for number in (last, 1):
        publisher.publish("", properties=alias(number))

    topics = [packet.topic for packet in client.receive_many(4)]
    assert topics == [f"{topic}/{number}" for number in (1, last, last, 1)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_alias_serves_every_qos(client: Client, publisher: Client, topic: str, qos: int) -> None:
    client.subscribe(topic)
    publisher.publish(topic, qos=qos, properties=alias(1))

    publisher.publish("", qos=qos, properties=alias(1))

    assert [packet.topic for packet in client.receive_many(2)] == [topic, topic]


def test_an_alias_does_not_outlive_its_connection(connect: Connect, topic: str) -> None:
    first = connect()
    first.publish(topic, properties=alias(1))
    first.disconnect()

    again = connect(first.client_id)
    again.send(publish_bytes("", properties=alias(1)))

    again.expect_refusal(0x82)


def test_an_alias_nobody_gave_is_an_error(client: Client) -> None:
    client.send(publish_bytes("", properties=alias(1)))

    client.expect_refusal(0x82)


def test_neither_topic_nor_alias_is_an_error(client: Client) -> None:
    client.send(publish_bytes(""))

    client.expect_refusal(0x82)


def test_alias_zero_is_an_error(client: Client, topic: str) -> None:
    client.send(publish_bytes(topic, properties=alias(0)))

    client.expect_refusal(0x94)


def test_an_alias_beyond_what_was_offered_is_an_error(client: Client, topic: str) -> None:
    beyond = allowed(client) + 1
    assert beyond < 65_536

    client.send(publish_bytes(topic, properties=alias(beyond)))

    client.expect_refusal(0x94)


# The broker uses them


def received(connect: Connect, publisher: Client, topic: str, maximum: int | None) -> list[Packet]:
    """What a client that allows so many aliases is sent of six messages on three topics."""
    offer = [] if maximum is None else [(Property.TOPIC_ALIAS_MAXIMUM, maximum)]
    client = connect(properties=offer)
    client.subscribe(f"{topic}/+", options=1)
    for number in range(6):
        publisher.publish(f"{topic}/{number % 3}", b"%d" % (number % 3))
    return client.receive_many(6)


@pytest.mark.parametrize("maximum", [None, 0])
def test_the_broker_uses_none_unasked(
    connect: Connect, publisher: Client, topic: str, maximum: int | None
) -> None:
    packets = received(connect, publisher, topic, maximum)

    assert all(packet.get(Property.TOPIC_ALIAS) is None for packet in packets)


@pytest.mark.parametrize("maximum", [1, 2, 10])
def test_the_broker_keeps_to_what_the_client_allows(
    connect: Connect, publisher: Client, topic: str, maximum: int
) -> None:
    known: dict[int, str] = {}

    for packet in received(connect, publisher, topic, maximum):
        number = packet.get(Property.TOPIC_ALIAS)
        if number is not None:
            assert 1 <= number <= maximum
            known[number] = packet.topic or known[number]
        name = packet.topic or known[number]
        assert name == f"{topic}/{packet.payload.decode()}"


@mosquitto_departs("never uses aliases")
def test_the_broker_makes_use_of_them(connect: Connect, publisher: Client, topic: str) -> None:
    packets = received(connect, publisher, topic, 10)

    assert [packet.topic for packet in packets[3:]] == ["", "", ""]


@mosquitto_departs("never uses aliases")
def test_the_broker_names_the_topic_again_on_a_new_connection(
    connect: Connect, publisher: Client, topic: str
) -> None:
    fields = lasting(MQTT_5, properties=[(Property.TOPIC_ALIAS_MAXIMUM, 10)])
    first = connect(**fields)
    first.subscribe(topic, options=1)
    for _ in range(2):
        publisher.publish(topic)
    assert [packet.topic for packet in first.receive_many(2)] == [topic, ""]
    first.close()

    again = connect(first.client_id, **fields).receive_many(2)

    assert [(packet.topic, packet.dup) for packet in again] == [(topic, True), ("", True)]
