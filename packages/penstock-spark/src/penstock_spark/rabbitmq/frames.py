"""Words of RabbitMQ's stream protocol: frames in and out, no sockets.

A frame is its size, a command, a version, and fields; a question carries a number that comes back
with the answer. Text is preceded by its length in two bytes, and lists by their count in four.
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
#: An answer has the command's number with this bit.
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


#: What the codes of answers say, as far as one who reads meets them.
REASONS: Final = {
    2: "there is no such stream",
    6: "the stream is not available",
    8: "authentication failed",
    12: "there is no such virtual host",
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
    """Which command a frame is, or answers."""
    return int.from_bytes(content[:2], "big") & ~_RESPONSE_BIT


def decode_response(content: bytes) -> tuple[int, int]:
    """The number of the question, and the code of the answer."""
    try:
        key, _, number, code = _RESPONSE.unpack_from(content)
    except error:
        raise FrameError(f"an answer of {len(content)} bytes is too short") from None
    if not key & _RESPONSE_BIT:
        raise FrameError(f"command 0x{key:04x} where an answer is due")
    return number, code


def decode_tune(content: bytes) -> tuple[int, int]:
    """The largest frame, and the seconds between heartbeats."""
    try:
        _, _, frame_max, heartbeat = _TUNE.unpack_from(content)
    except error:
        raise FrameError("a tune that is too short") from None
    return frame_max, heartbeat
