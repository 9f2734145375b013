"""Retained messages: the last word on a topic, for those who come later (section 3.3.1.3)."""

from __future__ import annotations

import pytest

from tests.integration.mqtt.building import publish_bytes, subscribe_bytes
from tests.integration.mqtt.dialogue import Client, Connect
from tests.integration.mqtt.packets import (
    RETAIN_AS_PUBLISHED,
    RETAINED_IF_NEW,
    RETAINED_NEVER,
    Kind,
    Packet,
    Property,
)
from tests.integration.mqtt.statements import mosquitto_departs, mqtt_5


def retained(connect: Connect, one: str, options: int = 2) -> list[Packet]:
    """What a new subscriber is given of the past."""
    reader = connect()
    reader.subscribe(one, options=options)
    return reader.settle()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_it_comes_to_new_subscribers_marked_as_retained(
    connect: Connect, publisher: Client, topic: str, qos: int
) -> None:
    publisher.publish(topic, b"kept", qos=qos, retain=True)

    (packet,) = retained(connect, topic)

    assert (packet.topic, packet.payload, packet.retain, packet.dup) == (
        *(topic, b"kept"),
        *(True, False),
    )
    assert packet.qos == qos


@pytest.mark.parametrize("granted", [0, 1])
def test_it_comes_with_no_higher_qos_than_granted(
    connect: Connect, publisher: Client, topic: str, granted: int
) -> None:
    publisher.publish(topic, b"kept", qos=2, retain=True)

    (packet,) = retained(connect, topic, granted)

    assert packet.qos == granted


def test_it_comes_after_the_suback(
    client: Client, publisher: Client, version: int, topic: str
) -> None:
    publisher.publish(topic, b"kept", retain=True)

    client.send(subscribe_bytes(1, [(topic, 0)], version=version))

    assert [client.receive().kind for _ in range(2)] == [Kind.SUBACK, Kind.PUBLISH]


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("second", [0, 1, 2])
def test_the_last_one_replaces_the_one_before(
    connect: Connect, publisher: Client, topic: str, first: int, second: int
) -> None:
    publisher.publish(topic, b"old", qos=first, retain=True)
    publisher.publish(topic, b"new", qos=second, retain=True)

    assert [packet.payload for packet in retained(connect, topic)] == [b"new"]


def test_an_empty_one_removes_it_and_is_not_kept(
    connect: Connect, publisher: Client, topic: str
) -> None:
    publisher.publish(topic, b"kept", retain=True)

    publisher.publish(topic, b"", retain=True)

    assert retained(connect, topic) == []


def test_an_empty_one_is_delivered_as_any_other(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe(topic)

    publisher.publish(topic, b"", retain=True)

    packet = client.receive(Kind.PUBLISH)
    assert (packet.payload, packet.retain) == (b"", False)


def test_other_messages_do_not_touch_it(connect: Connect, publisher: Client, topic: str) -> None:
    publisher.publish(topic, b"kept", retain=True)

    publisher.publish(topic, b"passing")
    publisher.publish(topic, b"")

    assert [packet.payload for packet in retained(connect, topic)] == [b"kept"]


def test_without_the_flag_nothing_is_kept(connect: Connect, publisher: Client, topic: str) -> None:
    publisher.publish(topic, b"passing")

    assert retained(connect, topic) == []


def test_to_a_standing_subscription_it_is_an_ordinary_message(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe(topic)

    publisher.publish(topic, b"live", retain=True)

    assert not client.receive(Kind.PUBLISH).retain


def test_a_wildcard_brings_all_that_match(connect: Connect, publisher: Client, topic: str) -> None:
    for name in ("a", "b", "c/d", "a/x"):
        publisher.publish(f"{topic}/{name}", name.encode(), retain=True)

    one_level = retained(connect, f"{topic}/+")
    whole_tree = retained(connect, f"{topic}/#")

    assert sorted(packet.payload for packet in one_level) == [b"a", b"b"]
    assert sorted(packet.payload for packet in whole_tree) == [b"a", b"a/x", b"b", b"c/d"]


def test_it_keeps_its_place_when_its_publisher_goes(connect: Connect, topic: str) -> None:
    publisher = connect()
    publisher.publish(topic, b"kept", retain=True)
    publisher.close()

    assert [packet.payload for packet in retained(connect, topic)] == [b"kept"]


def test_a_large_one_is_kept_too(connect: Connect, publisher: Client, topic: str) -> None:
    payload = bytes(range(256)) * 1200

    publisher.publish(topic, payload, retain=True)

    assert [packet.payload for packet in retained(connect, topic)] == [payload]


@mqtt_5
def test_handling_0_sends_it_at_each_subscribe(
    client: Client, publisher: Client, topic: str
) -> None:
    publisher.publish(topic, b"kept", retain=True)

    for _ in range(2):
        client.subscribe(topic)
        assert client.receive(Kind.PUBLISH).retain


@mqtt_5
def test_handling_1_sends_it_only_for_a_new_subscription(
    client: Client, publisher: Client, topic: str
) -> None:
    publisher.publish(topic, b"kept", retain=True)

    client.subscribe(topic, options=RETAINED_IF_NEW)
    assert client.receive(Kind.PUBLISH).retain

    client.subscribe(topic, options=RETAINED_IF_NEW)
    assert client.settle() == []


@mqtt_5
def test_handling_2_never_sends_it(connect: Connect, publisher: Client, topic: str) -> None:
    publisher.publish(topic, b"kept", retain=True)

    assert retained(connect, topic, RETAINED_NEVER) == []


@mqtt_5
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("options", [0, RETAIN_AS_PUBLISHED])
def test_the_flag_is_passed_on_only_as_published(
    client: Client, publisher: Client, topic: str, flag: bool, options: int
) -> None:
    client.subscribe(topic, options=options)

    publisher.publish(topic, b"live", retain=flag)

    assert client.receive(Kind.PUBLISH).retain is (flag and bool(options))


@mqtt_5
@pytest.mark.parametrize("options", [0, RETAIN_AS_PUBLISHED])
def test_what_comes_of_the_past_is_marked_in_any_case(
    connect: Connect, publisher: Client, topic: str, options: int
) -> None:
    publisher.publish(topic, b"kept", retain=True)

    assert [packet.retain for packet in retained(connect, topic, options)] == [True]


@mqtt_5
@mosquitto_departs("sends it to each who joins")
def test_a_share_is_given_nothing_of_the_past(
    connect: Connect, publisher: Client, topic: str
) -> None:
    publisher.publish(topic, b"kept", retain=True)

    assert retained(connect, f"$share/group/{topic}") == []


@mqtt_5
def test_its_properties_are_kept_with_it(connect: Connect, publisher: Client, topic: str) -> None:
    properties = [
        (Property.CONTENT_TYPE, "text/plain"),
        (Property.USER_PROPERTY, ("b", "1")),
        (Property.USER_PROPERTY, ("a", "2")),
    ]
    publisher.publish(topic, b"kept", retain=True, properties=properties)

    (packet,) = retained(connect, topic)

    assert packet.get(Property.CONTENT_TYPE) == "text/plain"
    assert packet.all(Property.USER_PROPERTY) == [("b", "1"), ("a", "2")]


@mqtt_5
def test_it_expires_and_its_expiry_runs_down(
    connect: Connect, publisher: Client, topic: str
) -> None:
    for name, seconds in (("short", 1), ("long", 100)):
        expiry = [(Property.MESSAGE_EXPIRY, seconds)]
        publisher.publish(f"{topic}/{name}", b"kept", retain=True, properties=expiry)
    publisher.stay_silent(2.1)

    (packet,) = retained(connect, f"{topic}/+")

    assert packet.topic == f"{topic}/long"
    assert 90 <= packet.get(Property.MESSAGE_EXPIRY) <= 98


def test_a_message_refused_for_its_topic_is_not_kept(
    connect: Connect, client: Client, version: int, topic: str
) -> None:
    client.send(publish_bytes(f"{topic}/+", b"no", version=version, retain=True))
    client.end()

    assert retained(connect, f"{topic}/#") == []
