"""What the broker asks of every message's content header, without decoding it.

The header travels through the broker as the bytes the publisher sent. `message_flags` is what every
publish pays: it walks the header by lengths, so a malformed one is refused at the door, and picks
up the few facts that drivers ask of every message. The names and values inside the headers table
are not read there; whoever needs them calls `core.properties.decode_header`, which raises
`WireSyntaxError` for a table that lies.
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

#: What follows the priority: short strings, and among them the timestamp.
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
    """The contract's message flags; raises unless the header's properties fill it exactly."""
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
        if present & 0x08:  # priority; zero is no different from none
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
    """The priority alone, 0 for none, of a header that `message_flags` has accepted."""
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
    """Whether CC or BCC may be among the headers.

    Whether it is truly a key, and of the outermost table, is the exchange's to see: here it is
    enough never to miss one.
    """
    return header.find(b"\x02CC", start, stop) >= 0 or header.find(b"\x03BCC", start, stop) >= 0


def _skip_tail(header: bytes, pos: int, present: int) -> int:
    for flag in _TAIL:
        if present & flag:
            pos += 8 if flag == TIMESTAMP else header[pos] + 1
    return pos
