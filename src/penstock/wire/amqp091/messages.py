"""Whole messages, and the methods between them, out of a stream of bytes.

A delivery whose frames have come together, as nearly all have, is cut out in one go; one that comes
in pieces, or in many frames, is put together. Bytes in, values out; what they mean is the reader's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from pamqp import commands
from pamqp.base import Frame as Method

from penstock.core.errors import FrameError, UnexpectedFrame
from penstock.core.properties import SHORTEST, decode_route
from penstock.wire.amqp091.frames import (
    BODY,
    END,
    FRAME_BYTES,
    FRAME_MAX,
    HEADER,
    HEARTBEAT,
    METHOD,
    PREFIX,
    not_framed,
    read_method,
)

#: Tag and whether it is handed out again.
_TAG: Final = Struct(">QB")
#: A frame's prefix, class and weight, and the size of the body.
_CONTENT: Final = Struct(">BHIIQ")
_DELIVER: Final = b"\x00\x3c\x00\x3c"


@dataclass(slots=True)
class Content:
    """A message as it came; `method` is what brought it if it was asked for or came back."""

    channel: int
    consumer: str
    tag: int
    redelivered: bool
    route: bytes  #: the exchange and the routing key, two short strings
    header: bytes
    body: bytes
    method: Method | None = None

    @property
    def exchange(self) -> str:
        return decode_route(self.route)[0]

    @property
    def key(self) -> str:
        return decode_route(self.route)[1]


class Messages:
    """What has come of a stream of bytes, and of messages whose frames have not all come."""

    __slots__ = ("_begun", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._begun: dict[int, _Begun] = {}  # by channel

    def feed(self, data: bytes) -> Iterator[Content | tuple[int, Method]]:
        """Whole messages, and methods with their channels, in the order in which they came."""
        if self._rest:
            data = self._rest + data
        pos, end = 0, len(data)
        unpack = PREFIX.unpack_from
        while end - pos >= FRAME_BYTES:
            kind, channel, size = unpack(data, pos)
            if kind > HEARTBEAT or size > FRAME_MAX:
                raise not_framed(data, pos)
            start, stop = pos + 7, pos + 7 + size
            if stop >= end:
                break
            if data[stop] != END:
                raise not_framed(data, pos)
            pos = stop + 1
            if kind == METHOD:
                if self._begun and channel in self._begun:
                    raise UnexpectedFrame("a method in the middle of a message")
                if data.startswith(_DELIVER, start):
                    content = _deliver(data, start, stop, channel)
                    if whole := _short_way(content, data, pos):
                        pos = whole
                        yield content
                    else:
                        self._begun[channel] = _Begun(content)
                elif (method := self._method(channel, data[start:stop])) is not None:
                    yield channel, method
            elif kind in (HEADER, BODY):
                begun = self._content(kind, channel, data[start:stop])
                if begun is not None:
                    yield begun
        self._rest = data[pos:]

    def _method(self, channel: int, payload: bytes) -> Method | None:
        """The method, unless it begins a message."""
        method = read_method(payload)
        if isinstance(method, commands.Basic.GetOk):
            tag, again = method.delivery_tag or 0, bool(method.redelivered)
            content = Content(channel, "", tag, again, payload[13:-4], b"", b"", method)
        elif isinstance(method, commands.Basic.Return):
            route = payload[7 + payload[6] :]
            content = Content(channel, "", 0, False, route, b"", b"", method)
        else:
            return method
        self._begun[channel] = _Begun(content)
        return None

    def _content(self, kind: int, channel: int, payload: bytes) -> Content | None:
        """Go on with a message; it, if that was its last frame."""
        begun = self._begun.get(channel)
        if begun is None or (kind == HEADER) == bool(begun.content.header):
            raise UnexpectedFrame(f"a frame of kind {kind} that belongs to no message")
        content = begun.content
        if kind == HEADER:
            if len(payload) < SHORTEST:
                raise FrameError(f"a content header of {len(payload)} bytes")
            content.header = payload
            begun.missing = int.from_bytes(payload[4:12], "big")
        else:
            begun.missing -= len(payload)
            begun.pieces.append(payload)
        if begun.missing > 0:
            return None
        if begun.missing:
            raise UnexpectedFrame("a message longer than it was said to be")
        del self._begun[channel]
        content.body = b"".join(begun.pieces)
        return content


class _Begun:
    __slots__ = ("content", "missing", "pieces")

    def __init__(self, content: Content) -> None:
        self.content = content
        self.missing = 0  # bytes of the body
        self.pieces: list[bytes] = []


def _deliver(data: bytes, start: int, stop: int, channel: int) -> Content:
    """A message of which only the method is known."""
    at = start + 5 + data[start + 4]
    if at + 9 > stop:
        raise FrameError(f"a delivery that cannot be read: {data[start:stop].hex(' ')}")
    tag, again = _TAG.unpack_from(data, at)
    consumer = data[start + 5 : at].decode("utf-8", "surrogateescape")
    return Content(channel, consumer, tag, bool(again), data[at + 9 : stop], b"", b"")


def _short_way(content: Content, data: bytes, at: int) -> int:
    """Take the header and a body of one frame at most, if they are there; where they end, or 0."""
    if len(data) - at < FRAME_BYTES + SHORTEST:
        return 0
    kind, channel, size, _, length = _CONTENT.unpack_from(data, at)
    stop: int = at + 7 + size
    last: int = stop + FRAME_BYTES + length if length else stop
    if (
        last >= len(data)
        or kind != HEADER
        or channel != content.channel
        or size < SHORTEST
        or data[stop] != END
    ):
        return 0
    if length:
        if PREFIX.unpack_from(data, stop + 1) != (BODY, channel, length) or data[last] != END:
            return 0
        content.body = data[stop + FRAME_BYTES : last]
    content.header = data[at + 7 : stop]
    return last + 1
