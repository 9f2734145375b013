"""The index of a segment: for each chunk its base offset, a time, and its place in the file.

The index of the segment being written lives in memory only, since that segment is walked and
checked when a log is opened. It is saved once, when the segment is sealed, and never relied on: a
missing, short or damaged index file, or one that does not fit its segment, reads as None and is
made again by walking the segment.

    file  magic "PSIX", crc32 of all that follows, count i64, segment bytes i64, end offset i64,
          then bases i64[count], times i64[count], positions i64[count]

The time kept is the newest of this chunk and all before it in the segment. A clock may step back;
the newest so far cannot, so the first chunk at or after a time is found by bisection.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from zlib import crc32

from penstock.core.data_directory import private_opener

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.broker.log.chunk import Header

MAGIC: Final = b"PSIX"
_SEAL = struct.Struct("<4sI")
_FIELDS = struct.Struct("<qqq")


class Index:
    __slots__ = ("bases", "end", "positions", "times")

    def __init__(self, base: int) -> None:
        self.bases = array("q")
        self.times = array("q")
        self.positions = array("q")
        self.end = base  #: the offset after the last chunk's last message

    def __len__(self) -> int:
        return len(self.bases)

    @property
    def newest(self) -> int:
        return self.times[-1] if self.times else -1

    def add(self, header: Header, position: int) -> None:
        self.bases.append(header.base)
        self.times.append(max(header.newest, self.newest))
        self.positions.append(position)
        self.end = header.end

    def at_offset(self, offset: int) -> int:
        """The chunk that holds the offset, if any does: the last to begin at or before it."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def at_time(self, timestamp: int) -> int:
        """The first chunk with a message of that time or later; the length when none has."""
        return bisect_left(self.times, timestamp)


def save(index: Index, path: Path, segment_bytes: int) -> None:
    """Write the file; when that fails there is none, and the segment will be walked."""
    body = _FIELDS.pack(len(index), segment_bytes, index.end) + b"".join(
        (index.bases, index.times, index.positions)
    )
    partial = path.with_suffix(".idx.new")
    try:
        with open(partial, "wb", opener=private_opener) as file:
            file.write(_SEAL.pack(MAGIC, crc32(body)) + body)
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def load(path: Path, base: int, segment_bytes: int) -> Index | None:
    """The saved index, or None when there is none that fits the segment."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if len(data) < _SEAL.size + _FIELDS.size:
        return None
    magic, seal = _SEAL.unpack_from(data)
    body = data[_SEAL.size :]
    count, covered, end = _FIELDS.unpack_from(body)
    columns = body[_FIELDS.size :]
    if (
        magic != MAGIC
        or seal != crc32(body)
        or covered != segment_bytes
        or len(columns) != 24 * count
    ):
        return None
    index = Index(base)
    index.bases.frombytes(columns[: 8 * count])
    index.times.frombytes(columns[8 * count : 16 * count])
    index.positions.frombytes(columns[16 * count :])
    index.end = end
    return index
