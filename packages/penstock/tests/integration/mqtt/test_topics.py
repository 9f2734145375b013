"""Topics and the filters that match them (section 4.7)."""

from __future__ import annotations

import pytest

from tests.integration.mqtt.building import PINGREQ, publish_bytes, subscribe_bytes
from tests.integration.mqtt.dialogue import Client
from tests.integration.mqtt.packets import MQTT_5, Kind
from tests.integration.mqtt.statements import left_open


@pytest.mark.parametrize(
    ("one", "matching", "others"),
    [
        ("a/b", ["a/b"], ["a", "a/b/c", "A/b", "a/B", "/a/b", "a/b/", "a//b"]),
        ("a/#", ["a", "a/", "a/b", "a/b/c", "a//"], ["aa", "b/a", "/a"]),
        ("a/+", ["a/b", "a/"], ["a", "a/b/c", "a//"]),
        ("+/b", ["a/b", "/b"], ["b", "a/b/c", "//b"]),
        ("a/+/c", ["a/b/c", "a//c"], ["a/c", "a/b/b/c"]),
        ("+/+", ["a/b", "/", "a/", "/b"], ["a", "a/b/c"]),
        ("+/+/#", ["a/b", "a/b/c/d", "/"], ["a"]),
        ("/", ["/"], ["a", "//", "a/"]),
        ("/+", ["/", "/a"], ["a", "//", "/a/b"]),
        ("a//b", ["a//b"], ["a/b", "a/x/b"]),
        ("a b/ü €", ["a b/ü €"], ["a b/u €"]),
        ("a.b/c", ["a.b/c"], ["a/b/c", "a.b.c"]),
        ("a*/b", ["a*/b"], ["ax/b"]),
        ("*", ["*"], ["a"]),
    ],
)
def test_a_filter_matches_these_topics_and_not_those(
    client: Client, publisher: Client, topic: str, one: str, matching: list[str], others: list[str]
) -> None:
    client.subscribe(f"{topic}/{one}")

    for name in matching + others:
        publisher.publish(f"{topic}/{name}", name.encode())

    assert [packet.payload.decode() for packet in client.settle()] == matching


@pytest.mark.parametrize(
    ("one", "matching"),
    [("/{}", "/{}"), ("+/{}", "/{}"), ("+/{}/#", "x/{}"), ("+/+", "/{}"), ("/#", "/{}")],
)
def test_a_filter_may_begin_with_an_empty_level_or_a_wildcard(
    client: Client, publisher: Client, topic: str, one: str, matching: str
) -> None:
    unique = topic.replace("/", "-")
    client.subscribe(one.format(unique))

    publisher.publish(matching.format(unique), unique.encode())

    client.payloads_until(unique.encode())


def test_everything_is_matched_by_a_lonely_number_sign(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe("#")

    publisher.publish(topic, topic.encode())

    client.payloads_until(topic.encode())


@pytest.mark.parametrize("one", ["#", "+/{}", "+/+", "+/#"])
def test_a_leading_wildcard_does_not_match_topics_with_a_dollar(
    client: Client, publisher: Client, topic: str, one: str
) -> None:
    unique = topic.replace("/", "-")
    client.subscribe(one.format(unique))

    publisher.publish(f"$test/{unique}", b"hidden")
    publisher.publish(f"test/{unique}", unique.encode())

    assert b"hidden" not in client.payloads_until(unique.encode())


@pytest.mark.parametrize("one", ["$test/{}", "$test/+", "$test/#"])
def test_a_filter_with_a_dollar_matches_them(
    client: Client, publisher: Client, topic: str, one: str
) -> None:
    unique = topic.replace("/", "-")
    client.subscribe(one.format(unique))

    publisher.publish(f"$test/{unique}", b"found")

    assert b"found" in [packet.payload for packet in client.settle()]


def test_a_dollar_further_on_means_nothing(client: Client, publisher: Client, topic: str) -> None:
    client.subscribe(f"{topic}/#")

    publisher.publish(f"{topic}/$x", b"plain")

    assert client.receive(Kind.PUBLISH).payload == b"plain"


@pytest.mark.parametrize(
    "one", ["", "a#", "a/#/b", "#/a", "a/b#", "##", "a+", "+a/b", "a/+b", "a/++/b"]
)
def test_a_filter_with_a_misplaced_wildcard_is_refused(
    client: Client, version: int, one: str
) -> None:
    """By a reason for it, or by closing."""
    client.send(subscribe_bytes(1, [(one, 0)], version=version) + PINGREQ)

    first = client.receive_or_none()

    if first is not None and first.kind is Kind.SUBACK:
        assert first.reasons == ((0x8F,) if version == MQTT_5 else (0x80,))
    else:
        assert first is None or first.kind is Kind.DISCONNECT
        assert first is None or first.reason in (0x81, 0x82, 0x8F)


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(("é", "e\u0301"), id="composed and decomposed"),
        pytest.param(("ﬁ", "fi"), id="a ligature"),
        pytest.param(("\ufeffx", "x"), id="a byte order mark"),
        pytest.param(("ß", "ss"), id="a sharp s"),
        pytest.param(("\U0001f41d", "\u2603"), id="beyond the basic plane"),
    ],
)
def test_topics_are_compared_as_they_are(
    client: Client, publisher: Client, topic: str, pair: tuple[str, str]
) -> None:
    client.subscribe(f"{topic}/{pair[0]}")

    for name in reversed(pair):
        publisher.publish(f"{topic}/{name}", name.encode())

    assert [packet.payload.decode() for packet in client.settle()] == [pair[0]]


def test_a_byte_order_mark_is_kept(client: Client, publisher: Client, topic: str) -> None:
    client.subscribe(f"{topic}/#")

    publisher.publish(f"{topic}/\ufeffmark")

    assert client.receive(Kind.PUBLISH).topic == f"{topic}/\ufeffmark"


def test_the_broker_tells_of_itself(client: Client) -> None:
    client.subscribe("$SYS/broker/version")

    packet = client.receive(Kind.PUBLISH)

    assert (packet.topic, packet.retain) == ("$SYS/broker/version", True)
    assert packet.payload


def test_a_topic_may_be_long(client: Client, publisher: Client, topic: str) -> None:
    longest = f"{topic}/".ljust(255, "x")
    client.subscribe(f"{topic}/+")

    publisher.publish(longest, b"long")

    assert client.receive(Kind.PUBLISH).topic == longest


def test_a_topic_may_have_many_levels(client: Client, publisher: Client, topic: str) -> None:
    deep = topic + "/a" * 100
    client.subscribe(f"{topic}/#")

    publisher.publish(deep)

    assert client.receive(Kind.PUBLISH).topic == deep


@left_open("takes topics of any length; ours are routing keys of AMQP as well")
def test_a_topic_longer_than_a_routing_key_is_refused(
    client: Client, version: int, topic: str
) -> None:
    client.send(publish_bytes(topic.ljust(256, "x"), version=version, qos=1, number=1))

    client.expect_refusal(0x90)


@left_open("takes filters of any length; ours are binding keys of AMQP as well")
def test_a_filter_longer_than_a_routing_key_is_refused(
    client: Client, version: int, topic: str
) -> None:
    suback = client.subscribe(topic.ljust(256, "x"))

    assert suback.reasons == ((0x8F,) if version == MQTT_5 else (0x80,))
