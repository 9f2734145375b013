"""Whole messages out of a stream of bytes: all of them, in order, whatever pieces they come in."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from penstock.core.basic_properties import BasicProperties, encode_header
from penstock.core.errors import FrameError, ProtocolError, UnexpectedFrame
from penstock.wire.amqp091.content import (
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEADER_STRUCT,
    FRAME_OVERHEAD,
    HEARTBEAT_FRAME,
    AmqpContent,
    ContentReader,
    encode_pamqp_method,
)

SAID = BasicProperties("t", {"a": 1})


def frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return FRAME_HEADER_STRUCT.pack(kind, channel, len(payload)) + payload + b"\xce"


def content(method: Any, body: bytes, most: int = 1000, channel: int = 1) -> bytes:
    """A method that carries a message, as a broker writes it."""
    pieces = [body[at : at + most] for at in range(0, len(body), most)]
    frames = [frame(FRAME_BODY, piece, channel) for piece in pieces]
    header = frame(FRAME_HEADER, encode_header(SAID, len(body)), channel)
    return encode_pamqp_method(channel, method) + header + b"".join(frames)


def deliver(tag: int, body: bytes, most: int = 1000, channel: int = 1) -> bytes:
    return content(commands.Basic.Deliver("me", tag, tag % 2 == 1, "x", "k"), body, most, channel)


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
    half = len(encode_pamqp_method(1, commands.Basic.Deliver("me", 1, True, "x", "k")))
    stream = (
        encode_pamqp_method(3, commands.Basic.QosOk())
        + one[:half]
        + HEARTBEAT_FRAME
        + two
        + encode_pamqp_method(0, commands.Connection.Blocked("disk"))
        + one[half:]
    )

    qos, second, blocked, first = fed(stream, cuts)

    assert (qos[0], type(qos[1])) == (3, commands.Basic.QosOk)
    assert (second.channel, second.body) == (2, b"two" * 9)
    assert blocked[1].reason == "disk"
    assert (first.channel, first.body) == (1, b"one")


def test_a_message_that_was_asked_for_says_so() -> None:
    [found] = ContentReader().feed(content(commands.Basic.GetOk(7, True, "x", "k", 3), b"body"))

    assert isinstance(found, AmqpContent)
    assert isinstance(found.method, commands.Basic.GetOk)
    assert (found.tag, found.redelivered, found.body) == (7, True, b"body")
    assert (found.exchange, found.key) == ("x", "k")


def test_a_message_that_came_back_says_why() -> None:
    returned = commands.Basic.Return(312, "NO_ROUTE", "x", "k")
    [found] = ContentReader().feed(content(returned, b""))

    assert isinstance(found, AmqpContent)
    assert isinstance(found.method, commands.Basic.Return)
    assert (found.exchange, found.key) == ("x", "k")


DELIVER = encode_pamqp_method(1, commands.Basic.Deliver("me", 1, False, "x", "k"))


@pytest.mark.parametrize(
    "stream",
    [
        frame(FRAME_HEADER, encode_header(SAID, 3)),
        frame(FRAME_BODY, b"abc"),
        DELIVER + frame(FRAME_BODY, b"abc"),
        DELIVER + DELIVER,
        DELIVER + encode_pamqp_method(1, commands.Basic.QosOk()),
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


@given(st.binary(max_size=30), st.integers(0, 200), st.binary(min_size=1, max_size=3))
def test_damage_is_told_or_harmless(body: bytes, at: int, damage: bytes) -> None:
    stream = deliver(1, body) + deliver(2, body)
    at = min(at, len(stream) - FRAME_OVERHEAD)
    with contextlib.suppress(ProtocolError):
        list(ContentReader().feed(stream[:at] + damage + stream[at + len(damage) :]))
