"""Frames of AMQP 1.0, without I/O.

`Amqp10FrameReader.feed` takes the bytes of one socket read and calls an `Amqp10FrameHandler` for
each protocol header and frame. It guarantees that frames are complete, within the negotiated size,
and that their bodies begin inside them. Bodies are not copied: the handler gets their positions.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Protocol

from penstock.wire.amqp10.errors import FRAMING_ERROR, ConnectionFault

#: Size, offset of the body in words of four bytes, type and channel.
FRAME_HEADER_SIZE: Final = 8

#: Every peer accepts frames of this size.
MIN_MAX_FRAME_SIZE: Final = 512

AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"

HEARTBEAT_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"

_unpack_frame_header = Struct(">IBBH").unpack_from
_pack_frame_header = Struct(">IBBH").pack


class Amqp10FrameHandler(Protocol):
    def on_header(self, header: bytes) -> None:
        """Called with eight bytes."""

    def on_frame(self, kind: int, channel: int, data: bytes, at: int, stop: int) -> None:
        """Called for a frame with the body `data[at:stop]`, empty for a heartbeat."""


class Amqp10FrameReader:
    __slots__ = ("_sink", "_tail", "awaits_header", "frame_max", "held")

    def __init__(self, sink: Amqp10FrameHandler, frame_max: int) -> None:
        self._sink = sink
        self._tail = b""
        self.frame_max = frame_max
        self.awaits_header = True  #: the next bytes are a protocol header
        self.held = False  #: while set, received bytes are buffered and not read

    @property
    def waiting(self) -> int:
        """The number of buffered bytes."""
        return len(self._tail)

    def feed(self, data: bytes) -> None:
        """Read the frames that are complete now."""
        if self._tail:
            data = self._tail + data
            self._tail = b""
        at = 0
        end = len(data)
        on_frame = self._sink.on_frame
        try:
            while end - at >= FRAME_HEADER_SIZE and not self.held:
                if self.awaits_header:
                    header = data[at : at + 8]
                    at += 8
                    self.awaits_header = False
                    self._sink.on_header(header)
                    continue
                size, words, kind, channel = _unpack_frame_header(data, at)
                if size < FRAME_HEADER_SIZE or size > self.frame_max:
                    raise _wrong_size(size, self.frame_max)
                body = words << 2
                if body < FRAME_HEADER_SIZE or body > size:
                    raise ConnectionFault(
                        FRAMING_ERROR, f"frame of {size} bytes with a body offset of {body}"
                    )
                stop = at + size
                if stop > end:
                    break
                body += at
                at = stop
                on_frame(kind, channel, data, body, stop)
        finally:
            if at < end:
                self._tail = data[at:] if at else data


def _wrong_size(size: int, most: int) -> ConnectionFault:
    if size < FRAME_HEADER_SIZE:
        return ConnectionFault(FRAMING_ERROR, f"invalid frame size {size}")
    return ConnectionFault(FRAMING_ERROR, f"frame of {size} bytes exceeds the maximum of {most}")


def encode_frame(channel: int, body: bytes, kind: int = AMQP_FRAME) -> bytes:
    return _pack_frame_header(len(body) + FRAME_HEADER_SIZE, 2, kind, channel) + body
