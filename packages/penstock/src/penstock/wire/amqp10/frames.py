"""Frames of AMQP 1.0: bytes in and bytes out, no sockets.

`FrameReader.feed` takes what a read brought and calls a `Amqp10FrameHandler` for each protocol
header and each frame it holds. What it promises: headers are eight bytes, frames are whole, within
the agreed size, and their bodies begin inside them. What the bodies say is for `performatives.py`
to read, where they lie: nothing is copied here.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Protocol

from penstock.wire.amqp10.errors import FRAMING_ERROR, ConnectionFault

#: A frame's fixed header: its size, where its body begins in words of four bytes, its type, and
#: the channel it belongs to.
FRAME_HEADER_SIZE: Final = 8

#: Every peer takes frames of this size, whatever it says of larger ones.
MIN_MAX_FRAME_SIZE: Final = 512

# The types of frames.
AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1

# Protocol headers.
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"

#: An empty frame on channel 0, to be heard from.
HEARTBEAT_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"

_unpack_frame_header = Struct(">IBBH").unpack_from
_pack_frame_header = Struct(">IBBH").pack


class Amqp10FrameHandler(Protocol):
    def on_header(self, header: bytes) -> None:
        """Eight bytes in the place of a protocol header."""

    def on_frame(self, kind: int, channel: int, data: bytes, at: int, stop: int) -> None:
        """A frame whose body is `data[at:stop]`; an empty one is a sign of life."""


class Amqp10FrameReader:
    __slots__ = ("_sink", "_tail", "awaits_header", "frame_max", "held")

    def __init__(self, sink: Amqp10FrameHandler, frame_max: int) -> None:
        self._sink = sink
        self._tail = b""
        self.frame_max = frame_max
        #: What comes next is a protocol header.
        self.awaits_header = True
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
                        FRAMING_ERROR, f"the body of a frame of {size} bytes cannot begin at {body}"
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
        return ConnectionFault(FRAMING_ERROR, f"a frame cannot be {size} bytes long")
    return ConnectionFault(FRAMING_ERROR, f"a frame of {size} bytes, at most {most} are taken")


def encode_frame(channel: int, body: bytes, kind: int = AMQP_FRAME) -> bytes:
    return _pack_frame_header(len(body) + FRAME_HEADER_SIZE, 2, kind, channel) + body
