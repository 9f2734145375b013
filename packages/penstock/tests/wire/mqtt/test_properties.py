"""The properties of MQTT 5.0: golden bytes, where each may be, and what it may hold."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.mqtt.fields import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    read_varint,
    write_varint,
)
from penstock.wire.mqtt.properties import (
    WILL_PROPERTIES,
    MqttProperty,
    decode_properties,
    encode_properties,
    read_properties,
)
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode

P = MqttProperty
KINDS = range(16)
ANSWERS = {CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT, AUTH}

#: Each property, a value, its bytes, and the packets that may hold it (table 2-4 of the standard).
TABLE: list[tuple[MqttProperty, Any, bytes, set[int]]] = [
    (P.PAYLOAD_FORMAT, 1, b"\x01\x01", {PUBLISH, WILL_PROPERTIES}),
    (P.MESSAGE_EXPIRY, 60, b"\x02\x00\x00\x00\x3c", {PUBLISH, WILL_PROPERTIES}),
    (P.CONTENT_TYPE, "a/b", b"\x03\x00\x03a/b", {PUBLISH, WILL_PROPERTIES}),
    (P.RESPONSE_TOPIC, "r/1", b"\x08\x00\x03r/1", {PUBLISH, WILL_PROPERTIES}),
    (P.CORRELATION_DATA, b"\x00\xff", b"\x09\x00\x02\x00\xff", {PUBLISH, WILL_PROPERTIES}),
    (P.SUBSCRIPTION_IDENTIFIER, [300], b"\x0b\xac\x02", {PUBLISH, SUBSCRIBE}),
    (P.SESSION_EXPIRY, 2**32 - 1, b"\x11\xff\xff\xff\xff", {CONNECT, CONNACK, DISCONNECT}),
    (P.ASSIGNED_CLIENT_IDENTIFIER, "c", b"\x12\x00\x01c", {CONNACK}),
    (P.SERVER_KEEP_ALIVE, 300, b"\x13\x01\x2c", {CONNACK}),
    (P.AUTHENTICATION_METHOD, "M", b"\x15\x00\x01M", {CONNECT, CONNACK, AUTH}),
    (P.AUTHENTICATION_DATA, b"d", b"\x16\x00\x01d", {CONNECT, CONNACK, AUTH}),
    (P.REQUEST_PROBLEM_INFORMATION, 0, b"\x17\x00", {CONNECT}),
    (P.WILL_DELAY, 5, b"\x18\x00\x00\x00\x05", {WILL_PROPERTIES}),
    (P.REQUEST_RESPONSE_INFORMATION, 1, b"\x19\x01", {CONNECT}),
    (P.RESPONSE_INFORMATION, "i", b"\x1a\x00\x01i", {CONNACK}),
    (P.SERVER_REFERENCE, "s", b"\x1c\x00\x01s", {CONNACK, DISCONNECT}),
    (P.REASON_STRING, "why", b"\x1f\x00\x03why", ANSWERS),
    (P.RECEIVE_MAXIMUM, 10, b"\x21\x00\x0a", {CONNECT, CONNACK}),
    (P.TOPIC_ALIAS_MAXIMUM, 0, b"\x22\x00\x00", {CONNECT, CONNACK}),
    (P.TOPIC_ALIAS, 1, b"\x23\x00\x01", {PUBLISH}),
    (P.MAXIMUM_QOS, 1, b"\x24\x01", {CONNACK}),
    (P.RETAIN_AVAILABLE, 0, b"\x25\x00", {CONNACK}),
    (
        P.USER_PROPERTY,
        [("k", "v")],
        b"\x26\x00\x01k\x00\x01v",
        {WILL_PROPERTIES, CONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE} | ANSWERS,
    ),
    (P.MAXIMUM_PACKET_SIZE, 1024, b"\x27\x00\x00\x04\x00", {CONNECT, CONNACK}),
    (P.WILDCARD_SUBSCRIPTION_AVAILABLE, 1, b"\x28\x01", {CONNACK}),
    (P.SUBSCRIPTION_IDENTIFIER_AVAILABLE, 1, b"\x29\x01", {CONNACK}),
    (P.SHARED_SUBSCRIPTION_AVAILABLE, 1, b"\x2a\x01", {CONNACK}),
]
EACH = pytest.mark.parametrize(
    ("name", "value", "data", "kinds"), TABLE, ids=[row[0].name for row in TABLE]
)


def refusal(data: bytes, kind: int) -> ReasonCode:
    with pytest.raises(MqttError) as caught:
        decode_properties(data, kind)
    return caught.value.reason


def test_the_table_has_every_property() -> None:
    assert [row[0] for row in TABLE] == list(MqttProperty)


@EACH
def test_bytes_and_value(name: MqttProperty, value: Any, data: bytes, kinds: set[int]) -> None:
    assert encode_properties({name: value}) == bytes((len(data),)) + data
    for kind in kinds:
        assert decode_properties(data, kind) == {name: value}


@EACH
def test_a_property_out_of_place_makes_the_packet_malformed(
    name: MqttProperty, value: Any, data: bytes, kinds: set[int]
) -> None:
    for kind in set(KINDS) - kinds:
        assert refusal(data, kind) is ReasonCode.MALFORMED_PACKET


@EACH
def test_a_property_cut_short_makes_the_packet_malformed(
    name: MqttProperty, value: Any, data: bytes, kinds: set[int]
) -> None:
    for stop in range(1, len(data)):
        assert refusal(data[:stop], min(kinds)) is ReasonCode.MALFORMED_PACKET


@EACH
def test_a_property_that_comes_twice_is_a_protocol_error(
    name: MqttProperty, value: Any, data: bytes, kinds: set[int]
) -> None:
    for kind in kinds:
        if name is P.USER_PROPERTY or (name, kind) == (P.SUBSCRIPTION_IDENTIFIER, PUBLISH):
            assert decode_properties(data * 2, kind) == {name: value * 2}
        else:
            assert refusal(data * 2, kind) is ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("data", "kind", "reason"),
    [
        (b"\x01\x02", PUBLISH, ReasonCode.PROTOCOL_ERROR),
        (b"\x0b\x00", SUBSCRIBE, ReasonCode.PROTOCOL_ERROR),
        (b"\x17\x02", CONNECT, ReasonCode.PROTOCOL_ERROR),
        (b"\x19\xff", CONNECT, ReasonCode.PROTOCOL_ERROR),
        (b"\x21\x00\x00", CONNECT, ReasonCode.PROTOCOL_ERROR),
        (b"\x27\x00\x00\x00\x00", CONNECT, ReasonCode.PROTOCOL_ERROR),
        (b"\x24\x02", CONNACK, ReasonCode.PROTOCOL_ERROR),
        (b"\x08\x00\x03a/+", PUBLISH, ReasonCode.PROTOCOL_ERROR),
        (b"\x08\x00\x01#", WILL_PROPERTIES, ReasonCode.PROTOCOL_ERROR),
        (b"\x08\x00\x00", PUBLISH, ReasonCode.PROTOCOL_ERROR),
        (b"\x23\x00\x00", PUBLISH, ReasonCode.TOPIC_ALIAS_INVALID),
        (b"\x0b\x81\x00", SUBSCRIBE, ReasonCode.MALFORMED_PACKET),
        (b"\x0b\xff\xff\xff\xff\x01", SUBSCRIBE, ReasonCode.MALFORMED_PACKET),
        (b"\x03\x00\x01\xff", PUBLISH, ReasonCode.MALFORMED_PACKET),
        (b"\x03\x00\x03\xed\xa0\x80", PUBLISH, ReasonCode.MALFORMED_PACKET),
        (b"\x26\x00\x01\x00\x00\x00", PUBLISH, ReasonCode.MALFORMED_PACKET),
        (b"\x00", PUBLISH, ReasonCode.MALFORMED_PACKET),
        (b"\x2b\x00", CONNACK, ReasonCode.MALFORMED_PACKET),
        (b"\x81\x01\x01", PUBLISH, ReasonCode.MALFORMED_PACKET),
    ],
)
def test_a_value_that_may_not_be(data: bytes, kind: int, reason: ReasonCode) -> None:
    assert refusal(data, kind) is reason


def test_a_ping_has_no_properties() -> None:
    assert decode_properties(b"", PINGREQ) == {}
    assert refusal(b"\x26\x00\x00\x00\x00", PINGREQ) is ReasonCode.MALFORMED_PACKET


def test_user_properties_keep_their_order_and_repetitions() -> None:
    pairs = [("b", "1"), ("a", "2"), ("b", "1"), ("", "")]

    data = encode_properties({P.USER_PROPERTY: pairs})

    assert decode_properties(data[1:], PUBLISH) == {P.USER_PROPERTY: pairs}


def test_no_properties_are_a_length_of_zero() -> None:
    assert encode_properties({}) == b"\x00"
    assert read_properties(b"\x00", 0, PUBLISH) == ({}, 1)


def test_reading_says_where_the_properties_end() -> None:
    assert read_properties(b"!\x02\x01\x01rest", 1, PUBLISH) == ({P.PAYLOAD_FORMAT: 1}, 4)


def test_properties_longer_than_what_holds_them() -> None:
    with pytest.raises(MqttError) as caught:
        read_properties(b"\x03\x01\x01", 0, PUBLISH)

    assert caught.value.reason is ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (P.CONTENT_TYPE, "x" * 65_536),
        (P.CONTENT_TYPE, "\ud800"),
        (P.CONTENT_TYPE, "a\0"),
        (P.CORRELATION_DATA, bytes(65_536)),
        (P.PAYLOAD_FORMAT, 256),
        (P.RECEIVE_MAXIMUM, 65_536),
        (P.MESSAGE_EXPIRY, -1),
        (P.SUBSCRIPTION_IDENTIFIER, [268_435_456]),
        (P.SUBSCRIPTION_IDENTIFIER, [-1]),
    ],
)
def test_a_value_that_cannot_be_written(name: MqttProperty, value: Any) -> None:
    with pytest.raises(MqttError):
        encode_properties({name: value})


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
topics = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1)
longs = st.integers(0, 2**32 - 1)
of_publish: dict[MqttProperty, st.SearchStrategy[Any]] = {
    P.PAYLOAD_FORMAT: st.integers(0, 1),
    P.MESSAGE_EXPIRY: longs,
    P.CONTENT_TYPE: texts,
    P.RESPONSE_TOPIC: topics,
    P.CORRELATION_DATA: st.binary(),
    P.SUBSCRIPTION_IDENTIFIER: st.lists(st.integers(1, 268_435_455), min_size=1),
    P.TOPIC_ALIAS: st.integers(1, 65_535),
    P.USER_PROPERTY: st.lists(st.tuples(texts, texts), min_size=1),
}


@given(st.fixed_dictionaries({}, optional=of_publish))
def test_what_is_written_is_read_again(properties: dict[MqttProperty, Any]) -> None:
    data = encode_properties(properties)

    assert read_properties(data, 0, PUBLISH) == (properties, len(data))


@given(st.binary(), st.sampled_from(KINDS))
def test_whatever_comes_nothing_but_an_mqtt_error_is_raised(data: bytes, kind: int) -> None:
    with suppress(MqttError):
        decode_properties(data, kind)


# Variable byte integers.


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (16_383, b"\xff\x7f"),
        (16_384, b"\x80\x80\x01"),
        (2_097_151, b"\xff\xff\x7f"),
        (2_097_152, b"\x80\x80\x80\x01"),
        (268_435_455, b"\xff\xff\xff\x7f"),
    ],
)
def test_a_variable_byte_integer(value: int, data: bytes) -> None:
    assert write_varint(value) == data
    assert read_varint(data, 0) == (value, len(data))


@given(st.integers(0, 268_435_455))
def test_a_variable_byte_integer_is_read_as_it_was_written(value: int) -> None:
    assert read_varint(b"!" + write_varint(value), 1) == (value, 1 + len(write_varint(value)))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff\x01", b"\x80\x00", b"\x80" * 4])
def test_a_malformed_variable_byte_integer(data: bytes) -> None:
    with pytest.raises(MqttError) as caught:
        read_varint(data, 0)

    assert caught.value.reason is ReasonCode.MALFORMED_PACKET
