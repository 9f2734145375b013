"""What a broker sends, byte by byte, and that a client reads it as it was meant."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.mqtt import packets
from penstock.wire.mqtt.fields import PUBACK, PUBCOMP, PUBREC, PUBREL
from penstock.wire.mqtt.properties import MqttProperty, encode_properties
from penstock.wire.mqtt.reason_codes import CONNACK_RETURN_CODES, MqttError, ReasonCode
from tests import mqtt_wire as wire

WHY = {MqttProperty.REASON_STRING: "why"}
WHY_BYTES = b"\x06\x1f\x00\x03why"


# CONNACK.


@pytest.mark.parametrize(
    ("version", "present", "reason", "expected"),
    [
        (4, False, ReasonCode.SUCCESS, b"\x20\x02\x00\x00"),
        (4, True, ReasonCode.SUCCESS, b"\x20\x02\x01\x00"),
        (3, True, ReasonCode.SUCCESS, b"\x20\x02\x00\x00"),
        (4, False, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, b"\x20\x02\x00\x01"),
        (3, False, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, b"\x20\x02\x00\x02"),
        (4, False, ReasonCode.SERVER_UNAVAILABLE, b"\x20\x02\x00\x03"),
        (4, False, ReasonCode.BAD_USER_NAME_OR_PASSWORD, b"\x20\x02\x00\x04"),
        (4, True, ReasonCode.NOT_AUTHORIZED, b"\x20\x02\x00\x05"),
        (4, False, ReasonCode.MALFORMED_PACKET, b"\x20\x02\x00\x03"),
        (5, False, ReasonCode.SUCCESS, b"\x20\x03\x00\x00\x00"),
        (5, True, ReasonCode.SUCCESS, b"\x20\x03\x01\x00\x00"),
        (5, True, ReasonCode.NOT_AUTHORIZED, b"\x20\x03\x00\x87\x00"),
    ],
)
def test_a_connack(version: int, present: bool, reason: ReasonCode, expected: bytes) -> None:
    assert packets.encode_connack(version, present, reason, None) == expected


def test_a_connack_with_properties() -> None:
    data = packets.encode_connack(5, True, ReasonCode.SUCCESS, {MqttProperty.SERVER_KEEP_ALIVE: 60})

    assert data == b"\x20\x06\x01\x00\x03\x13\x00\x3c"


def test_properties_are_left_out_where_the_version_has_none() -> None:
    assert packets.encode_connack(
        4, False, ReasonCode.SUCCESS, {MqttProperty.SERVER_KEEP_ALIVE: 60}
    ) == (b"\x20\x02\x00\x00")
    assert packets.encode_suback(4, 7, [0], dict(WHY)) == b"\x90\x03\x00\x07\x00"


def test_older_clients_are_told_one_of_their_five_codes() -> None:
    assert set(CONNACK_RETURN_CODES.values()) == set(range(6))


# Acknowledgements.


@pytest.mark.parametrize(
    ("kind", "first"), [(PUBACK, 0x40), (PUBREC, 0x50), (PUBREL, 0x62), (PUBCOMP, 0x70)]
)
def test_an_acknowledgement(kind: int, first: int) -> None:
    start = bytes((first,))

    assert packets.encode_acknowledgement(kind, 258) == start + b"\x02\x01\x02"
    assert packets.encode_acknowledgement(kind, 258, version=5) == start + b"\x02\x01\x02"
    assert packets.encode_acknowledgement(kind, 258, 0x92, None, 5) == start + b"\x03\x01\x02\x92"
    assert packets.encode_acknowledgement(kind, 258, 0x92, dict(WHY), 4) == start + b"\x02\x01\x02"
    assert packets.encode_acknowledgement(kind, 258, 0, dict(WHY), 5) == (
        start + b"\x0a\x01\x02\x00" + WHY_BYTES
    )


# SUBACK, UNSUBACK and the rest.


def test_a_suback() -> None:
    assert packets.encode_suback(4, 7, [0, 1, 2, 0x80]) == b"\x90\x06\x00\x07\x00\x01\x02\x80"
    assert packets.encode_suback(5, 7, [0, 0x8F]) == b"\x90\x05\x00\x07\x00\x00\x8f"
    assert packets.encode_suback(5, 7, [2], dict(WHY)) == b"\x90\x0a\x00\x07" + WHY_BYTES + b"\x02"


def test_a_suback_before_mqtt_5_knows_one_failure() -> None:
    assert (
        packets.encode_suback(4, 7, [ReasonCode.NOT_AUTHORIZED, 1]) == b"\x90\x04\x00\x07\x80\x01"
    )


def test_an_unsuback() -> None:
    assert packets.encode_unsuback(4, 7, [0, 0x11]) == b"\xb0\x02\x00\x07"
    assert packets.encode_unsuback(5, 7, [0, 0x11]) == b"\xb0\x05\x00\x07\x00\x00\x11"


def test_a_ping_is_answered() -> None:
    assert packets.PINGRESP_PACKET == b"\xd0\x00"


def test_a_disconnect() -> None:
    assert packets.encode_disconnect(ReasonCode.SUCCESS) == b"\xe0\x00"
    assert packets.encode_disconnect(ReasonCode.SESSION_TAKEN_OVER) == b"\xe0\x01\x8e"
    assert (
        packets.encode_disconnect(ReasonCode.SERVER_BUSY, dict(WHY)) == b"\xe0\x08\x89" + WHY_BYTES
    )


def test_an_auth() -> None:
    data = packets.encode_auth(
        ReasonCode.CONTINUE_AUTHENTICATION, {MqttProperty.AUTHENTICATION_METHOD: "M"}
    )

    assert data == b"\xf0\x06\x18\x04\x15\x00\x01M"


# PUBLISH.


@pytest.mark.parametrize(
    ("first", "number", "properties", "expected"),
    [
        (0x30, 0, None, b"\x30\x06\x00\x03a/b!"),
        (0x31, 9, None, b"\x31\x06\x00\x03a/b!"),
        (0x32, 258, None, b"\x32\x08\x00\x03a/b\x01\x02!"),
        (0x3D, 258, b"\x00", b"\x3d\x09\x00\x03a/b\x01\x02\x00!"),
        (0x30, 0, b"\x02\x01\x01", b"\x30\x09\x00\x03a/b\x02\x01\x01!"),
    ],
)
def test_a_publish(first: int, number: int, properties: bytes | None, expected: bytes) -> None:
    assert packets.encode_publish(first, b"a/b", number, properties, b"!") == expected
    assert packets.encode_publish_start(first, b"a/b", number, properties, 1) == expected[:-1]


@pytest.mark.parametrize(
    ("size", "length"),
    [
        (124, b"\x7f"),
        (125, b"\x80\x01"),
        (16_380, b"\xff\x7f"),
        (16_381, b"\x80\x80\x01"),
        (2_097_149, b"\x80\x80\x80\x01"),
        (268_435_452, b"\xff\xff\xff\x7f"),
    ],
)
def test_the_start_of_a_publish_of_any_size(size: int, length: bytes) -> None:
    assert (
        packets.encode_publish_start(0x30, b"t", 0, None, size) == b"\x30" + length + b"\x00\x01t"
    )


def test_a_publish_larger_than_any_packet() -> None:
    with pytest.raises(MqttError) as caught:
        packets.encode_publish_start(0x30, b"t", 0, None, 268_435_453)

    assert caught.value.reason is ReasonCode.PACKET_TOO_LARGE


def test_a_topic_larger_than_any_string() -> None:
    with pytest.raises(MqttError) as caught:
        packets.encode_publish(0x30, b"t" * 65_536, 0, None, b"")

    assert caught.value.reason is ReasonCode.TOPIC_NAME_INVALID


# What a client reads.

numbers = st.integers(1, 65_535)
user = st.fixed_dictionaries(
    {}, optional={MqttProperty.USER_PROPERTY: st.just([("k", "v" * 90)] * 2)}
)


@given(
    st.sampled_from([4, 5]),
    st.binary(min_size=1, max_size=300),
    st.integers(0, 2),
    numbers,
    st.booleans(),
    user,
    st.binary(max_size=300),
)
def test_a_client_reads_the_publish_that_was_sent(
    version: int,
    topic: bytes,
    qos: int,
    number: int,
    retain: bool,
    properties: dict[MqttProperty, Any],
    payload: bytes,
) -> None:
    block = encode_properties(properties) if version == 5 else None
    data = packets.encode_publish(0x30 | qos << 1 | retain, topic, number, block, payload)

    expected = wire.Published(
        topic,
        payload,
        qos,
        number if qos else 0,
        retain,
        properties=properties if version == 5 else {},
    )
    assert list(wire.publishes(data + data, version)) == [expected, expected]


@given(numbers, st.lists(st.sampled_from([0, 1, 2, 0x80, 0x87]), min_size=1), user)
def test_a_client_reads_the_suback_that_was_sent(
    number: int, reasons: list[int], properties: dict[MqttProperty, Any]
) -> None:
    ((_, body),), _ = wire.split(packets.encode_suback(5, number, reasons, properties))

    assert wire.decode_suback(body, 5) == (number, properties, reasons)


@given(st.sampled_from([4, 5, 6, 7]), numbers, st.sampled_from([0, 0x92]), user)
def test_a_client_reads_the_acknowledgement_that_was_sent(
    kind: int, number: int, reason: int, properties: dict[MqttProperty, Any]
) -> None:
    packet = packets.encode_acknowledgement(kind, number, reason, properties, 5)
    ((first, body),), _ = wire.split(packet)

    assert first >> 4 == kind
    assert wire.decode_acknowledgement(kind, body) == (number, reason, properties)


@given(st.booleans(), st.sampled_from([4, 5]))
def test_a_client_reads_the_connack_that_was_sent(present: bool, version: int) -> None:
    ((_, body),), _ = wire.split(packets.encode_connack(version, present, ReasonCode.SUCCESS))

    assert wire.decode_connack(body, version) == (present, 0, {})
