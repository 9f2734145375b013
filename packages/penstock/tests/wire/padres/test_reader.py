"""A stream of bytes as frames: in whatever pieces it comes, and no more of it than may be."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ContentTooLarge, FrameError
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope
from penstock.wire.padres.frames import (
    PROTOCOL_HEADER,
    HeartbeatFrame,
    MessageFrame,
    OpenFrame,
    PadresFrame,
    PadresFrameReader,
    PeerRole,
    encode_frame,
)

OPEN = OpenFrame(PeerRole.CLIENT, "ada")
SAID: list[PadresFrame] = [
    OPEN,
    HeartbeatFrame(),
    MessageFrame(PadresEnvelope(EnvelopeKind.PUBLISH, "[class,a]"), 1),
    HeartbeatFrame(),
]
STREAM = PROTOCOL_HEADER + b"".join(map(encode_frame, SAID))


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_pieces_make_the_same_frames(cuts: list[int]) -> None:
    reader = PadresFrameReader()
    edges = [0, *sorted(cuts), len(STREAM)]

    found = [
        frame
        for start, end in itertools.pairwise(edges)
        for frame in reader.feed(STREAM[start:end])
    ]

    assert found == SAID
    assert reader.rest == b""


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n", b"AMQP\x00\x00\x09\x01", b"PADRED", b"\x00"]
)
def test_another_protocol_is_told_apart_at_its_first_bytes(said: bytes) -> None:
    with pytest.raises(FrameError, match="not the PADRES protocol"):
        PadresFrameReader().feed(said)


def test_another_version_is_named() -> None:
    with pytest.raises(FrameError, match="version 9 is not supported, only 1"):
        PadresFrameReader().feed(PROTOCOL_HEADER[:-1] + b"\x09")


@pytest.mark.parametrize(
    "said", [encode_frame(HeartbeatFrame()), encode_frame(OPEN) + encode_frame(OPEN)]
)
def test_who_one_is_comes_first_and_once(said: bytes) -> None:
    with pytest.raises(FrameError, match="must be the first, and the only one"):
        PadresFrameReader().feed(PROTOCOL_HEADER + said)


def test_a_frame_that_is_too_large_is_refused_before_it_is_there() -> None:
    reader = PadresFrameReader(largest=100)
    reader.feed(PROTOCOL_HEADER + encode_frame(OPEN))

    with pytest.raises(ContentTooLarge, match="101 bytes exceeds the maximum of 100"):
        reader.feed((101).to_bytes(4, "big"))


def test_a_stopped_reader_keeps_what_comes() -> None:
    reader = PadresFrameReader()
    frames = reader.frames(STREAM)

    assert next(frames) == OPEN
    reader.stopped = True
    assert reader.feed(b"") == []
    reader.stopped = False
    assert reader.feed(b"") == SAID[1:]


def test_a_reader_can_take_over_where_another_has_read_the_greeting() -> None:
    first = PadresFrameReader()
    assert next(first.frames(STREAM)) == OPEN

    assert PadresFrameReader.after_open(1000).feed(first.rest) == SAID[1:]
