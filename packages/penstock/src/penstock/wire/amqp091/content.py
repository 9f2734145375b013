"""Messages and methods out of a stream of bytes, for an asynchronous client.

A delivery whose frames have arrived together, as nearly all have, is cut out at once; one that
arrives in pieces, or in many frames, is assembled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from penstock.core.basic_properties import MIN_HEADER_BYTES, decode_route
from penstock.core.errors import FrameError, UnexpectedFrame
from penstock.wire.amqp091.frames import (
    BASIC_DELIVER_PREFIX,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEADER_STRUCT,
    FRAME_HEARTBEAT,
    FRAME_MAX,
    FRAME_METHOD,
    FRAME_OVERHEAD,
    invalid_frame,
)
from penstock.wire.amqp091.methods import (
    BASIC_ACK,
    BASIC_DELIVER,
    BASIC_GET_OK,
    BASIC_RETURN,
    METHODS,
    MethodArguments,
    ReceivedMethod,
    decode_method,
)

#: The delivery tag, and whether the message is redelivered.
_DELIVERY_TAG: Final = Struct(">QB")
#: A frame header, class and weight, and the size of the body.
_CONTENT_HEADER: Final = Struct(">BHIIQ")
#: A `basic.ack`: one for each confirm, so it is not left to the general codec.
_BASIC_ACK: Final = METHODS[BASIC_ACK]
_BASIC_ACK_PREFIX: Final = BASIC_ACK.to_bytes(4, "big")
_BASIC_ACK_BYTES: Final = 13


@dataclass(slots=True)
class AmqpContent:
    """A received message."""

    channel: int
    consumer: str
    tag: int
    redelivered: bool
    route: bytes  #: the exchange and the routing key, two short strings
    header: bytes
    body: bytes
    method: int = BASIC_DELIVER  #: the method that carried it, or BASIC_GET_OK or BASIC_RETURN

    @property
    def exchange(self) -> str:
        return decode_route(self.route)[0]

    @property
    def key(self) -> str:
        return decode_route(self.route)[1]


class ContentReader:
    __slots__ = ("_partial", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._partial: dict[int, _PartialContent] = {}  # by channel

    def feed(self, data: bytes) -> Iterator[AmqpContent | tuple[int, ReceivedMethod]]:
        """Complete messages, and methods with their channels, in the order of arrival."""
        if self._rest:
            data = self._rest + data
        pos, end = 0, len(data)
        unpack = FRAME_HEADER_STRUCT.unpack_from
        while end - pos >= FRAME_OVERHEAD:
            kind, channel, size = unpack(data, pos)
            if kind > FRAME_HEARTBEAT or size > FRAME_MAX:
                raise invalid_frame(data, pos)
            start, stop = pos + 7, pos + 7 + size
            if stop >= end:
                break
            if data[stop] != FRAME_END:
                raise invalid_frame(data, pos)
            pos = stop + 1
            if kind == FRAME_METHOD:
                if self._partial and channel in self._partial:
                    raise UnexpectedFrame(
                        f"method frame on channel {channel} before the end of a message"
                    )
                if data.startswith(BASIC_DELIVER_PREFIX, start):
                    content = _read_basic_deliver(data, start, stop, channel)
                    if whole := _read_whole_content(content, data, pos):
                        pos = whole
                        yield content
                    else:
                        self._partial[channel] = _PartialContent(content)
                elif size == _BASIC_ACK_BYTES and data.startswith(_BASIC_ACK_PREFIX, start):
                    tag, multiple = _DELIVERY_TAG.unpack_from(data, start + 4)
                    arguments = MethodArguments(delivery_tag=tag, multiple=multiple & 1 == 1)
                    yield channel, ReceivedMethod(_BASIC_ACK, arguments)
                elif (method := self._method(channel, data[start:stop])) is not None:
                    yield channel, method
            elif kind in (FRAME_HEADER, FRAME_BODY):
                completed = self._content(kind, channel, data[start:stop])
                if completed is not None:
                    yield completed
        self._rest = data[pos:]

    def _method(self, channel: int, payload: bytes) -> ReceivedMethod | None:
        """The method, unless it begins a message."""
        method = decode_method(payload)
        if method.id == BASIC_GET_OK:
            tag, redelivered = method.arguments.delivery_tag, method.arguments.redelivered
            route = payload[13:-4]
            content = AmqpContent(channel, "", tag, redelivered, route, b"", b"", BASIC_GET_OK)
        elif method.id == BASIC_RETURN:
            route = payload[7 + payload[6] :]
            content = AmqpContent(channel, "", 0, False, route, b"", b"", BASIC_RETURN)
        else:
            return method
        self._partial[channel] = _PartialContent(content)
        return None

    def _content(self, kind: int, channel: int, payload: bytes) -> AmqpContent | None:
        """Add a frame to a message; returns the message if it is complete."""
        partial = self._partial.get(channel)
        if partial is None or (kind == FRAME_HEADER) == bool(partial.content.header):
            raise UnexpectedFrame(f"frame of type {kind} on channel {channel} outside a message")
        content = partial.content
        if kind == FRAME_HEADER:
            if len(payload) < MIN_HEADER_BYTES:
                raise FrameError(f"content header of {len(payload)} bytes is too short")
            content.header = payload
            partial.missing = int.from_bytes(payload[4:12], "big")
        else:
            partial.missing -= len(payload)
            partial.pieces.append(payload)
        if partial.missing > 0:
            return None
        if partial.missing:
            raise UnexpectedFrame("body exceeds the size in its content header")
        del self._partial[channel]
        content.body = b"".join(partial.pieces)
        return content


class _PartialContent:
    __slots__ = ("content", "missing", "pieces")

    def __init__(self, content: AmqpContent) -> None:
        self.content = content
        self.missing = 0  # bytes of the body to come
        self.pieces: list[bytes] = []


def _read_basic_deliver(data: bytes, start: int, stop: int, channel: int) -> AmqpContent:
    at = start + 5 + data[start + 4]
    if at + 9 > stop:
        raise FrameError(f"invalid basic.deliver: {data[start:stop].hex(' ')}")
    tag, redelivered = _DELIVERY_TAG.unpack_from(data, at)
    consumer = data[start + 5 : at].decode("utf-8", "surrogateescape")
    return AmqpContent(channel, consumer, tag, bool(redelivered), data[at + 9 : stop], b"", b"")


def _read_whole_content(content: AmqpContent, data: bytes, at: int) -> int:
    """Read the header and a body of at most one frame if they are complete.

    Returns the position after them, or 0.
    """
    if len(data) - at < FRAME_OVERHEAD + MIN_HEADER_BYTES:
        return 0
    kind, channel, size, _, length = _CONTENT_HEADER.unpack_from(data, at)
    stop: int = at + 7 + size
    last: int = stop + FRAME_OVERHEAD + length if length else stop
    if (
        last >= len(data)
        or kind != FRAME_HEADER
        or channel != content.channel
        or size < MIN_HEADER_BYTES
        or data[stop] != FRAME_END
    ):
        return 0
    if length:
        if (
            FRAME_HEADER_STRUCT.unpack_from(data, stop + 1) != (FRAME_BODY, channel, length)
            or data[last] != FRAME_END
        ):
            return 0
        content.body = data[stop + FRAME_OVERHEAD : last]
    content.header = data[at + 7 : stop]
    return last + 1
