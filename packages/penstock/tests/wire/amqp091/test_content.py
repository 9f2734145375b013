"""Whole messages out of a stream of bytes: all of them, in order, whatever pieces they come in."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.basic_properties import BasicProperties, decode_header, encode_header
from penstock.core.errors import FrameError, ProtocolError, UnexpectedFrame
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.content import AmqpContent, ContentReader
from penstock.wire.amqp091.frames import (
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEADER_STRUCT,
    FRAME_METHOD,
    FRAME_OVERHEAD,
    HEARTBEAT_FRAME,
)
from penstock.wire.amqp091.methods import decode_method, encode_method_frame

SAID = BasicProperties("t", {"a": 1})


def frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return FRAME_HEADER_STRUCT.pack(kind, channel, len(payload)) + payload + b"\xce"


def content(method: bytes, body: bytes, most: int = 1000, channel: int = 1) -> bytes:
    """A method frame that carries a message, and the message, as a broker writes them."""
    pieces = [body[at : at + most] for at in range(0, len(body), most)]
    frames = [frame(FRAME_BODY, piece, channel) for piece in pieces]
    header = frame(FRAME_HEADER, encode_header(SAID, len(body)), channel)
    return method + header + b"".join(frames)


def basic_deliver(tag: int, channel: int = 1) -> bytes:
    return encode_method_frame(
        channel,
        methods.BASIC_DELIVER,
        consumer_tag="me",
        delivery_tag=tag,
        redelivered=tag % 2 == 1,
        exchange="x",
        routing_key="k",
    )


def deliver(tag: int, body: bytes, most: int = 1000, channel: int = 1) -> bytes:
    return content(basic_deliver(tag, channel), body, most, channel)


def fed(stream: bytes, cuts: list[int]) -> list[Any]:
    messages, found, at, turn = ContentReader(), [], 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        found += list(messages.feed(stream[at : at + step]))
        at, turn = at + step, turn + 1
    return found


@given(
    st.lists(st.binary(max_size=200), max_size=6),
    st.integers(1, 100),
    st.lists(st.integers(1, 600), min_size=1),
)
def test_messages_come_whole_whatever_pieces_they_come_in(
    bodies: list[bytes], most: int, cuts: list[int]
) -> None:
    stream = b"".join(deliver(tag, body, most) for tag, body in enumerate(bodies, 1))

    found = fed(stream, cuts)

    assert [(each.tag, each.redelivered, each.body) for each in found] == [
        (tag, tag % 2 == 1, body) for tag, body in enumerate(bodies, 1)
    ]
    assert {(each.consumer, each.exchange, each.key) for each in found} <= {("me", "x", "k")}
    assert {each.header for each in found} <= {encode_header(SAID, len(b)) for b in bodies}


@given(st.lists(st.integers(1, 50), min_size=1))
def test_methods_heartbeats_and_other_channels_come_in_between(cuts: list[int]) -> None:
    one, two = deliver(1, b"one", 2, 1), deliver(2, b"two" * 9, 3, 2)
    half = len(basic_deliver(1))
    stream = (
        encode_method_frame(3, methods.BASIC_QOS_OK)
        + one[:half]
        + HEARTBEAT_FRAME
        + two
        + encode_method_frame(0, methods.CONNECTION_BLOCKED, reason="disk")
        + one[half:]
    )

    qos, second, blocked, first = fed(stream, cuts)

    assert (qos[0], qos[1].id) == (3, methods.BASIC_QOS_OK)
    assert (second.channel, second.body) == (2, b"two" * 9)
    assert blocked[1].arguments.reason == "disk"
    assert (first.channel, first.body) == (1, b"one")


def test_a_message_that_was_asked_for_says_so() -> None:
    get_ok = encode_method_frame(
        1,
        methods.BASIC_GET_OK,
        delivery_tag=7,
        redelivered=True,
        exchange="x",
        routing_key="k",
        message_count=3,
    )
    [found] = ContentReader().feed(content(get_ok, b"body"))

    assert isinstance(found, AmqpContent)
    assert found.method == methods.BASIC_GET_OK
    assert (found.tag, found.redelivered, found.body) == (7, True, b"body")
    assert (found.exchange, found.key) == ("x", "k")


def test_a_message_that_came_back_says_why() -> None:
    returned = encode_method_frame(
        1,
        methods.BASIC_RETURN,
        reply_code=312,
        reply_text="NO_ROUTE",
        exchange="x",
        routing_key="k",
    )
    [found] = ContentReader().feed(content(returned, b""))

    assert isinstance(found, AmqpContent)
    assert found.method == methods.BASIC_RETURN
    assert (found.exchange, found.key) == ("x", "k")


DELIVER = basic_deliver(1)


@pytest.mark.parametrize(
    "stream",
    [
        frame(FRAME_HEADER, encode_header(SAID, 3)),
        frame(FRAME_BODY, b"abc"),
        DELIVER + frame(FRAME_BODY, b"abc"),
        DELIVER + DELIVER,
        DELIVER + encode_method_frame(1, methods.BASIC_QOS_OK),
        DELIVER + 2 * frame(FRAME_HEADER, encode_header(SAID, 3)),
        DELIVER + frame(FRAME_HEADER, encode_header(SAID, 3)) + frame(FRAME_BODY, b"abcd"),
    ],
    ids=["header", "body", "early", "twice", "method", "headers", "long"],
)
def test_what_is_out_of_order_is_told(stream: bytes) -> None:
    with pytest.raises(UnexpectedFrame):
        list(ContentReader().feed(stream + HEARTBEAT_FRAME))


def test_a_delivery_that_lies_about_its_lengths_is_told() -> None:
    lying = DELIVER[:11] + b"\xff" + DELIVER[12:]
    with pytest.raises(FrameError):
        list(ContentReader().feed(lying + deliver(2, b"x" * 300)))


def test_a_header_too_short_to_be_one_is_told() -> None:
    with pytest.raises(FrameError):
        list(ContentReader().feed(DELIVER + frame(FRAME_HEADER, b"\x00\x3c") + HEARTBEAT_FRAME))


@pytest.mark.parametrize("multiple", [False, True])
def test_an_ack_is_decoded_as_by_the_general_codec(multiple: bool) -> None:
    ack = encode_method_frame(5, methods.BASIC_ACK, delivery_tag=2**40, multiple=multiple)

    assert list(ContentReader().feed(ack)) == [(5, decode_method(ack[7:-1]))]


@pytest.mark.parametrize("seconds", [253_402_300_800, 2**63 - 1], ids=["year 10000", "largest"])
def test_a_timestamp_beyond_the_year_9999_does_not_end_the_reader(seconds: int) -> None:
    table = b"\x01aT" + seconds.to_bytes(8, "big")
    start = methods.CONNECTION_START.to_bytes(4, "big") + b"\x00\x09"
    start += len(table).to_bytes(4, "big") + table + bytes(8)
    properties = BasicProperties(timestamp=seconds)
    header = bytearray(encode_header(properties, 0))
    header[12] |= 0x20  # headers come before the timestamp
    header[14:14] = len(table).to_bytes(4, "big") + table

    method, message, after = ContentReader().feed(
        frame(FRAME_METHOD, start, 0)
        + basic_deliver(1)
        + frame(FRAME_HEADER, bytes(header))
        + deliver(2, b"next")
    )

    assert isinstance(method, tuple)
    assert isinstance(message, AmqpContent)
    assert isinstance(after, AmqpContent)
    assert method[1].arguments.server_properties == {"a": seconds}
    decoded = decode_header(message.header)
    assert (decoded.timestamp, decoded.headers) == (seconds, {"a": seconds})
    assert after.body == b"next"


@given(st.binary(max_size=30), st.integers(0, 200), st.binary(min_size=1, max_size=3))
def test_damage_is_told_or_harmless(body: bytes, at: int, damage: bytes) -> None:
    stream = deliver(1, body) + deliver(2, body)
    at = min(at, len(stream) - FRAME_OVERHEAD)
    with contextlib.suppress(ProtocolError):
        list(ContentReader().feed(stream[:at] + damage + stream[at + len(damage) :]))
