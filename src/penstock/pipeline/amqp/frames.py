"""Frames of AMQP 0-9-1: bytes in, frames out, and back.

`Frames` cuts a stream of bytes into whole frames, whatever pieces it comes in. Methods are turned
into values by `pamqp`, and only when somebody wants to see one.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from pamqp import commands
from pamqp.base import Frame as Method
from pamqp.exceptions import UnmarshalingException

from penstock.core.errors import FrameError

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
END: Final = 0xCE

#: The frame's type, its channel, the size of its payload; an end octet follows that.
PREFIX: Final = Struct(">BHI")
_INDEX: Final = Struct(">I")

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"


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
        while end - pos > 7:
            kind, channel, size = PREFIX.unpack_from(data, pos)
            stop = pos + 7 + size
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
    return FrameError(f"a frame without its end: {data[pos : pos + 8].hex(' ')} …")


def method(channel: int, value: Method) -> bytes:
    """The frame of a method."""
    payload = _INDEX.pack(value.index) + value.marshal()
    return PREFIX.pack(METHOD, channel, len(payload)) + payload + b"\xce"


def read_method(payload: bytes) -> Method:
    """The method in a method frame."""
    found = commands.INDEX_MAPPING.get(_INDEX.unpack_from(payload)[0])
    if found is None:
        raise FrameError(f"an unknown method: {payload[:4].hex()}")
    value: Method = found()
    try:
        value.unmarshal(payload[4:])
    except (UnmarshalingException, ValueError) as error:
        raise FrameError(f"a {value.name} that cannot be read: {error}") from None
    return value
