"""Whole messages, and the methods between them, out of a stream of bytes.

A delivery whose frames have come together, as nearly all have, is cut out in one go; one that comes
in pieces, or in many frames, is put together. Bytes in, values out; what they mean is the reader's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from pamqp import commands
from pamqp.base import Frame as Method
from pamqp.exceptions import PAMQPException

from penstock.core.basic_properties import MIN_HEADER_BYTES, decode_route
from penstock.core.errors import FrameError, UnexpectedFrame, WireSyntaxError

#: Tag and whether it is handed out again.
_DELIVERY_TAG: Final = Struct(">QB")
#: A frame's prefix, class and weight, and the size of the body.
_CONTENT_HEADER: Final = Struct(">BHIIQ")
_BASIC_DELIVER: Final = b"\x00\x3c\x00\x3c"


@dataclass(slots=True)
class AmqpContent:
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


class ContentReader:
    """What has come of a stream of bytes, and of messages whose frames have not all come."""

    __slots__ = ("_begun", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._begun: dict[int, _PartialContent] = {}  # by channel

    def feed(self, data: bytes) -> Iterator[AmqpContent | tuple[int, Method]]:
        """Whole messages, and methods with their channels, in the order in which they came."""
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
                if self._begun and channel in self._begun:
                    raise UnexpectedFrame("a method in the middle of a message")
                if data.startswith(_BASIC_DELIVER, start):
                    content = _read_basic_deliver(data, start, stop, channel)
                    if whole := _read_whole_content(content, data, pos):
                        pos = whole
                        yield content
                    else:
                        self._begun[channel] = _PartialContent(content)
                elif (method := self._method(channel, data[start:stop])) is not None:
                    yield channel, method
            elif kind in (FRAME_HEADER, FRAME_BODY):
                begun = self._content(kind, channel, data[start:stop])
                if begun is not None:
                    yield begun
        self._rest = data[pos:]

    def _method(self, channel: int, payload: bytes) -> Method | None:
        """The method, unless it begins a message."""
        method = decode_pamqp_method(payload)
        if isinstance(method, commands.Basic.GetOk):
            tag, again = method.delivery_tag or 0, bool(method.redelivered)
            content = AmqpContent(channel, "", tag, again, payload[13:-4], b"", b"", method)
        elif isinstance(method, commands.Basic.Return):
            route = payload[7 + payload[6] :]
            content = AmqpContent(channel, "", 0, False, route, b"", b"", method)
        else:
            return method
        self._begun[channel] = _PartialContent(content)
        return None

    def _content(self, kind: int, channel: int, payload: bytes) -> AmqpContent | None:
        """Go on with a message; it, if that was its last frame."""
        begun = self._begun.get(channel)
        if begun is None or (kind == FRAME_HEADER) == bool(begun.content.header):
            raise UnexpectedFrame(f"a frame of kind {kind} that belongs to no message")
        content = begun.content
        if kind == FRAME_HEADER:
            if len(payload) < MIN_HEADER_BYTES:
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


class _PartialContent:
    __slots__ = ("content", "missing", "pieces")

    def __init__(self, content: AmqpContent) -> None:
        self.content = content
        self.missing = 0  # bytes of the body
        self.pieces: list[bytes] = []


def _read_basic_deliver(data: bytes, start: int, stop: int, channel: int) -> AmqpContent:
    """A message of which only the method is known."""
    at = start + 5 + data[start + 4]
    if at + 9 > stop:
        raise FrameError(f"a delivery that cannot be read: {data[start:stop].hex(' ')}")
    tag, again = _DELIVERY_TAG.unpack_from(data, at)
    consumer = data[start + 5 : at].decode("utf-8", "surrogateescape")
    return AmqpContent(channel, consumer, tag, bool(again), data[at + 9 : stop], b"", b"")


def _read_whole_content(content: AmqpContent, data: bytes, at: int) -> int:
    """Take the header and a body of one frame at most, if they are there; where they end, or 0."""
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


# Frames of AMQP 0-9-1: cut out of a stream of bytes, whatever pieces it comes in, and written.
#
# Methods are turned into values by `pamqp`, and only when somebody wants to see one; publishes and
# acknowledgements are written as bytes.

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE

#: The frame's type, its channel, the size of its payload; an end octet follows that.
FRAME_HEADER_STRUCT: Final = Struct(">BHI")
#: What a frame has beside its payload.
FRAME_OVERHEAD: Final = 8
#: The largest frame a client of ours agrees to.
FRAME_MAX: Final = 128 << 10

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

_METHOD_ID: Final = Struct(">I")
_BASIC_PUBLISH: Final = b"\x00\x3c\x00\x28\x00\x00"
#: The end of a frame, and the prefix of the next.
_END_AND_FRAME_HEADER: Final = Struct(">BBHI")
_BASIC_ACK: Final = Struct(">BHIIQBB")
_BASIC_ACK_ID: Final = 0x003C0050


class AmqpFrame(NamedTuple):
    kind: int
    channel: int
    payload: bytes


class FrameSplitter:
    """What has come of a stream, as far as it has not been handed out."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[AmqpFrame]:
        """The frames that are whole now."""
        if self._rest:
            data = self._rest + data
        found: list[AmqpFrame] = []
        pos, end = 0, len(data)
        while end - pos >= FRAME_OVERHEAD:
            kind, channel, size = FRAME_HEADER_STRUCT.unpack_from(data, pos)
            stop = pos + 7 + size
            if kind > FRAME_HEARTBEAT or size > FRAME_MAX:
                raise invalid_frame(data, pos)
            if stop >= end:
                break
            if data[stop] != FRAME_END:
                raise invalid_frame(data, pos)
            found.append(AmqpFrame(kind, channel, data[pos + 7 : stop]))
            pos = stop + 1
        self._rest = data[pos:]
        return found

    def take(self) -> bytes:
        """What is not a whole frame yet, to be gone on with by another reader."""
        rest, self._rest = self._rest, b""
        return rest


def invalid_frame(data: bytes, pos: int) -> FrameError:
    if data.startswith(b"AMQP"):
        return FrameError("what listens there does not speak AMQP 0-9-1")
    return FrameError(f"this is no frame, or one without its end: {data[pos : pos + 8].hex(' ')} …")


def decode_pamqp_method(payload: bytes) -> Method:
    """The method in a method frame."""
    try:
        found = commands.INDEX_MAPPING.get(_METHOD_ID.unpack_from(payload)[0])
        if found is None:
            raise FrameError(f"an unknown method: {payload[:4].hex()}")
        value: Method = found()
        value.unmarshal(payload[4:])
    except (
        PAMQPException,
        StructError,
        *(ValueError, TypeError, IndexError, OverflowError, RecursionError),
    ) as error:
        raise FrameError(f"a method that cannot be read: {payload[:4].hex()}: {error}") from None
    return value


def encode_pamqp_method(channel: int, value: Method) -> bytes:
    """The frame of a method."""
    payload = _METHOD_ID.pack(value.index) + value.marshal()
    return FRAME_HEADER_STRUCT.pack(FRAME_METHOD, channel, len(payload)) + payload + b"\xce"


def encode_basic_publish(
    channel: int,
    route: bytes,
    header: bytes,
    body: bytes,
    frame_max: int,
    *,
    mandatory: bool = False,
) -> bytes:
    """All frames of a publish; `route` is the exchange and the routing key, two short strings."""
    most = frame_max - FRAME_OVERHEAD
    if len(header) > most:
        raise WireSyntaxError(
            f"properties of {len(header)} bytes do not fit into a frame of {frame_max}"
        )
    size = len(body)
    follow = _END_AND_FRAME_HEADER.pack
    parts = [
        FRAME_HEADER_STRUCT.pack(FRAME_METHOD, channel, len(route) + 7),
        _BASIC_PUBLISH,
        route,
        b"\x01" if mandatory else b"\x00",
        follow(FRAME_END, FRAME_HEADER, channel, len(header)),
        header,
    ]
    if 0 < size <= most:
        parts += (follow(FRAME_END, FRAME_BODY, channel, size), body)
    else:
        for start in range(0, size, most):
            piece = body[start : start + most]
            parts += (follow(FRAME_END, FRAME_BODY, channel, len(piece)), piece)
    parts.append(b"\xce")
    return b"".join(parts)


def encode_client_ack(channel: int, tag: int, *, multiple: bool = False) -> bytes:
    return _BASIC_ACK.pack(FRAME_METHOD, channel, 13, _BASIC_ACK_ID, tag, multiple, FRAME_END)
