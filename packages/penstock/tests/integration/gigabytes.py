"""One message of any size, sent and received frame by frame, so that no side ever holds it whole.

Every frame begins with its own number; a checksum runs along at both ends.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import pika
from pika import spec

from tests.integration.amqp091.wire import (
    BODY,
    FRAME_END,
    HEADER,
    METHOD,
    Wire,
    header_bytes,
    method_bytes,
)

#: What a frame holds under the usual frame-max.
PAYLOAD = 131072 - 8
_FILLING = bytes(range(256)) * (PAYLOAD // 256 + 1)


@dataclass
class Tally:
    """What has passed: how many bytes of how many frames, and their checksum."""

    size: int = 0
    checksum: int = 0

    def add(self, payload: bytes | memoryview) -> None:
        self.size += len(payload)
        self.checksum = zlib.crc32(payload, self.checksum)


def send(
    wire: Wire,
    queue: str,
    size: int,
    properties: pika.BasicProperties,
    mandatory: bool = False,
) -> Tally:
    """Publish a message of this size on channel 1."""
    tally = Tally()
    publish = method_bytes(1, spec.Basic.Publish(routing_key=queue, mandatory=mandatory))
    wire.send(publish + header_bytes(1, size, properties))
    number = 0
    while tally.size < size:
        length = min(PAYLOAD, size - tally.size)
        payload = struct.pack(">Q", number)[:length] + _FILLING[8:length]
        tally.add(payload)
        wire.send(b"".join((struct.pack(">BHI", BODY, 1, length), payload, FRAME_END)))
        number += 1
    return tally


def receive(wire: Wire) -> Tally:
    """Read one delivery or return, past whatever else comes before its content."""
    tally = Tally()
    expected = -1
    buffer = bytearray()
    while expected < 0 or tally.size < expected:
        data = wire.receive_some()
        assert data, "the broker closed the connection"
        buffer += data
        start = 0
        while len(buffer) - start >= 8:
            kind, _, length = struct.unpack_from(">BHI", buffer, start)
            if len(buffer) - start < length + 8:
                break
            payload = memoryview(buffer)[start + 7 : start + 7 + length]
            if kind == HEADER:
                expected = struct.unpack_from(">Q", payload, 4)[0]
            elif kind == BODY:
                tally.add(payload)
            else:
                assert kind == METHOD, kind
            payload.release()
            start += length + 8
        del buffer[:start]
    return tally
