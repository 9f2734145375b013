"""Frames: whole ones, whatever pieces they come in, and what is none is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.core.errors import FrameError, WireSyntaxError
from penstock.wire.amqp091.frames import (
    FRAME_HEADER_STRUCT,
    FRAME_MAX,
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
    AmqpFrame,
    FrameSplitter,
    encode_basic_ack,
    encode_basic_publish,
)

whole = st.builds(AmqpFrame, st.integers(1, 3), st.integers(0, 0xFFFF), st.binary(max_size=60))


def written(each: AmqpFrame) -> bytes:
    return (
        FRAME_HEADER_STRUCT.pack(each.kind, each.channel, len(each.payload))
        + each.payload
        + b"\xce"
    )


@given(st.lists(whole, max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_frames_come_whole_whatever_pieces_they_come_in(
    sent: list[AmqpFrame], cuts: list[int]
) -> None:
    stream = b"".join(map(written, sent))
    frames, found, at, turn = FrameSplitter(), [], 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        found += frames.feed(stream[at : at + step])
        at, turn = at + step, turn + 1

    assert found == sent


def test_another_reader_may_go_on_where_one_stops() -> None:
    frames = FrameSplitter()

    assert frames.feed(HEARTBEAT_FRAME + b"\x01\x00") == [AmqpFrame(8, 0, b"")]
    assert frames.take() == b"\x01\x00"
    assert frames.take() == b""


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"AMQP\x00\x00\x09\x01", "does not speak AMQP 0-9-1"),
        (b"AMQP\x01\x01\x00\x0a", "does not speak AMQP 0-9-1"),
        (b"HTTP/1.1 400 Bad Request", "invalid frame"),
        (b"\x01\x00\x01\x00\x00\x00\x01xx", "no frame-end octet"),
        (FRAME_HEADER_STRUCT.pack(1, 0, FRAME_MAX + 1) + b"x", "invalid frame"),
    ],
    ids=["greeting", "other", "http", "end", "size"],
)
def test_what_is_no_frame_is_told(data: bytes, what: str) -> None:
    with pytest.raises(FrameError, match=what):
        FrameSplitter().feed(data)


def test_an_acknowledgement_is_what_others_write() -> None:
    for multiple in (False, True):
        expected = frame.marshal(commands.Basic.Ack(77, multiple), 3)
        assert encode_basic_ack(3, 77, multiple) == expected


@pytest.mark.parametrize("size", [0, 1, 56, 57, 112, 200])
def test_a_publish_is_what_others_read(size: int) -> None:
    body, route = bytes(range(size)), encode_route("x", "k")
    data = encode_basic_publish(
        5, route, encode_header(BasicProperties("t"), size), body, 64, mandatory=True
    )
    read = []
    while data:
        used, channel, value = frame.unmarshal(data)
        assert channel == 5
        assert used <= 64
        read.append(value)
        data = data[used:]

    publish, header, *pieces = read
    assert isinstance(publish, commands.Basic.Publish)
    assert (publish.exchange, publish.routing_key, publish.mandatory) == ("x", "k", True)
    assert isinstance(header, ContentHeader)
    assert header.body_size == size
    bodies = [each for each in pieces if isinstance(each, ContentBody)]
    assert len(bodies) == len(pieces)
    assert b"".join(each.value for each in bodies) == body


def test_properties_that_fit_into_no_frame_are_refused() -> None:
    header = encode_header(BasicProperties(headers={"a": "x" * 5000}), 0)
    with pytest.raises(WireSyntaxError, match="do not fit"):
        encode_basic_publish(1, encode_route("", "q"), header, b"", 4096)


def test_the_greeting_names_the_protocol() -> None:
    assert PROTOCOL_HEADER == b"AMQP\x00\x00\x09\x01"
