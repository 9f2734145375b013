"""The format of an acknowledgement file: frames, each a list of ranges of offsets.

    frame  magic "PSAK", crc32 of all that follows, count i64, then (start i64, stop i64)[count]

Reading goes past a damaged frame to the next sound one. Ranges may repeat and overlap. A range
of offsets that were sent, and not acknowledged, is written below zero: (-stop, -start).
"""

from __future__ import annotations

import struct
from array import array
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAGIC: Final = b"PSAK"
_SEAL = struct.Struct("<4sI")
_COUNT = struct.Struct("<q")
_HEADER_BYTES: Final = _SEAL.size + _COUNT.size

Range = tuple[int, int]


class Reading(NamedTuple):
    """What a file holds: its ranges, where the last sound frame ends, damaged bytes before it."""

    ranges: list[Range]
    end: int
    damaged: int


def encode(ranges: Sequence[Range]) -> bytes:
    body = _COUNT.pack(len(ranges)) + array("q", chain.from_iterable(ranges)).tobytes()
    return _SEAL.pack(MAGIC, crc32(body)) + body


def decode(data: bytes) -> Reading:
    ranges: list[Range] = []
    position = end = damaged = 0
    while position >= 0:
        frame = _frame(data, position)
        if frame is None:
            position = data.find(MAGIC, position + 1)
        else:
            damaged += position - end
            ranges += zip(frame[::2], frame[1::2], strict=True)
            position = end = position + _HEADER_BYTES + 8 * len(frame)
    return Reading(ranges, end, damaged)


def _frame(data: bytes, at: int) -> array[int] | None:
    """The numbers of the frame that begins there, if a sound one does."""
    if data[at : at + 4] != MAGIC or at + _HEADER_BYTES > len(data):
        return None
    (count,) = _COUNT.unpack_from(data, at + _SEAL.size)
    stop = at + _HEADER_BYTES + 16 * count
    if count < 1 or stop > len(data):
        return None
    if crc32(data[at + _SEAL.size : stop]) != _SEAL.unpack_from(data, at)[1]:
        return None
    return array("q", data[at + _HEADER_BYTES : stop])


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets in as few ranges as can be, in order."""
    result: list[Range] = []
    for start, stop in sorted(ranges):
        if result and start <= result[-1][1]:
            if stop > result[-1][1]:
                result[-1] = (result[-1][0], stop)
        else:
            result.append((start, stop))
    return result


def runs(offsets: Iterable[int]) -> list[Range]:
    """Single offsets as ranges."""
    ordered = sorted(offsets)
    if not ordered:
        return []
    if ordered[-1] - ordered[0] == len(ordered) - 1:  # mostly acknowledgements come in order
        return [(ordered[0], ordered[-1] + 1)]
    return merged((offset, offset + 1) for offset in ordered)
