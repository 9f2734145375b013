"""UNSUBSCRIBE and UNSUBACK (sections 3.10 and 3.11)."""

from __future__ import annotations

import pytest

from tests.integration.mqtt.building import unsubscribe_bytes
from tests.integration.mqtt.dialogue import Client
from tests.integration.mqtt.packets import MQTT_5, Kind, Property
from tests.integration.mqtt.statements import mqtt_3, mqtt_5


@pytest.mark.parametrize("number", [1, 256, 65535])
def test_an_unsubscribe_is_answered_by_an_unsuback_of_its_number(
    client: Client, version: int, topic: str, number: int
) -> None:
    client.subscribe(topic)

    client.send(unsubscribe_bytes(number, [topic], version=version))

    assert client.receive(Kind.UNSUBACK).number == number


def test_after_it_no_more_messages_come(client: Client, publisher: Client, topic: str) -> None:
    client.subscribe(topic, options=1)

    client.unsubscribe(topic)
    publisher.publish(topic)

    assert client.settle() == []


def test_it_is_answered_though_there_was_no_subscription(
    client: Client, version: int, topic: str
) -> None:
    answer = client.unsubscribe(topic, f"{topic}/#")

    assert answer.reasons == ((0x11, 0x11) if version == MQTT_5 else ())


@mqtt_5
def test_each_filter_gets_its_reason_in_order(client: Client, topic: str) -> None:
    client.subscribe(f"{topic}/b")

    answer = client.unsubscribe(f"{topic}/a", f"{topic}/b", f"{topic}/c")

    assert answer.reasons == (0x11, 0, 0x11)


def test_many_filters_are_given_up_at_once(client: Client, publisher: Client, topic: str) -> None:
    filters = [f"{topic}/a", f"{topic}/b", f"{topic}/c"]
    client.subscribe(*filters)

    client.unsubscribe(*filters[:2])
    for one in filters:
        publisher.publish(one, one.encode())

    assert [packet.payload for packet in client.settle()] == [filters[2].encode()]


@pytest.mark.parametrize(
    ("subscribed", "given_up"), [("a/+", "a/b"), ("a/b", "a/+"), ("a/#", "#"), ("a/b", "A/b")]
)
def test_only_the_same_filter_letter_for_letter_is_given_up(
    client: Client, publisher: Client, topic: str, subscribed: str, given_up: str
) -> None:
    client.subscribe(f"{topic}/{subscribed}")

    client.unsubscribe(f"{topic}/{given_up}")
    publisher.publish(f"{topic}/a/b", b"still")

    assert client.receive(Kind.PUBLISH).payload == b"still"


def test_a_delivery_that_has_begun_is_completed(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe(topic, options=2)
    publisher.publish(topic, qos=2)
    packet = client.receive(Kind.PUBLISH)

    client.unsubscribe(topic)
    client.answer(Kind.PUBREC, packet)

    assert client.receive(Kind.PUBREL).number == packet.number


@pytest.mark.parametrize(
    ("data", "reasons"),
    [
        pytest.param(unsubscribe_bytes(1, ["a"], flags=0), (0x81,), id="flags 0"),
        pytest.param(unsubscribe_bytes(1, ["a"], flags=10), (0x81,), id="flags 10"),
        pytest.param(unsubscribe_bytes(1, []), (0x81, 0x82), id="no filter"),
        pytest.param(unsubscribe_bytes(0, ["a"]), (0x81, 0x82), id="number zero"),
        pytest.param(unsubscribe_bytes(1, [b"\xff"]), (0x81,), id="a filter not UTF-8"),
    ],
)
@mqtt_5
def test_an_unsubscribe_against_the_rules_ends_the_connection(
    client: Client, data: bytes, reasons: tuple[int, ...]
) -> None:
    client.send(data)

    client.expect_refusal(*reasons)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(unsubscribe_bytes(1, ["a"], version=4, flags=0), id="flags 0"),
        pytest.param(unsubscribe_bytes(1, [], version=4), id="no filter"),
        pytest.param(unsubscribe_bytes(0, ["a"], version=4), id="number zero"),
        pytest.param(unsubscribe_bytes(1, [b"\xff"], version=4), id="a filter not UTF-8"),
    ],
)
@mqtt_3
def test_an_unsubscribe_against_the_rules_of_3_1_1_ends_the_connection(
    client: Client, data: bytes
) -> None:
    client.send(data)

    client.expect_refusal()


@mqtt_5
def test_an_unsubscribe_with_user_properties_is_served(client: Client, topic: str) -> None:
    client.subscribe(topic)
    properties = [(Property.USER_PROPERTY, ("a", "b"))]

    answer = client.call(unsubscribe_bytes(9, [topic], properties=properties), Kind.UNSUBACK)

    assert answer.reasons == (0,)
