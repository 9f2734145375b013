"""Receive maximum, both ways (section 4.9)."""

from __future__ import annotations

import pytest

from tests.integration.mqtt.building import answer_bytes, publish_bytes
from tests.integration.mqtt.dialogue import Client, Connect, lasting
from tests.integration.mqtt.packets import MQTT_5, Kind, Property
from tests.integration.mqtt.statements import mosquitto_departs, mqtt_5

pytestmark = mqtt_5


def subscriber(connect: Connect, topic: str, maximum: int, qos: int) -> Client:
    client = connect(properties=[(Property.RECEIVE_MAXIMUM, maximum)])
    client.subscribe(topic, options=qos)
    return client


# The broker sends


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("maximum", [1, 3])
def test_no_more_are_in_flight_than_the_client_can_take(
    connect: Connect, publisher: Client, topic: str, maximum: int, qos: int
) -> None:
    client = subscriber(connect, topic, maximum, qos)

    for _ in range(maximum + 2):
        publisher.publish(topic, qos=qos)

    assert len(client.settle()) == maximum


def test_each_puback_makes_room_for_one(connect: Connect, publisher: Client, topic: str) -> None:
    client = subscriber(connect, topic, 2, 1)
    for count in range(5):
        publisher.publish(topic, b"%d" % count)

    payloads = [client.take().payload for _ in range(5)]

    assert payloads == [b"0", b"1", b"2", b"3", b"4"]


def test_a_refused_message_makes_room_too(connect: Connect, publisher: Client, topic: str) -> None:
    client = subscriber(connect, topic, 1, 1)
    publisher.publish(topic, b"first")
    publisher.publish(topic, b"second")

    client.answer(Kind.PUBACK, client.receive(Kind.PUBLISH), 0x97)

    assert client.receive(Kind.PUBLISH).payload == b"second"


def test_at_qos_2_only_the_pubcomp_makes_room(
    connect: Connect, publisher: Client, topic: str
) -> None:
    client = subscriber(connect, topic, 1, 2)
    publisher.publish(topic, b"first", qos=2)
    publisher.publish(topic, b"second", qos=2)
    packet = client.receive(Kind.PUBLISH)

    client.answer(Kind.PUBREC, packet)
    assert [one.kind for one in client.settle()] == [Kind.PUBREL]

    client.answer(Kind.PUBCOMP, packet)
    assert client.receive(Kind.PUBLISH).payload == b"second"


def test_a_refused_message_of_qos_2_makes_room_at_once(
    connect: Connect, publisher: Client, topic: str
) -> None:
    client = subscriber(connect, topic, 1, 2)
    publisher.publish(topic, b"first", qos=2)
    publisher.publish(topic, b"second", qos=2)

    client.answer(Kind.PUBREC, client.receive(Kind.PUBLISH), 0x97)

    assert client.receive(Kind.PUBLISH).payload == b"second"


def test_qos_0_needs_no_room(connect: Connect, publisher: Client, topic: str) -> None:
    client = subscriber(connect, topic, 1, 1)
    publisher.publish(topic)
    client.receive(Kind.PUBLISH)

    publisher.publish(topic, b"fleeting", qos=0)

    assert client.receive(Kind.PUBLISH).payload == b"fleeting"


def test_a_full_window_holds_up_nothing_but_messages(
    connect: Connect, publisher: Client, topic: str
) -> None:
    client = subscriber(connect, topic, 1, 1)
    publisher.publish(topic)
    client.receive(Kind.PUBLISH)

    assert client.subscribe("another").reasons == (0,)
    assert client.unsubscribe("another").reasons == (0,)
    assert client.publish("another", qos=2).reason == 0
    assert client.settle() == []


@mosquitto_departs("sends all that was in flight again, whatever the new window")
def test_the_window_belongs_to_the_connection(
    connect: Connect, publisher: Client, topic: str
) -> None:
    """A session that comes back with a smaller one is sent no more than that."""
    wide = connect(**lasting(MQTT_5))
    wide.subscribe(topic, options=1)
    for _ in range(4):
        publisher.publish(topic)
    numbers = [packet.number for packet in wide.receive_many(4)]
    wide.close()

    narrow = connect(wide.client_id, **lasting(MQTT_5, properties=[(Property.RECEIVE_MAXIMUM, 2)]))

    assert [packet.number for packet in narrow.settle()] == numbers[:2]
    for number in numbers[:2]:
        narrow.answer(Kind.PUBACK, number)
    assert [packet.number for packet in narrow.receive_many(2)] == numbers[2:]


@mosquitto_departs("sends nothing more after it")
def test_a_message_that_expires_before_there_is_room_is_passed_over(
    connect: Connect, publisher: Client, topic: str
) -> None:
    client = subscriber(connect, topic, 1, 1)
    publisher.publish(topic, b"first")
    publisher.publish(topic, b"short", properties=[(Property.MESSAGE_EXPIRY, 1)])
    publisher.publish(topic, b"last")
    packet = client.receive(Kind.PUBLISH)
    client.stay_silent(1.2)

    client.answer(Kind.PUBACK, packet)

    assert client.receive(Kind.PUBLISH).payload == b"last"


# The broker receives


def offered(client: Client) -> int:
    assert client.connack is not None
    maximum = client.connack.get(Property.RECEIVE_MAXIMUM)
    return 65_535 if maximum is None else int(maximum)


def test_as_many_as_the_broker_offered_can_be_in_flight(client: Client, topic: str) -> None:
    numbers = range(1, min(offered(client), 200) + 1)
    client.send(b"".join(publish_bytes(topic, qos=2, number=number) for number in numbers))

    received = client.receive_many(len(numbers), Kind.PUBREC)

    assert [packet.number for packet in received] == list(numbers)
    assert all(packet.reason < 0x80 for packet in received)


@mosquitto_departs("refuses the message and goes on")
def test_one_more_than_the_broker_offered_ends_the_connection(client: Client, topic: str) -> None:
    numbers = range(1, offered(client) + 2)
    assert len(numbers) <= 65_535

    client.send(b"".join(publish_bytes(topic, qos=2, number=number) for number in numbers))

    client.expect_refusal(0x93)


def test_each_completion_makes_room_for_another(client: Client, topic: str) -> None:
    maximum = min(offered(client), 200)
    for number in range(1, maximum + 1):
        client.call(publish_bytes(topic, qos=2, number=number), Kind.PUBREC)

    client.call(answer_bytes(Kind.PUBREL, 1), Kind.PUBCOMP)

    assert client.call(publish_bytes(topic, qos=2, number=1), Kind.PUBREC).reason < 0x80
