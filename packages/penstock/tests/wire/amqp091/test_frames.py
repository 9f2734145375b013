"""Frames of AMQP 0-9-1: golden bytes, and a stream that may be cut anywhere."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.basic_properties import BasicProperties, encode_header
from penstock.core.errors import FrameError, ProtocolError, UnexpectedFrame
from penstock.wire.amqp091.frames import (
    HEARTBEAT_FRAME,
    Amqp091FrameReader,
    BasicDeliverWriter,
    encode_basic_ack,
    write_body_frames,
    write_content_frames,
)
from tests.doubles import message

FRAME_MAX = 4096
Event = tuple[Any, ...]


def frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def publish(channel: int, route: bytes, body: bytes, cut: int = FRAME_MAX - 8) -> bytes:
    """A publish as a client sends it, its body in frames of `cut` bytes."""
    header = encode_header(BasicProperties(), len(body))
    frames = [frame(1, channel, b"\x00\x3c\x00\x28\x00\x00" + route + b"\x01")]
    frames.append(frame(2, channel, header))
    frames += [frame(3, channel, body[at : at + cut]) for at in range(0, len(body), cut)]
    return b"".join(frames)


def publish_run(route: bytes, bodies: list[bytes]) -> bytes:
    """Publishes in a row; some of them have bodies of the same size."""
    return b"".join(publish(1, route, body) for body in bodies)


class Channel:
    """A channel that gathers content the long way as well, and tells both alike."""

    def __init__(self, number: int, events: list[Event]) -> None:
        self.is_idle = True
        self.streaming_body = False
        self.run_limit = 50
        self._number = number
        self._events = events
        self.gathering: list[bytes] = []

    def publish(self, route: bytes, bits: int, header: bytes, body: bytes) -> None:
        self._events.append(("publish", self._number, route, bits, header, body))

    def publish_run(
        self, route: bytes, bits: int, headers: list[bytes], bodies: list[bytes]
    ) -> None:
        for header, body in zip(headers, bodies, strict=True):
            self.publish(route, bits, header, body)

    def ack(self, tag: int, multiple: bool) -> None:
        self._events.append(("ack", self._number, tag, multiple))


class Sink:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.channels = {number: Channel(number, self.events) for number in (1, 2)}
        self.reader = Amqp091FrameReader(self, FRAME_MAX, self.channels)

    def on_method(self, channel: int, payload: bytes) -> None:
        if payload[:4] == b"\x00\x3c\x00\x28" and channel in self.channels:
            known = self.channels[channel]
            known.is_idle = False
            known.streaming_body = (
                channel == 2
            )  # takes bodies as they come; the other in whole frames
            known.gathering = [payload[6:-1], payload[-1:]]
        elif payload[:4] == b"\x00\x3c\x00\x50" and channel in self.channels:
            tag, multiple = int.from_bytes(payload[4:12], "big"), payload[-1] & 1 == 1
            self.events.append(("ack", channel, tag, multiple))
        else:
            self.events.append(("method", channel, payload))

    def on_header(self, channel: int, payload: bytes) -> None:
        self._gather(channel, payload)

    def on_body(self, channel: int, payload: bytes | memoryview) -> None:
        self._gather(channel, bytes(payload))

    def _gather(self, channel: int, payload: bytes) -> None:
        known = self.channels.get(channel)
        if known is None or not known.gathering:
            raise UnexpectedFrame("content without a method")
        known.gathering.append(payload)
        route, bits, header, *bodies = known.gathering
        if sum(map(len, bodies)) >= int.from_bytes(header[4:12], "big"):
            known.is_idle = True
            known.streaming_body = False
            known.gathering = []
            known.publish(route, bits[0], header, b"".join(bodies))

    def on_error(self, channel: int, method: int, error: Exception) -> None:
        raise error


routes = st.tuples(st.binary(max_size=20), st.binary(max_size=20)).map(
    lambda pair: bytes((len(pair[0]),)) + pair[0] + bytes((len(pair[1]),)) + pair[1]
)
pieces = st.one_of(
    st.builds(publish, st.sampled_from([1, 2]), routes, st.binary(max_size=200), st.just(4088)),
    st.builds(publish, st.just(1), routes, st.binary(min_size=20, max_size=100), st.just(16)),
    st.builds(publish_run, st.just(b"\0\1q"), st.lists(st.binary(max_size=3), max_size=6)),
    st.builds(encode_basic_ack, st.sampled_from([1, 2]), st.integers(0, 2**64 - 1), st.booleans()),
    st.builds(lambda body: frame(1, 1, b"\x00\x0a\x00\x32" + body), st.binary(max_size=50)),
    st.just(HEARTBEAT_FRAME),
)


@given(st.lists(pieces, max_size=8).map(b"".join), st.data())
def test_a_stream_says_the_same_however_it_is_cut(stream: bytes, data: st.DataObject) -> None:
    whole = Sink()
    whole.reader.feed(stream)
    assert whole.reader.waiting == 0

    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    cut = Sink()
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        cut.reader.feed(stream[start:stop])
    assert cut.events == whole.events
    assert cut.reader.waiting == 0


#: The end of a publish and the beginning of another like it with a body of 70 bytes, and pieces.
BETWEEN = publish(1, b"\0\1q", b"x" * 70)[-1:] + publish(1, b"\0\1q", b"x" * 70)[:-71]


@given(
    st.lists(
        st.lists(
            st.sampled_from([BETWEEN, BETWEEN[1:], BETWEEN[:-1], b"\xce", b"x" * 70]), min_size=1
        )
        .map(b"".join)
        .map(lambda body: body[:70].ljust(70, b"\xce")),
        max_size=120,
    ),
    st.binary(max_size=80),
)
def test_bodies_may_look_like_what_stands_between_them(bodies: list[bytes], last: bytes) -> None:
    bodies = [*bodies, last]
    together, apart = Sink(), Sink()
    together.reader.feed(publish_run(b"\0\1q", bodies))
    for body in bodies:
        apart.reader.feed(publish(1, b"\0\1q", body))
    assert together.events == apart.events
    assert together.reader.waiting == 0


@pytest.mark.parametrize("at", [0, 5, 8, 20, 39])
def test_a_run_ends_before_an_invalid_publish(at: int) -> None:
    bodies = [bytes((number,)) * 9 for number in range(40)]
    stride = len(publish(1, b"\0\1q", bodies[0]))
    stream = bytearray(publish_run(b"\0\1q", bodies))
    stream[(at + 1) * stride - 1] = 0
    sink = Sink()
    with pytest.raises(FrameError, match="end marker"):
        sink.reader.feed(bytes(stream))
    assert [event[-1] for event in sink.events] == bodies[:at]


def test_byte_by_byte() -> None:
    stream = publish(1, b"\x02ex\x03key", b"body") + encode_basic_ack(2, 7, True) + HEARTBEAT_FRAME
    sink = Sink()
    for byte in stream:
        sink.reader.feed(bytes((byte,)))
    header = encode_header(BasicProperties(), 4)
    assert sink.events == [
        ("publish", 1, b"\x02ex\x03key", 1, header, b"body"),
        ("ack", 2, 7, True),
    ]


@settings(max_examples=300)
@given(st.lists(st.one_of(pieces, st.binary(max_size=30)), max_size=5).map(b"".join), st.data())
def test_nonsense_raises_what_a_peer_can_be_told(stream: bytes, data: st.DataObject) -> None:
    if stream and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(stream) - 1))
        stream = stream[:at] + data.draw(st.binary(min_size=1, max_size=1)) + stream[at + 1 :]
    with suppress(ProtocolError):
        Sink().reader.feed(stream)


def test_a_frame_over_the_limit_is_refused_before_it_has_come() -> None:
    sink = Sink()
    with pytest.raises(FrameError, match="too large"):
        sink.reader.feed(struct.pack(">BHI", 3, 1, FRAME_MAX + 1) + b"\0")
    Sink().reader.feed(struct.pack(">BHI", 3, 1, FRAME_MAX))


def test_a_body_over_the_limit_does_not_hide_behind_a_publish() -> None:
    with pytest.raises(FrameError, match="too large"):
        Sink().reader.feed(publish(1, b"\x00\x01q", b"x" * (FRAME_MAX + 1), cut=FRAME_MAX + 1))


@pytest.mark.parametrize("end", [b"\x00", b"\xcf"])
def test_a_frame_ends_as_it_should(end: bytes) -> None:
    with pytest.raises(FrameError, match="end"):
        Sink().reader.feed(frame(1, 1, b"\x00\x0a\x00\x32", end))


@pytest.mark.parametrize("which", [1, 2, 3])
def test_so_does_every_frame_of_a_publish(which: int) -> None:
    stream = bytearray(publish(1, b"\x00\x01q", b"body"))
    ends = [at for at, byte in enumerate(stream) if byte == 0xCE]
    stream[ends[which - 1]] = 0
    with pytest.raises(FrameError, match="end"):
        Sink().reader.feed(bytes(stream))


@pytest.mark.parametrize("kind", [0, 4, 5, 9, 255])
def test_an_unknown_kind_of_frame_is_refused(kind: int) -> None:
    with pytest.raises(FrameError, match="unknown frame"):
        Sink().reader.feed(frame(kind, 0, b""))


def test_a_heartbeat_is_empty_and_on_channel_0() -> None:
    Sink().reader.feed(HEARTBEAT_FRAME)
    with pytest.raises(FrameError):
        Sink().reader.feed(frame(8, 0, b"x"))
    with pytest.raises(UnexpectedFrame):
        Sink().reader.feed(frame(8, 1, b""))


def test_while_it_is_held_nothing_is_looked_at_and_nothing_lost() -> None:
    sink = Sink()
    sink.reader.held = True
    sink.reader.feed(encode_basic_ack(1, 1, False))
    sink.reader.feed(encode_basic_ack(1, 2, False)[:5])
    assert (sink.events, sink.reader.waiting) == ([], 26)
    sink.reader.held = False
    sink.reader.feed(encode_basic_ack(1, 2, False)[5:])
    assert sink.events == [("ack", 1, 1, False), ("ack", 1, 2, False)]


def test_what_follows_a_channels_error_is_read_on() -> None:
    class Forgiving(Sink):
        def on_error(self, channel: int, method: int, error: Exception) -> None:
            self.events.append(("error", channel, method, type(error)))

    sink = Forgiving()

    def refuse(route: bytes, bits: int, header: bytes, body: bytes) -> None:
        raise KeyError("no exchange")

    sink.channels[1].publish = refuse  # type: ignore[method-assign]
    sink.reader.feed(publish(1, b"\x00\x01q", b"x") + encode_basic_ack(2, 1, False))
    assert sink.events == [("error", 1, 60 << 16 | 40, KeyError), ("ack", 2, 1, False)]


# Out: golden bytes.


def deliver(body: bytes, frame_max: int = FRAME_MAX) -> bytes:
    out: list[bytes] = []
    one = message(body, "key", exchange="ex", delivery_mode=2)
    writer = BasicDeliverWriter(5, b"tag", frame_max)
    writer.write(out, 258, True, one.route, one.header, one.body)
    return b"".join(out)


def test_a_delivery() -> None:
    assert deliver(b"hello") == (
        b"\x01\x00\x05\x00\x00\x00\x18"  # method, channel 5, 24 bytes
        b"\x00\x3c\x00\x3c\x03tag\x00\x00\x00\x00\x00\x00\x01\x02\x01\x02ex\x03key\xce"
        b"\x02\x00\x05\x00\x00\x00\x0f"  # header
        b"\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x10\x00\x02\xce"
        b"\x03\x00\x05\x00\x00\x00\x05hello\xce"
    )


def test_a_delivery_without_a_body_has_no_body_frame() -> None:
    assert deliver(b"").endswith(b"\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00\x02\xce")


@given(st.integers(0, 300), st.integers(16, 64))
def test_bodies_are_cut_to_the_receivers_frames(size: int, frame_max: int) -> None:
    body = bytes(index & 0xFF for index in range(size))
    out: list[bytes] = []
    write_body_frames(out, 3, memoryview(body), frame_max - 8)
    stream, taken = b"".join(out), b""
    while stream:
        kind, channel, length = struct.unpack_from(">BHI", stream)
        assert (kind, channel, stream[7 + length]) == (3, 3, 0xCE)
        assert 0 < length + 8 <= frame_max
        taken += stream[7 : 7 + length]
        stream = stream[8 + length :]
    assert taken == body


def test_a_method_with_content() -> None:
    out: list[bytes] = []
    write_content_frames(out, 1, b"METHOD", b"HEADER", b"abc", 10)
    assert b"".join(out) == (
        b"METHOD\x02\x00\x01\x00\x00\x00\x06HEADER\xce"
        b"\x03\x00\x01\x00\x00\x00\x02ab\xce\x03\x00\x01\x00\x00\x00\x01c\xce"
    )


def test_an_acknowledgement() -> None:
    assert encode_basic_ack(1, 7, True) == (
        b"\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x50\x00\x00\x00\x00\x00\x00\x00\x07\x01\xce"
    )
