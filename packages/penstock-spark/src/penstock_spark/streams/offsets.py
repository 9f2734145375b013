"""The offset that a stream adds to the content header of a message, `x-stream-offset`.

`pop_offset` reads it and restores the header as it was published, so that it is the same from every
broker. `find_offsets` does the same for thousands of messages in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

import numpy as np

from penstock.core.errors import WireSyntaxError
from penstock.core.field_table import decode_value
from penstock_spark.streams.byte_array import ByteArray, Indices

_OFFSET: Final = Struct(">q")

OFFSET_HEADER: Final = "x-stream-offset"
#: The table entry: its name, the type of a 64-bit integer, the integer.
_NAME: Final = b"\x0fx-stream-offset"
_LONG: Final = ord("l")
_ENTRY_BYTES: Final = len(_NAME) + 9


def pop_offset(header: bytes) -> tuple[int, bytes]:
    """The offset of the message, and the content header without it."""
    at = 14
    if header[12] & 0x80:  # content type
        at += 1 + header[at]
    if header[12] & 0x40:  # content encoding
        at += 1 + header[at]
    if not header[12] & 0x20:  # headers
        raise WireSyntaxError("message of a stream without x-stream-offset")
    size = int.from_bytes(header[at : at + 4], "big")
    start, stop = at + 4, at + 4 + size
    entry = header.find(_NAME, start, stop)
    after = entry + _ENTRY_BYTES
    if entry >= 0 and header.startswith(b"l", after - 9) and header.find(_NAME, after, stop) < 0:
        offset: int = _OFFSET.unpack_from(header, after - 8)[0]
    else:  # another value contains these bytes, or the type differs
        entry, after, offset = _walk(header, start, stop)
    if after - entry == size:  # the publisher sent no table, or an empty one
        flags = bytes((header[12] & 0xDF,))
        return offset, header[:12] + flags + header[13:at] + header[after:]
    shorter = (size - after + entry).to_bytes(4, "big")
    return offset, header[:at] + shorter + header[start:entry] + header[after:]


@dataclass(frozen=True, slots=True)
class HeaderOffsets:
    """Offsets, and the bytes to remove from each content header."""

    offsets: Indices
    starts: Indices
    stops: Indices


def find_offsets(octets: ByteArray, starts: Indices, stops: Indices) -> HeaderOffsets | None:
    """The offsets in the content headers at these positions of a writable block.

    Flags and table lengths are corrected in place. None, and nothing is changed, if a header does
    not have the usual form.
    """
    u8, u32 = octets.u8, octets.u32
    high = u8[starts + 12]
    at = starts + 14
    for flag in (0x80, 0x40):  # content type and encoding
        at = at + np.where(high & flag, 1 + u8[np.minimum(at, stops - 1)].astype(np.int64), 0)
    if not (high & 0x20).all() or not (at + 4 <= stops).all():
        return None
    table = at + 4
    size = u32[at].astype(np.int64)
    found = octets.find(_NAME)
    first = np.searchsorted(found, table)
    once = np.searchsorted(found, table + size) - first == 1
    if not once.all() or not (table + size <= stops).all():
        return None
    entry = found[first]
    if not (entry + _ENTRY_BYTES <= table + size).all() or (u8[entry + len(_NAME)] != _LONG).any():
        return None
    alone = size == _ENTRY_BYTES  # the publisher sent no table, or an empty one
    u8[starts[alone] + 12] &= 0xDF
    u32[at[~alone]] = size[~alone] - _ENTRY_BYTES
    offsets = octets.i64[entry + _ENTRY_BYTES - 8].astype(np.int64)
    return HeaderOffsets(offsets, np.where(alone, at, entry), entry + _ENTRY_BYTES)


def _walk(header: bytes, pos: int, stop: int) -> tuple[int, int, int]:
    """Where the entry of the offset begins and ends, and the offset."""
    while pos < stop:
        value_at = pos + 1 + header[pos]
        try:
            value, after = decode_value(header, value_at, stop)
        except WireSyntaxError:
            break
        if header[pos:value_at] == _NAME and isinstance(value, int):
            return pos, after, value
        pos = after
    raise WireSyntaxError("message of a stream without x-stream-offset")
