"""Frames: whole ones are handed on, however they arrive; lies about size and offset are found."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.amqp10.errors import FRAMING_ERROR, ConnectionFault
from penstock.wire.amqp10.frames import (
    AMQP_HEADER,
    HEARTBEAT_FRAME,
    Amqp10FrameReader,
    encode_frame,
)


class Sink:
    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def on_header(self, header: bytes) -> None:
        self.heard.append(("header", header))

    def on_frame(self, kind: int, channel: int, data: bytes, at: int, stop: int) -> None:
        self.heard.append((kind, channel, data[at:stop]))


def reader(frame_max: int = 512) -> tuple[Sink, Amqp10FrameReader]:
    sink = Sink()
    made = Amqp10FrameReader(sink, frame_max)
    made.awaits_header = False
    return sink, made


@given(
    bodies=st.lists(st.tuples(st.integers(0, 65535), st.binary(max_size=100)), max_size=20),
    cuts=st.lists(st.integers(0, 3000), max_size=10),
)
def test_frames_are_the_same_however_they_are_cut(
    bodies: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    sink, made = reader()
    data = b"".join(encode_frame(channel, body) for channel, body in bodies)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, stop in itertools.pairwise(places):
        made.feed(data[start:stop])
    assert sink.heard == [(0, channel, body) for channel, body in bodies]
    assert not made.waiting


def test_an_extended_header_is_passed_over() -> None:
    sink, made = reader()
    made.feed(b"\x00\x00\x00\x0e\x03\x00\x00\x05ext!ab")
    assert sink.heard == [(0, 5, b"ab")]


def test_a_heartbeat_is_an_empty_frame() -> None:
    sink, made = reader()
    made.feed(HEARTBEAT_FRAME)
    assert sink.heard == [(0, 0, b"")]


def test_a_protocol_header_comes_where_one_is_awaited() -> None:
    sink, made = reader()
    made.awaits_header = True
    made.feed(AMQP_HEADER[:3])
    made.feed(AMQP_HEADER[3:] + HEARTBEAT_FRAME)
    assert sink.heard == [("header", AMQP_HEADER), (0, 0, b"")]


def test_what_is_held_is_looked_at_later() -> None:
    sink, made = reader()
    made.held = True
    made.feed(HEARTBEAT_FRAME)
    assert not sink.heard
    made.held = False
    made.feed(b"")
    assert sink.heard


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x00\x00\x00\x07\x02\x00\x00\x00", id="smaller than its own header"),
        pytest.param(b"\x00\x00\x00\x00\x00\x00\x00\x00", id="of no size"),
        pytest.param(b"\x00\x00\x02\x01\x02\x00\x00\x00", id="larger than agreed"),
        pytest.param(b"\xff\xff\xff\xff\x02\x00\x00\x00", id="larger than anything"),
        pytest.param(b"\x00\x00\x00\x10\x01\x00\x00\x00", id="its body begins in its header"),
        pytest.param(b"\x00\x00\x00\x10\x05\x00\x00\x00", id="its body begins behind its end"),
    ],
)
def test_a_frame_that_lies_is_a_framing_error(data: bytes) -> None:
    _, made = reader()
    with pytest.raises(ConnectionFault) as caught:
        made.feed(data)
    assert caught.value.condition == FRAMING_ERROR
