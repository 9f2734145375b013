"""QoS 1, at least once, as receiver and as sender (sections 4.3.2 and 4.4)."""

from __future__ import annotations

import pytest

from tests.integration.mqtt.building import answer_bytes, publish_bytes
from tests.integration.mqtt.dialogue import Client, Connect, lasting
from tests.integration.mqtt.packets import MQTT_5, Kind
from tests.integration.mqtt.statements import mosquitto_departs, mqtt_5

# The broker receives


def test_a_number_that_was_acknowledged_is_new_again(
    client: Client, publisher: Client, topic: str
) -> None:
    """Even with DUP: once it was acknowledged the broker knows the number no more."""
    client.subscribe(topic)

    publisher.publish(topic, b"one", number=7)
    publisher.publish(topic, b"two", number=7, dup=True)

    assert [packet.payload for packet in client.receive_many(2)] == [b"one", b"two"]


def test_what_was_acknowledged_waits_for_who_is_away(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    sleeper = connect(**lasting(version))
    sleeper.subscribe(topic, options=1)
    sleeper.disconnect()

    publisher.publish(topic, b"one")
    publisher.publish(topic, b"two")

    awake = connect(sleeper.client_id, **lasting(version))
    assert [awake.take().payload for _ in range(2)] == [b"one", b"two"]


# The broker sends


def test_numbers_in_flight_are_different_and_not_zero(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe(topic, options=1)

    for _ in range(10):
        publisher.publish(topic)

    numbers = [packet.number for packet in client.receive_many(10)]
    assert len(set(numbers)) == 10
    assert 0 not in numbers


def test_what_is_not_acknowledged_is_sent_again_to_who_comes_back(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    first = connect(**lasting(version))
    first.subscribe(topic, options=1)
    for payload in (b"one", b"two", b"three"):
        publisher.publish(topic, payload)
    sent = first.receive_many(3)
    first.answer(Kind.PUBACK, sent[1])
    first.settle()
    first.close()

    again = connect(first.client_id, **lasting(version)).receive_many(2)

    assert [(packet.number, packet.payload) for packet in again] == [
        (sent[0].number, b"one"),
        (sent[2].number, b"three"),
    ]
    assert all(packet.dup for packet in again)


def test_nothing_is_sent_again_while_the_connection_lasts(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe(topic, options=1)
    publisher.publish(topic)
    client.receive(Kind.PUBLISH)

    client.stay_silent(1)


def test_what_was_acknowledged_does_not_come_again(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    first = connect(**lasting(version))
    first.subscribe(topic, options=1)
    publisher.publish(topic)
    first.take()
    first.disconnect()

    assert connect(first.client_id, **lasting(version)).settle() == []


def test_what_waited_comes_after_what_is_sent_again(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    first = connect(**lasting(version))
    first.subscribe(topic, options=1)
    publisher.publish(topic, b"in flight")
    first.receive(Kind.PUBLISH)
    first.disconnect()
    publisher.publish(topic, b"waited")

    packets = connect(first.client_id, **lasting(version)).receive_many(2)

    assert [packet.payload for packet in packets] == [b"in flight", b"waited"]
    assert [packet.dup for packet in packets] == [True, False]
    assert packets[0].number != packets[1].number


@mqtt_5
def test_a_refused_message_counts_as_acknowledged(
    connect: Connect, publisher: Client, topic: str
) -> None:
    first = connect(**lasting(MQTT_5))
    first.subscribe(topic, options=1)
    publisher.publish(topic)
    first.answer(Kind.PUBACK, first.receive(Kind.PUBLISH), 0x80)
    first.settle()
    first.disconnect()

    assert connect(first.client_id, **lasting(MQTT_5)).settle() == []


def test_an_acknowledgement_nobody_waits_for_does_no_harm(client: Client) -> None:
    client.answer(Kind.PUBACK, 4711)

    assert client.settle() == []


def test_numbers_of_the_two_directions_have_nothing_to_do_with_each_other(
    client: Client, version: int, topic: str
) -> None:
    client.subscribe(topic, options=1)
    client.send(publish_bytes(topic, b"first", version=version, qos=1, number=1))
    packets = {packet.kind: packet for packet in (client.receive(), client.receive())}

    number = packets[Kind.PUBLISH].number
    client.send(publish_bytes("other/" + topic, version=version, qos=1, number=number))

    assert packets[Kind.PUBACK].number == 1
    assert client.receive(Kind.PUBACK).number == number


@pytest.mark.slow
@mosquitto_departs("uses a number again that is still in flight")
def test_numbers_that_come_round_again_pass_over_those_in_flight(
    client: Client, publisher: Client, version: int, topic: str
) -> None:
    client.subscribe(topic, options=1)
    publisher.publish(topic)
    kept = client.receive(Kind.PUBLISH).number
    batch = b"".join(
        publish_bytes(topic, version=version, qos=1, number=one) for one in range(1, 51)
    )

    for _ in range(65_600 // 50):
        publisher.send(batch)
        packets = client.receive_many(50)
        assert kept not in [packet.number for packet in packets]
        client.send(b"".join(answer_bytes(Kind.PUBACK, packet.number) for packet in packets))
        publisher.receive_many(50, Kind.PUBACK)
