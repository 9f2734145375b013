"""Message flags and priority from a content header, without decoding it.

The header passes through the broker as bytes. `message_flags` runs for every publish: it walks the
header by lengths, refuses a malformed one and collects the flags. It does not read the headers
table; `decode_header` does, and raises `WireSyntaxError` for an invalid one.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.contract import EXPIRES, PERSISTENT, PRIORITY, SENDER_SELECTED
from penstock.core.basic_properties import (
    APP_ID,
    CLUSTER_ID,
    CORRELATION_ID,
    EXPIRATION,
    MESSAGE_ID,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    USER_ID,
    header_class_error,
)
from penstock.core.errors import WireSyntaxError

#: Properties after the priority: short strings, except the timestamp.
_TAIL: Final = (
    CORRELATION_ID,
    REPLY_TO,
    EXPIRATION,
    MESSAGE_ID,
    TIMESTAMP,
    TYPE,
    USER_ID,
    APP_ID,
    CLUSTER_ID,
)


def message_flags(header: bytes) -> int:
    """Message flags of the contract; raises unless the properties fill the header exactly."""
    if not header.startswith(b"\x00\x3c"):
        raise header_class_error(header)
    flags = 0
    pos = 14
    try:
        present = header[12]
        if present & 0x80:  # content type
            pos += header[pos] + 1
        if present & 0x40:  # content encoding
            pos += header[pos] + 1
        if present & 0x20:  # headers
            start = pos + 4
            pos = start + int.from_bytes(header[pos:start], "big")
            if header.find(b"CC", start, pos) >= 0 and _may_select(header, start, pos):
                flags = SENDER_SELECTED
        if present & 0x10:  # delivery mode
            if header[pos] == 2:
                flags |= PERSISTENT
            pos += 1
        if present & 0x08:  # priority; 0 is the default
            if header[pos]:
                flags |= PRIORITY
            pos += 1
        rest = header[13]
        if rest & 0xFC or present & 0x07:
            if present & 0x01:
                flags |= EXPIRES
            pos = _skip_tail(header, pos, present << 8 | rest)
    except IndexError:
        raise WireSyntaxError(f"content header ends within a property, at byte {pos}") from None
    if pos != len(header):
        raise WireSyntaxError(f"properties take {pos} bytes of a header of {len(header)}")
    return flags


def message_priority(header: bytes) -> int:
    """The priority, by default 0, of a header that `message_flags` has accepted."""
    present = header[12]
    if not present & 0x08:
        return 0
    pos = 14
    if present & 0x80:  # content type
        pos += header[pos] + 1
    if present & 0x40:  # content encoding
        pos += header[pos] + 1
    if present & 0x20:  # headers
        pos += 4 + int.from_bytes(header[pos : pos + 4], "big")
    if present & 0x10:  # delivery mode
        pos += 1
    return header[pos]


def _may_select(header: bytes, start: int, stop: int) -> bool:
    """Whether CC or BCC may be a header. The exchange checks exactly; this must not miss one."""
    return header.find(b"\x02CC", start, stop) >= 0 or header.find(b"\x03BCC", start, stop) >= 0


def _skip_tail(header: bytes, pos: int, present: int) -> int:
    for flag in _TAIL:
        if present & flag:
            pos += 8 if flag == TIMESTAMP else header[pos] + 1
    return pos
