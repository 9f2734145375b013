"""Frames of AMQP 0-9-1: cut out of a stream of bytes, whatever pieces it comes in, and written.

Methods are turned into values by `pamqp`, and only when somebody wants to see one; publishes and
acknowledgements are written as bytes.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from pamqp import commands
from pamqp.base import Frame as Method
from pamqp.exceptions import PAMQPException

from penstock.core.errors import FrameError, WireSyntaxError

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
END: Final = 0xCE

#: The frame's type, its channel, the size of its payload; an end octet follows that.
PREFIX: Final = Struct(">BHI")
#: What a frame has beside its payload.
FRAME_BYTES: Final = 8
#: The largest frame a client of ours agrees to.
FRAME_MAX: Final = 128 << 10

GREETING: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

_INDEX: Final = Struct(">I")
_PUBLISH: Final = b"\x00\x3c\x00\x28\x00\x00"
#: The end of a frame, and the prefix of the next.
_FOLLOW: Final = Struct(">BBHI")
_ACK: Final = Struct(">BHIIQBB")
_ACK_METHOD: Final = 0x003C0050


class Frame(NamedTuple):
    kind: int
    channel: int
    payload: bytes


class Frames:
    """What has come of a stream, as far as it has not been handed out."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are whole now."""
        if self._rest:
            data = self._rest + data
        found: list[Frame] = []
        pos, end = 0, len(data)
        while end - pos >= FRAME_BYTES:
            kind, channel, size = PREFIX.unpack_from(data, pos)
            stop = pos + 7 + size
            if kind > HEARTBEAT or size > FRAME_MAX:
                raise not_framed(data, pos)
            if stop >= end:
                break
            if data[stop] != END:
                raise not_framed(data, pos)
            found.append(Frame(kind, channel, data[pos + 7 : stop]))
            pos = stop + 1
        self._rest = data[pos:]
        return found

    def take(self) -> bytes:
        """What is not a whole frame yet, to be gone on with by another reader."""
        rest, self._rest = self._rest, b""
        return rest


def not_framed(data: bytes, pos: int) -> FrameError:
    if data.startswith(b"AMQP"):
        return FrameError("what listens there does not speak AMQP 0-9-1")
    return FrameError(f"this is no frame, or one without its end: {data[pos : pos + 8].hex(' ')} …")


def read_method(payload: bytes) -> Method:
    """The method in a method frame."""
    try:
        found = commands.INDEX_MAPPING.get(_INDEX.unpack_from(payload)[0])
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


def write_method(channel: int, value: Method) -> bytes:
    """The frame of a method."""
    payload = _INDEX.pack(value.index) + value.marshal()
    return PREFIX.pack(METHOD, channel, len(payload)) + payload + b"\xce"


def write_publish(
    channel: int,
    route: bytes,
    header: bytes,
    body: bytes,
    frame_max: int,
    *,
    mandatory: bool = False,
) -> bytes:
    """All frames of a publish; `route` is the exchange and the routing key, two short strings."""
    most = frame_max - FRAME_BYTES
    if len(header) > most:
        raise WireSyntaxError(
            f"properties of {len(header)} bytes do not fit into a frame of {frame_max}"
        )
    size = len(body)
    follow = _FOLLOW.pack
    parts = [
        PREFIX.pack(METHOD, channel, len(route) + 7),
        _PUBLISH,
        route,
        b"\x01" if mandatory else b"\x00",
        follow(END, HEADER, channel, len(header)),
        header,
    ]
    if 0 < size <= most:
        parts += (follow(END, BODY, channel, size), body)
    else:
        for start in range(0, size, most):
            piece = body[start : start + most]
            parts += (follow(END, BODY, channel, len(piece)), piece)
    parts.append(b"\xce")
    return b"".join(parts)


def write_ack(channel: int, tag: int, *, multiple: bool = False) -> bytes:
    return _ACK.pack(METHOD, channel, 13, _ACK_METHOD, tag, multiple, END)
