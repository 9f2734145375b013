"""Frames of AMQP 0-9-1: the hot path, bytes in and bytes out, no sockets.

`FrameReader.feed` takes what a read brought and calls a `Amqp091FrameHandler` for each thing it
holds. A publish whose content has arrived with it, as nearly all have, is cut out in one go: three
slices and no objects between. Acknowledgements go the short way too; every other method comes as
its payload, for `methods.py` to read. What it promises: frames are whole, within the negotiated
size, and end as they should. Whether they come in the right order is the sink's to judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final, Protocol

from penstock.core.errors import FrameError, UnexpectedFrame

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE

#: A frame's size beside its payload.
FRAME_OVERHEAD: Final = 8
#: No peer may ask for smaller frames than this.
FRAME_MIN_SIZE: Final = 4096

BASIC_PUBLISH: Final = 60 << 16 | 40
BASIC_ACK: Final = 60 << 16 | 80

HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

_unpack_frame_header = Struct(">BHI").unpack_from
_unpack_method_id = Struct(">I").unpack_from
_unpack_content_header = Struct(">BHIHHQ").unpack_from
_unpack_ack = Struct(">QB").unpack_from

_pack_frame_header = Struct(">BHI").pack
_pack_end_and_frame_header = Struct(">BBHI").pack
_pack_tag = Struct(">QB").pack
_pack_ack = Struct(">BHIIQBB").pack


class FastPathChannel(Protocol):
    """A channel, as far as the short way concerns it."""

    #: Whether a publish may take the short way: the channel is open and between messages.
    is_idle: bool
    #: Whether a large body is on its way in, which is wanted as it comes.
    streaming_body: bool

    def publish(self, route: bytes, bits: int, header: bytes, body: bytes) -> None: ...

    def ack(self, tag: int, multiple: bool) -> None: ...


class Amqp091FrameHandler(Protocol):
    def on_method(self, channel: int, payload: bytes) -> None: ...

    def on_header(self, channel: int, payload: bytes) -> None: ...

    def on_body(self, channel: int, payload: bytes | memoryview) -> None: ...

    def on_error(self, channel: int, method: int, error: Exception) -> None:
        """Something above went wrong; raises if reading cannot go on."""


class Amqp091FrameReader:
    __slots__ = ("_channels", "_left", "_number", "_sink", "_tail", "frame_max", "held")

    def __init__(
        self, sink: Amqp091FrameHandler, frame_max: int, channels: Mapping[int, FastPathChannel]
    ) -> None:
        self._sink = sink
        self._tail = b""
        self._left = 0  # of a body frame that is handed on as it comes, with its end
        self._number = 0  # and its channel
        self.frame_max = frame_max
        self._channels = channels
        #: While set, what arrives is kept and not looked at.
        self.held = False

    @property
    def waiting(self) -> int:
        """How many bytes wait for the rest of their frame."""
        return len(self._tail)

    def feed(self, data: bytes) -> None:
        """Everything complete in `data`, and in what was left over before."""
        if self._tail:
            data = self._tail + data
            self._tail = b""
        pos = self._resume(data) if self._left else 0
        end = len(data)
        limit = self.frame_max  # of a payload: clients do not agree on what it covers
        channels = self._channels
        while end - pos >= FRAME_OVERHEAD - 1 and not self.held:
            kind, number, size = _unpack_frame_header(data, pos)
            if size > limit:
                raise FrameError(f"type {kind}, frame too large: {size} bytes, at most {limit}")
            after = pos + size + FRAME_OVERHEAD
            if after > end:
                if (
                    kind == FRAME_BODY
                    and (channel := channels.get(number))
                    and channel.streaming_body
                ):
                    pos = self._begin(number, data, pos + 7, after)
                break
            if data[after - 1] != FRAME_END:
                raise FrameError(f"type {kind}, invalid frame end marker {data[after - 1]:#x}")
            method = 0
            try:
                if kind == FRAME_METHOD and size >= 4:
                    method = _unpack_method_id(data, pos + 7)[0]
                    if method == BASIC_PUBLISH:
                        channel = channels.get(number)
                        if channel is not None and channel.is_idle and end - after >= 22:
                            # The short way: header and body are here, in one frame each.
                            kind2, number2, size2, group, _, length = _unpack_content_header(
                                data, after
                            )
                            stop = after + size2 + FRAME_OVERHEAD
                            last = stop + length + FRAME_OVERHEAD if length else stop
                            if (
                                last <= end
                                and kind2 == FRAME_HEADER
                                and number2 == number
                                and group == 60
                                and size2 <= limit
                                and data[stop - 1] == FRAME_END
                                and (
                                    not length
                                    or (
                                        _unpack_frame_header(data, stop)
                                        == (FRAME_BODY, number, length)
                                        and length <= limit
                                        and data[last - 1] == FRAME_END
                                    )
                                )
                            ):
                                start = pos + 13
                                pos = last
                                channel.publish(
                                    data[start : after - 2],
                                    data[after - 2],
                                    data[after + 7 : stop - 1],
                                    data[stop + 7 : last - 1] if length else b"",
                                )
                                continue
                    elif method == BASIC_ACK and size == 13:
                        channel = channels.get(number)
                        if channel is not None and channel.is_idle:
                            tag, multiple = _unpack_ack(data, pos + 11)
                            pos = after
                            channel.ack(tag, multiple & 1 == 1)
                            continue
                payload = data[pos + 7 : after - 1]
                pos = after
                self._dispatch(kind, number, payload)
            except Exception as error:
                pos = max(pos, after)
                self._sink.on_error(number, method, error)
        if pos < end:
            self._tail = data[pos:] if pos else data

    # The body of a large message is handed on as it comes, and not gathered into whole frames.

    def _begin(self, number: int, data: bytes, start: int, after: int) -> int:
        """The beginning of a body frame; returns how far it reaches."""
        self._number = number
        self._left = after - len(data)
        self._pour(data, start, min(len(data), after - 1))
        return len(data)

    def _resume(self, data: bytes) -> int:
        """More of a body frame that has begun; returns how far it reaches."""
        if self.held:
            return 0
        stop = min(self._left - 1, len(data))
        self._left -= stop
        self._pour(data, 0, stop)
        if self._left > 1 or stop == len(data) or self.held:
            return stop
        if data[stop] != FRAME_END:
            raise FrameError(f"type {FRAME_BODY}, invalid frame end marker {data[stop]:#x}")
        self._left = 0
        return stop + 1

    def _pour(self, data: bytes, start: int, stop: int) -> None:
        if start >= stop:
            return
        try:
            self._sink.on_body(self._number, memoryview(data)[start:stop])
        except Exception as error:
            self._sink.on_error(self._number, 0, error)

    def _dispatch(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == FRAME_METHOD and len(payload) >= 4:
            self._sink.on_method(channel, payload)
        elif kind == FRAME_HEADER:
            self._sink.on_header(channel, payload)
        elif kind == FRAME_BODY:
            self._sink.on_body(channel, payload)
        elif kind != FRAME_HEARTBEAT or payload:
            raise FrameError(f"type {kind}, {len(payload)} octets: unknown frame")
        elif channel:
            raise UnexpectedFrame("heartbeat on a channel other than 0")


class BasicDeliverWriter:
    """Writes `basic.deliver` with its content for one consumer, piece by piece into a list."""

    __slots__ = ("_body_max", "_channel", "_head", "_prefixes")

    def __init__(self, channel: int, consumer_tag: bytes, frame_max: int) -> None:
        self._channel = channel
        self._head = b"\x00\x3c\x00\x3c" + bytes((len(consumer_tag),)) + consumer_tag
        self._body_max = frame_max - FRAME_OVERHEAD
        #: The start of the method frame, by the length of the route.
        self._prefixes: dict[int, bytes] = {}

    def write(
        self, out: list[bytes], tag: int, again: bool, route: bytes, header: bytes, body: bytes
    ) -> None:
        length = len(route)
        prefix = self._prefixes.get(length)
        if prefix is None:
            prefix = (
                _pack_frame_header(FRAME_METHOD, self._channel, len(self._head) + 9 + length)
                + self._head
            )
            self._prefixes[length] = prefix
        number = self._channel
        size = len(body)
        if 0 < size <= self._body_max:
            out += (
                prefix,
                _pack_tag(tag, again),
                route,
                _pack_end_and_frame_header(FRAME_END, FRAME_HEADER, number, len(header)),
                header,
                _pack_end_and_frame_header(FRAME_END, FRAME_BODY, number, size),
                body,
                b"\xce",
            )
        else:
            out += (
                prefix,
                _pack_tag(tag, again),
                route,
                _pack_end_and_frame_header(FRAME_END, FRAME_HEADER, number, len(header)),
                header,
                b"\xce",
            )
            write_body_frames(out, number, memoryview(body), self._body_max)


def write_content_frames(
    out: list[bytes], channel: int, method: bytes, header: bytes, body: bytes, frame_max: int
) -> None:
    """A method that carries content: `basic.return`, `basic.get-ok`."""
    out += (method, _pack_frame_header(FRAME_HEADER, channel, len(header)), header, b"\xce")
    write_body_frames(out, channel, memoryview(body), frame_max - FRAME_OVERHEAD)


def write_body_frames(out: list[bytes], channel: int, body: memoryview, body_max: int) -> None:
    """Body frames, as many as it takes."""
    for at in range(0, len(body), body_max):
        piece = body[at : at + body_max]
        out += (_pack_frame_header(FRAME_BODY, channel, len(piece)), piece, b"\xce")  # type: ignore[arg-type]


def encode_basic_ack(channel: int, tag: int, multiple: bool) -> bytes:
    return _pack_ack(FRAME_METHOD, channel, 13, BASIC_ACK, tag, multiple, FRAME_END)
