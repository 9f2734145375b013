"""Topics, filters, and the routing keys they are in AMQP."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode
from penstock.wire.mqtt.topics import (
    TOPIC_KEY_TRANSLATION,
    check_topic_filter,
    check_topic_name,
    check_topic_name_bytes,
    routing_key_to_topic,
    split_shared_filter,
    topic_to_routing_key,
)


@pytest.mark.parametrize(
    ("topic", "key"),
    [
        (b"sensors/7/report", b"sensors.7.report"),
        (b"a/b.c", b"a.b/c"),
        (b"sensors/+/report", b"sensors.*.report"),
        (b"sensors/#", b"sensors.#"),
        (b"/", b"."),
        (b"2*3", b"2+3"),
        (b"", b""),
    ],
)
def test_a_topic_and_its_key(topic: bytes, key: bytes) -> None:
    assert topic_to_routing_key(topic) == key
    assert routing_key_to_topic(key) == topic


@given(st.binary())
def test_nothing_is_lost_on_the_way_to_a_key_and_back(topic: bytes) -> None:
    assert routing_key_to_topic(topic_to_routing_key(topic)) == topic
    assert topic_to_routing_key(routing_key_to_topic(topic)) == topic


def test_only_separators_and_wildcards_are_exchanged() -> None:
    changed = {byte for byte in range(256) if TOPIC_KEY_TRANSLATION[byte] != byte}

    assert changed == set(b"/.+*")


@pytest.mark.parametrize("topic", ["a", "/", "a//b", "$SYS/uptime", " ", "ä/€/😀", "a" * 65_535])
def test_a_topic_that_may_be_published_to(topic: str) -> None:
    check_topic_name(topic)
    assert check_topic_name_bytes(topic.encode()) == topic


@pytest.mark.parametrize("topic", ["", "+", "a/#", "a+b", "a\0b", "a" * 65_536, "€" * 21_846])
def test_a_topic_that_may_not_be_published_to(topic: str) -> None:
    with pytest.raises(MqttError) as caught:
        check_topic_name(topic)

    assert caught.value.reason is ReasonCode.TOPIC_NAME_INVALID
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "filter_",
    ["#", "+", "/", "a/#", "/#", "+/+", "+/a/#", "a//+", "a", "$SYS/#", "a/+/b", "x" * 65_535],
)
def test_a_filter_that_may_be_subscribed_to(filter_: str) -> None:
    check_topic_filter(filter_)


@pytest.mark.parametrize(
    "filter_",
    [
        *("", "a#", "a/#/b", "#/a", "##", "#/#", "a/##", "a/b#", "#a"),
        *("a+", "+a", "a/+b/c", "++", "a/b+"),
        *("a\0", "x" * 65_536),
    ],
)
def test_a_filter_that_may_not_be_subscribed_to(filter_: str) -> None:
    with pytest.raises(MqttError) as caught:
        check_topic_filter(filter_)

    assert caught.value.reason is ReasonCode.TOPIC_FILTER_INVALID
    assert len(str(caught.value)) < 200


def legal(filter_: str) -> bool:
    """The standard's rules, level by level."""
    levels = filter_.split("/")
    return bool(filter_) and all(
        level == "+" or ("+" not in level and "#" not in level) or (level == "#" and last)
        for level, last in ((level, n == len(levels)) for n, level in enumerate(levels, 1))
    )


@given(st.text("a/+#"))
def test_filters_are_judged_as_level_by_level(filter_: str) -> None:
    try:
        check_topic_filter(filter_)
    except MqttError:
        assert not legal(filter_)
    else:
        assert legal(filter_)


@pytest.mark.parametrize(
    ("filter_", "parts"),
    [
        ("$share/group/a/b", ("group", "a/b")),
        ("$share/group//", ("group", "/")),
        ("$share/g/#", ("g", "#")),
        ("$share/g/$share/h/a", ("g", "$share/h/a")),
        ("a/b", (None, "a/b")),
        ("$shared/a/b", (None, "$shared/a/b")),
        ("$share", (None, "$share")),
    ],
)
def test_a_shared_filter_names_its_group(filter_: str, parts: tuple[str | None, str]) -> None:
    assert split_shared_filter(filter_) == parts


@pytest.mark.parametrize(
    "filter_", ["$share/", "$share//a", "$share/g", "$share/g/", "$share/+/a", "$share/g#/a"]
)
def test_a_shared_filter_without_a_proper_group_or_filter(filter_: str) -> None:
    with pytest.raises(MqttError) as caught:
        split_shared_filter(filter_)

    assert caught.value.reason is ReasonCode.TOPIC_FILTER_INVALID
