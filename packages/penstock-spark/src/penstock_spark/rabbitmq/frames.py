"""Frames of RabbitMQ's stream protocol, without I/O.

A frame is its size, a command, a version and fields; a request has a number that its response
repeats. Text has a length of two bytes, lists a count of four.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct, error
from typing import Final

from penstock.core.errors import FrameError

SIZE: Final = Struct(">I")
_PREFIX: Final = Struct(">IHH")
_RESPONSE: Final = Struct(">HHIH")
_TUNE: Final = Struct(">HHII")
#: Set in the command of a response.
_RESPONSE_BIT: Final = 0x8000
_VERSION: Final = 1
RESPONSE_OK: Final = 1


class StreamCommand(IntEnum):
    SUBSCRIBE = 0x0007
    DELIVER = 0x0008
    CREDIT = 0x0009
    PEER_PROPERTIES = 0x0011
    SASL_HANDSHAKE = 0x0012
    SASL_AUTHENTICATE = 0x0013
    TUNE = 0x0014
    OPEN = 0x0015
    CLOSE = 0x0016
    HEARTBEAT = 0x0017


REASONS: Final = {
    2: "no such stream",
    6: "the stream is not available",
    8: "authentication failed",
    12: "no such virtual host",
    16: "access refused",
    17: "precondition failed",
}


def encode_frame(command: StreamCommand, *fields: bytes) -> bytes:
    content = b"".join(fields)
    return _PREFIX.pack(len(content) + 4, command, _VERSION) + content


def encode_string(value: str) -> bytes:
    content = value.encode()
    return len(content).to_bytes(2, "big") + content


def encode_bytes(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def command_code(content: bytes) -> int:
    """The command of a request or of its response."""
    return int.from_bytes(content[:2], "big") & ~_RESPONSE_BIT


def decode_response(content: bytes) -> tuple[int, int]:
    """The number of the request, and the response code."""
    try:
        key, _, number, code = _RESPONSE.unpack_from(content)
    except error:
        raise FrameError(f"response of {len(content)} bytes is too short") from None
    if not key & _RESPONSE_BIT:
        raise FrameError(f"command 0x{key:04x} instead of a response")
    return number, code


def decode_tune(content: bytes) -> tuple[int, int]:
    """The largest frame, and the seconds between heartbeats."""
    try:
        _, _, frame_max, heartbeat = _TUNE.unpack_from(content)
    except error:
        raise FrameError("tune frame is too short") from None
    return frame_max, heartbeat
