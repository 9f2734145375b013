"""SUBSCRIBE, UNSUBSCRIBE, DISCONNECT and AUTH: golden bytes, and what makes each wrong."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.mqtt import packets
from penstock.wire.mqtt.packets import (
    SubscriptionRequest,
    decode_auth,
    decode_disconnect,
    decode_subscribe,
    decode_unsubscribe,
)
from penstock.wire.mqtt.properties import MqttProperty
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode
from tests import mqtt_wire as wire

MALFORMED = ReasonCode.MALFORMED_PACKET
PROTOCOL = ReasonCode.PROTOCOL_ERROR
INVALID = ReasonCode.TOPIC_FILTER_INVALID


def refusal(decode: Callable[..., Any], *arguments: object) -> ReasonCode:
    with pytest.raises(MqttError) as caught:
        decode(*arguments)
    return caught.value.reason


def body_of(packet: bytes) -> bytes:
    ((_, body),), rest = wire.split(packet)
    assert not rest
    return body


# SUBSCRIBE.


def test_a_subscribe_of_3_1_1() -> None:
    body = b"\x00\x07\x00\x03a/b\x01\x00\x01#\x02"

    assert decode_subscribe(body, 4) == (
        7,
        {},
        [SubscriptionRequest("a/b", 1), SubscriptionRequest("#", 2)],
    )


def test_a_subscribe_of_5_0_and_its_options() -> None:
    body = b"\x01\x00\x02\x0b\x05\x00\x01a\x2d\x00\x0c$share/g/a/b\x12"

    assert decode_subscribe(body, 5) == (
        256,
        {MqttProperty.SUBSCRIPTION_IDENTIFIER: [5]},
        [
            SubscriptionRequest("a", 1, no_local=True, retain_as_published=True, retain_handling=2),
            SubscriptionRequest("$share/g/a/b", 2, retain_handling=1),
        ],
    )


@pytest.mark.parametrize(
    ("body", "version", "reason"),
    [
        (b"", 4, MALFORMED),
        (b"\x00", 4, MALFORMED),
        (b"\x00\x00\x00\x01a\x00", 4, PROTOCOL),  # identifier 0
        (b"\x00\x01", 4, PROTOCOL),  # no filter
        (b"\x00\x01\x00", 5, PROTOCOL),
        (b"\x00\x01", 5, MALFORMED),  # no properties
        (b"\x00\x01\x00\x01a", 4, MALFORMED),  # no options
        (b"\x00\x01\x00\x02a", 4, MALFORMED),
        (b"\x00\x01\x00\x01a\x03", 4, MALFORMED),  # QoS 3
        (b"\x00\x01\x00\x00\x01a\x03", 5, PROTOCOL),
        (b"\x00\x01\x00\x01a\x04", 4, MALFORMED),  # reserved, then
        (b"\x00\x01\x00\x01a\x10", 4, MALFORMED),
        (b"\x00\x01\x00\x00\x01a\x40", 5, MALFORMED),
        (b"\x00\x01\x00\x00\x01a\x80", 5, MALFORMED),
        (b"\x00\x01\x00\x00\x01a\x30", 5, PROTOCOL),  # retain handling 3
        (b"\x00\x01\x00\x00\x0a$share/g/a\x04", 5, PROTOCOL),  # shared, and no local
        (b"\x00\x01\x02\x0b\x00\x00\x01a\x00", 5, PROTOCOL),  # subscription identifier 0
        (b"\x00\x01\x04\x0b\x01\x0b\x02\x00\x01a\x00", 5, PROTOCOL),  # two of them
        (b"\x00\x01\x02\x01\x00\x00\x01a\x00", 5, MALFORMED),  # a property out of place
        (b"\x00\x01\x00\x00\x00", 4, INVALID),
        (b"\x00\x01\x00\x02a#\x00", 4, INVALID),
        (b"\x00\x01\x00\x00\x02a+\x00", 5, INVALID),
        (b"\x00\x01\x00\x00\x08$share/g\x00", 5, INVALID),
        (b"\x00\x01\x00\x00\x0b$share/g/a#\x00", 5, INVALID),
        (b"\x00\x01\x00\x01\xff\x00", 4, MALFORMED),
        (b"\x00\x01\x00\x01\x00\x00", 4, MALFORMED),
    ],
)
def test_a_subscribe_that_is_refused(body: bytes, version: int, reason: ReasonCode) -> None:
    assert refusal(decode_subscribe, body, version) is reason


# UNSUBSCRIBE.


def test_an_unsubscribe_of_3_1_1() -> None:
    assert decode_unsubscribe(b"\x00\x07\x00\x03a/b\x00\x01#", 4) == (7, {}, ["a/b", "#"])


def test_an_unsubscribe_of_5_0() -> None:
    body = b"\x00\x07\x07\x26\x00\x01k\x00\x01v\x00\x0a$share/g/a"

    expected = (7, {MqttProperty.USER_PROPERTY: [("k", "v")]}, ["$share/g/a"])
    assert decode_unsubscribe(body, 5) == expected


@pytest.mark.parametrize(
    ("body", "version", "reason"),
    [
        (b"\x00\x00\x00\x01a", 4, PROTOCOL),
        (b"\x00\x01", 4, PROTOCOL),
        (b"\x00\x01\x00", 5, PROTOCOL),
        (b"\x00\x01\x00\x02a", 4, MALFORMED),
        (b"\x00\x01\x00\x01a\x00", 4, MALFORMED),
        (b"\x00\x01\x02\x0b\x01\x00\x01a", 5, MALFORMED),
        (b"\x00\x01\x00\x02a#", 4, INVALID),
    ],
)
def test_an_unsubscribe_that_is_refused(body: bytes, version: int, reason: ReasonCode) -> None:
    assert refusal(decode_unsubscribe, body, version) is reason


# DISCONNECT and AUTH.


def test_a_disconnect_of_3_1_1_says_nothing() -> None:
    assert decode_disconnect(b"", 4) == (ReasonCode.SUCCESS, {})
    assert refusal(decode_disconnect, b"\x00", 4) is MALFORMED


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", (ReasonCode.SUCCESS, {})),
        (b"\x04", (ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, {})),
        (b"\x00\x00", (ReasonCode.SUCCESS, {})),
        (b"\x00\x05\x11\x00\x00\x00\x09", (ReasonCode.SUCCESS, {MqttProperty.SESSION_EXPIRY: 9})),
    ],
)
def test_a_disconnect_of_5_0(body: bytes, expected: tuple[ReasonCode, Any]) -> None:
    assert decode_disconnect(body, 5) == expected


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x01", PROTOCOL),  # a grant of QoS 1
        (b"\x86", PROTOCOL),
        (b"\xff", PROTOCOL),
        (b"\x00\x01", MALFORMED),
        (b"\x00\x00\x00", MALFORMED),
        (b"\x00\x03\x21\x00\x01", MALFORMED),
    ],
)
def test_a_disconnect_that_is_refused(body: bytes, reason: ReasonCode) -> None:
    assert refusal(decode_disconnect, body, 5) is reason


def test_an_auth_that_says_nothing_is_a_success() -> None:
    assert decode_auth(b"") == (ReasonCode.SUCCESS, {})


def test_an_auth_goes_on_with_a_method() -> None:
    body = b"\x18\x08\x15\x00\x01M\x16\x00\x01d"

    assert decode_auth(body) == (
        ReasonCode.CONTINUE_AUTHENTICATION,
        {MqttProperty.AUTHENTICATION_METHOD: "M", MqttProperty.AUTHENTICATION_DATA: b"d"},
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x01\x04\x15\x00\x01M", PROTOCOL),
        (b"\x18\x00", PROTOCOL),
        (b"\x18\x04\x16\x00\x01d", PROTOCOL),
        (b"\x18\x04\x15\x00\x01M!", MALFORMED),
        (b"\x18\x05\x15\x00\x01M", MALFORMED),
    ],
)
def test_an_auth_that_is_refused(body: bytes, reason: ReasonCode) -> None:
    assert refusal(decode_auth, body) is reason


# Round trips, and any bytes.

filters = st.sampled_from(["a", "a/b", "+/b", "#", "ä/+/#", "$SYS/#", "$share/g/a/+"])
numbers = st.integers(1, 65_535)
qos = st.integers(0, 2)
user = st.fixed_dictionaries({}, optional={MqttProperty.USER_PROPERTY: st.just([("k", "v")])})


@given(numbers, st.lists(st.builds(SubscriptionRequest, filters, qos), min_size=1))
def test_what_a_client_of_3_1_1_subscribes_to_is_what_is_read(
    number: int, wanted: list[SubscriptionRequest]
) -> None:
    body = body_of(wire.subscribe(4, number, wanted))

    assert decode_subscribe(body, 4) == (number, {}, wanted)


wishes = st.builds(
    SubscriptionRequest, filters, qos, st.just(False), st.booleans(), st.integers(0, 2)
) | st.builds(SubscriptionRequest, st.just("a/#"), qos, st.booleans())


@given(numbers, user, st.lists(wishes, min_size=1))
def test_what_a_client_of_5_0_subscribes_to_is_what_is_read(
    number: int, properties: dict[MqttProperty, Any], wanted: list[SubscriptionRequest]
) -> None:
    body = body_of(wire.subscribe(5, number, wanted, properties))

    assert decode_subscribe(body, 5) == (number, properties, wanted)


@given(st.sampled_from([4, 5]), numbers, st.lists(filters, min_size=1))
def test_what_a_client_unsubscribes_from_is_what_is_read(
    version: int, number: int, unwanted: list[str]
) -> None:
    body = body_of(wire.unsubscribe(version, number, unwanted))

    assert decode_unsubscribe(body, version) == (number, {}, unwanted)


@given(st.sampled_from([0, 4, 0x80, 0x98]), user)
def test_a_disconnect_is_read_as_it_was_written(
    reason: int, properties: dict[MqttProperty, Any]
) -> None:
    body = body_of(packets.encode_disconnect(reason, properties))

    assert decode_disconnect(body, 5) == (reason, properties)


@given(st.binary(), st.sampled_from([3, 4, 5]))
def test_whatever_comes_nothing_but_an_mqtt_error_is_raised(body: bytes, version: int) -> None:
    with suppress(MqttError):
        decode_subscribe(body, version)
    with suppress(MqttError):
        decode_unsubscribe(body, version)
    with suppress(MqttError):
        decode_disconnect(body, version)
    with suppress(MqttError):
        decode_auth(body)
