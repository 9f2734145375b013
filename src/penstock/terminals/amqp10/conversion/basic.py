"""A content header of AMQP 0-9-1 in its pieces, none of them decoded.

A short string keeps its length byte: that is also how AMQP 1.0 writes a short string or symbol,
after one byte for its type. So most of a conversion is cutting and joining.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

_PREFIX: Final = Struct(">HHQH")
_BASIC: Final = 60


class Basic:
    """The properties of class basic: short strings with their length, or None."""

    __slots__ = (
        "app_id",
        "cluster_id",
        "content_encoding",
        "content_type",
        "correlation_id",
        "delivery_mode",
        "expiration",
        "message_id",
        "priority",
        "reply_to",
        "table",
        "timestamp",
        "type",
        "user_id",
    )

    def __init__(self) -> None:
        self.content_type: bytes | None = None
        self.content_encoding: bytes | None = None
        self.table: bytes | None = None  #: the headers, without their length
        self.delivery_mode: int | None = None
        self.priority: int | None = None
        self.correlation_id: bytes | None = None
        self.reply_to: bytes | None = None
        self.expiration: bytes | None = None
        self.message_id: bytes | None = None
        self.timestamp: int | None = None
        self.type: bytes | None = None
        self.user_id: bytes | None = None
        self.app_id: bytes | None = None
        self.cluster_id: bytes | None = None


#: The short strings after the priority, but for the timestamp among them.
_BEFORE: Final = (
    (0x0400, "correlation_id"),
    (0x0200, "reply_to"),
    (0x0100, "expiration"),
    (0x0080, "message_id"),
)
_TIMESTAMP: Final = 0x0040
_AFTER: Final = (
    (0x0020, "type"),
    (0x0010, "user_id"),
    (0x0008, "app_id"),
    (0x0004, "cluster_id"),
)


def read_basic(header: bytes) -> Basic:
    """The pieces of a header that `flags_of` has accepted."""
    basic = Basic()
    present = header[12] << 8 | header[13]
    at = 14
    if present & 0x8000:
        after = at + 1 + header[at]
        basic.content_type = header[at:after]
        at = after
    if present & 0x4000:
        after = at + 1 + header[at]
        basic.content_encoding = header[at:after]
        at = after
    if present & 0x2000:
        start = at + 4
        at = start + int.from_bytes(header[at:start], "big")
        basic.table = header[start:at]
    if present & 0x1000:
        basic.delivery_mode = header[at]
        at += 1
    if present & 0x0800:
        basic.priority = header[at]
        at += 1
    if not present & 0x07FC:
        return basic
    for flag, name in _BEFORE:
        if present & flag:
            after = at + 1 + header[at]
            setattr(basic, name, header[at:after])
            at = after
    if present & _TIMESTAMP:
        basic.timestamp = int.from_bytes(header[at : at + 8], "big")
        at += 8
    for flag, name in _AFTER:
        if present & flag:
            after = at + 1 + header[at]
            setattr(basic, name, header[at:after])
            at = after
    return basic


def write_basic(basic: Basic, size: int) -> bytes:
    """The header for a body of `size` bytes."""
    present = 0
    parts = [b""]
    if basic.content_type is not None:
        present |= 0x8000
        parts.append(basic.content_type)
    if basic.content_encoding is not None:
        present |= 0x4000
        parts.append(basic.content_encoding)
    if basic.table:
        present |= 0x2000
        parts += (len(basic.table).to_bytes(4, "big"), basic.table)
    if basic.delivery_mode is not None:
        present |= 0x1000
        parts.append(bytes((basic.delivery_mode,)))
    if basic.priority is not None:
        present |= 0x0800
        parts.append(bytes((basic.priority,)))
    for flag, name in _BEFORE:
        value = getattr(basic, name)
        if value is not None:
            present |= flag
            parts.append(value)
    if basic.timestamp is not None:
        present |= _TIMESTAMP
        parts.append(basic.timestamp.to_bytes(8, "big"))
    for flag, name in _AFTER:
        value = getattr(basic, name)
        if value is not None:
            present |= flag
            parts.append(value)
    parts[0] = _PREFIX.pack(_BASIC, 0, size, present)
    return b"".join(parts)
