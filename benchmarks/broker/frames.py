"""The few AMQP 0-9-1 frames a load generator needs, as bytes.

Written from the standard and apart from the broker's own codec, so that a misreading of one does
not hide in the other. Only what the scenarios send is here; nothing is validated.
"""

from __future__ import annotations

import struct
from typing import Final

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
FRAME_END: Final = 0xCE
PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"

#: Type, channel, payload size.
PROLOGUE: Final = struct.Struct(">BHI")

Method = tuple[int, int]

CONNECTION_START: Final[Method] = (10, 10)
CONNECTION_START_OK: Final[Method] = (10, 11)
CONNECTION_TUNE: Final[Method] = (10, 30)
CONNECTION_TUNE_OK: Final[Method] = (10, 31)
CONNECTION_OPEN: Final[Method] = (10, 40)
CONNECTION_OPEN_OK: Final[Method] = (10, 41)
CONNECTION_CLOSE: Final[Method] = (10, 50)
CHANNEL_OPEN: Final[Method] = (20, 10)
CHANNEL_OPEN_OK: Final[Method] = (20, 11)
CHANNEL_CLOSE: Final[Method] = (20, 40)
EXCHANGE_DECLARE: Final[Method] = (40, 10)
EXCHANGE_DECLARE_OK: Final[Method] = (40, 11)
EXCHANGE_DELETE: Final[Method] = (40, 20)
EXCHANGE_DELETE_OK: Final[Method] = (40, 21)
QUEUE_DECLARE: Final[Method] = (50, 10)
QUEUE_DECLARE_OK: Final[Method] = (50, 11)
QUEUE_BIND: Final[Method] = (50, 20)
QUEUE_BIND_OK: Final[Method] = (50, 21)
QUEUE_DELETE: Final[Method] = (50, 40)
QUEUE_DELETE_OK: Final[Method] = (50, 41)
BASIC_QOS: Final[Method] = (60, 10)
BASIC_QOS_OK: Final[Method] = (60, 11)
BASIC_CONSUME: Final[Method] = (60, 20)
BASIC_CONSUME_OK: Final[Method] = (60, 21)
BASIC_CANCEL: Final[Method] = (60, 30)
BASIC_CANCEL_OK: Final[Method] = (60, 31)
BASIC_PUBLISH: Final[Method] = (60, 40)
BASIC_DELIVER: Final[Method] = (60, 60)
BASIC_ACK: Final[Method] = (60, 80)
CONFIRM_SELECT: Final[Method] = (85, 10)
CONFIRM_SELECT_OK: Final[Method] = (85, 11)

EMPTY_TABLE: Final = bytes(4)

_DELIVERY_MODE_FLAG: Final = 1 << 12
_PERSISTENT: Final = 2
_ACK: Final = struct.Struct(">BHIHHQ?B")


def short_string(text: str) -> bytes:
    octets = text.encode()
    return bytes([len(octets)]) + octets


def long_string(octets: bytes) -> bytes:
    return struct.pack(">I", len(octets)) + octets


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return PROLOGUE.pack(kind, channel, len(payload)) + payload + bytes([FRAME_END])


def method(channel: int, name: Method, arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", *name) + arguments)


def content(channel: int, body: bytes, *, persistent: bool) -> bytes:
    """Content header and one body frame; a body here is never larger than a frame."""
    properties = struct.pack(">HB", _DELIVERY_MODE_FLAG, _PERSISTENT) if persistent else bytes(2)
    header = struct.pack(">HHQ", BASIC_PUBLISH[0], 0, len(body)) + properties
    return frame(HEADER, channel, header) + frame(BODY, channel, body)


def publish(channel: int, exchange: str, key: str) -> bytes:
    arguments = bytes(2) + short_string(exchange) + short_string(key) + bytes(1)
    return method(channel, BASIC_PUBLISH, arguments)


def deliver(channel: int, consumer: str, tag: int, exchange: str, key: str) -> bytes:
    delivery = short_string(consumer) + struct.pack(">Q?", tag, False)
    arguments = delivery + short_string(exchange) + short_string(key)
    return method(channel, BASIC_DELIVER, arguments)


def ack(channel: int, tag: int, *, multiple: bool) -> bytes:
    return _ACK.pack(METHOD, channel, 13, *BASIC_ACK, tag, multiple, FRAME_END)
