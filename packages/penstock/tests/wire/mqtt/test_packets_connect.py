"""CONNECT: golden bytes of each version, and what is refused in words the client understands."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.mqtt.packets import ConnectPacket, ConnectWill, decode_connect
from penstock.wire.mqtt.properties import MqttProperty
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode
from tests.mqtt_wire import connect_body

V4 = b"\x00\x04MQTT\x04"
V5 = b"\x00\x04MQTT\x05"
V3 = b"\x00\x06MQIsdp\x03"


def refused(body: bytes) -> tuple[ReasonCode, int]:
    with pytest.raises(MqttError) as caught:
        decode_connect(body)
    return caught.value.reason, caught.value.version


def test_the_least_a_client_of_3_1_1_may_say() -> None:
    assert decode_connect(V4 + b"\x02\x00\x00\x00\x00") == ConnectPacket(4, "", True, 0)


def test_the_least_a_client_of_5_0_may_say() -> None:
    assert decode_connect(V5 + b"\x00\x00\x00\x00\x00\x00") == ConnectPacket(5, "", False, 0)


def test_a_client_of_3_1() -> None:
    assert decode_connect(V3 + b"\x02\x00\x0a\x00\x01c") == ConnectPacket(3, "c", True, 10)


def test_the_bit_that_3_1_does_not_reserve() -> None:
    assert decode_connect(V3 + b"\x03\x00\x0a\x00\x01c") == ConnectPacket(3, "c", True, 10)


def test_all_a_client_of_3_1_1_may_say() -> None:
    body = V4 + b"\xf4\x00\x3c" + b"\x00\x01c" + b"\x00\x03w/t\x00\x02\xff\x00"
    body += b"\x00\x01u\x00\x02p\xff"

    will = ConnectWill("w/t", b"\xff\x00", 2, True)
    assert decode_connect(body) == ConnectPacket(4, "c", False, 60, "u", b"p\xff", will)


def test_all_a_client_of_5_0_may_say() -> None:
    body = V5 + b"\xce\x00\x3c" + b"\x08\x11\x00\x00\x00\x0a\x21\x00\x05" + b"\x00\x01c"
    body += b"\x05\x18\x00\x00\x00\x03" + b"\x00\x01w\x00\x00" + b"\x00\x01u\x00\x01p"

    will = ConnectWill("w", b"", 1, False, {MqttProperty.WILL_DELAY: 3})
    properties = {MqttProperty.SESSION_EXPIRY: 10, MqttProperty.RECEIVE_MAXIMUM: 5}
    assert decode_connect(body) == ConnectPacket(5, "c", True, 60, "u", b"p", will, properties)


def test_a_password_needs_no_user_name_in_5_0() -> None:
    connect = decode_connect(V5 + b"\x42\x00\x00\x00\x00\x00\x00\x01p")

    assert (connect.username, connect.password) == (None, b"p")


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (b"\x00\x04MQTT\x06\x02", 6),
        (b"\x00\x04MQTT\x03\x02", 3),
        (b"\x00\x04MQTT\x84\x02", 0x84),
        (b"\x00\x06MQIsdp\x04\x02", 4),
        (b"\x00\x04mqtt\x04\x02", 0),
        (b"\x00\x04HTTP\x05", 0),
        (b"\x00\x00\x05", 0),
        (b"\x00\x01\xff\x05", 0),
    ],
)
def test_a_protocol_that_is_not_spoken_here(body: bytes, version: int) -> None:
    assert refused(body) == (ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, version)


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00\x04MQT", b"\x00\x04MQTT"])
def test_a_body_too_short_to_name_a_protocol(body: bytes) -> None:
    assert refused(body) == (ReasonCode.MALFORMED_PACKET, 0)


FLAGS = [
    (4, 0x03, ReasonCode.MALFORMED_PACKET),  # reserved
    (5, 0x03, ReasonCode.MALFORMED_PACKET),
    (4, 0x1E, ReasonCode.MALFORMED_PACKET),  # will QoS 3
    (5, 0x1E, ReasonCode.MALFORMED_PACKET),
    (4, 0x0A, ReasonCode.PROTOCOL_ERROR),  # will QoS without a will
    (5, 0x12, ReasonCode.PROTOCOL_ERROR),
    (4, 0x22, ReasonCode.PROTOCOL_ERROR),  # will retain without a will
    (5, 0x22, ReasonCode.PROTOCOL_ERROR),
    (4, 0x42, ReasonCode.PROTOCOL_ERROR),  # password without a user name
]


@pytest.mark.parametrize(("version", "flags", "reason"), FLAGS)
def test_flags_that_do_not_go_together(version: int, flags: int, reason: ReasonCode) -> None:
    body = b"\x00\x04MQTT" + bytes((version, flags)) + bytes(40)

    assert refused(body) == (reason, version)


@pytest.mark.parametrize(
    ("body", "version"), [(V4 + b"\x00", 4), (V3 + b"\x00", 3), (V3 + b"\x02", 3)]
)
def test_a_client_that_keeps_its_session_must_name_itself(body: bytes, version: int) -> None:
    body += b"\x00\x00\x00\x00"

    assert refused(body) == (ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, version)


@pytest.mark.parametrize("topic", [b"", b"a/#", b"+"])
def test_a_will_on_a_topic_nothing_may_be_published_to(topic: bytes) -> None:
    body = V4 + b"\x06\x00\x00\x00\x01c" + bytes((0, len(topic))) + topic + b"\x00\x00"

    assert refused(body) == (ReasonCode.TOPIC_NAME_INVALID, 4)


@pytest.mark.parametrize("text", [b"\xff", b"\x00", b"\xed\xa0\x80"])
@pytest.mark.parametrize(
    "before",
    [
        V4 + b"\x02\x00\x00",  # client id
        V4 + b"\x06\x00\x00\x00\x01c",  # will topic
        V4 + b"\x82\x00\x00\x00\x01c",  # user name
    ],
)
def test_text_that_is_not_text(before: bytes, text: bytes) -> None:
    body = before + bytes((0, len(text))) + text + b"\x00\x00"

    assert refused(body) == (ReasonCode.MALFORMED_PACKET, 4)


def test_a_will_delay_is_a_property_of_the_will_only() -> None:
    body = V5 + b"\x02\x00\x00\x05\x18\x00\x00\x00\x01\x00\x00"

    assert refused(body) == (ReasonCode.MALFORMED_PACKET, 5)


def test_authentication_data_without_a_method() -> None:
    body = V5 + b"\x02\x00\x00\x04\x16\x00\x01d\x00\x00"

    assert refused(body) == (ReasonCode.PROTOCOL_ERROR, 5)


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
topics = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1)
qos = st.integers(0, 2)


@st.composite
def connects(draw: st.DrawFn) -> ConnectPacket:
    version = draw(st.sampled_from([3, 4, 5]))
    username = draw(st.none() | texts)
    password = None
    if version == 5 or username is not None:
        password = draw(st.none() | st.binary())
    delay = st.fixed_dictionaries({}, optional={MqttProperty.WILL_DELAY: st.integers(0, 2**32 - 1)})
    expiry = st.fixed_dictionaries({}, optional={MqttProperty.SESSION_EXPIRY: st.integers(0, 9)})
    none: st.SearchStrategy[dict[MqttProperty, int]] = st.just({})
    wills = st.builds(
        ConnectWill, topics, st.binary(), qos, st.booleans(), delay if version == 5 else none
    )
    return ConnectPacket(
        version,
        draw(texts.filter(bool)),
        draw(st.booleans()),
        draw(st.integers(0, 65_535)),
        username,
        password,
        draw(st.none() | wills),
        draw(expiry if version == 5 else none),
    )


@given(connects())
def test_what_a_client_says_is_what_is_read(connect: ConnectPacket) -> None:
    assert decode_connect(connect_body(connect)) == connect


@given(connects(), st.data())
def test_no_part_of_a_connect_may_be_missing(connect: ConnectPacket, data: st.DataObject) -> None:
    body = connect_body(connect)

    reason, _ = refused(body[: data.draw(st.integers(0, len(body) - 1))])

    assert reason is ReasonCode.MALFORMED_PACKET


@given(connects(), st.binary(min_size=1))
def test_nothing_may_follow_a_connect(connect: ConnectPacket, more: bytes) -> None:
    assert refused(connect_body(connect) + more) == (ReasonCode.MALFORMED_PACKET, connect.version)


@given(st.sampled_from([b"", V3, V4, V5]), st.binary())
def test_whatever_comes_nothing_but_an_mqtt_error_is_raised(start: bytes, rest: bytes) -> None:
    with suppress(MqttError):
        decode_connect(start + rest)
