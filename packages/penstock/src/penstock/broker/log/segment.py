"""One segment of a log: a file of chunks, named by its first offset, with an index.

A segment is *active* while chunks are appended, *sealed* after. After a failed append the file ends
with the last complete chunk, or the next append overwrites the rest. A sealed segment opens its
file and index on demand and can close both at any time.

A segment of a stream may also be *remote*: a descriptor beside it (`remote_segment.py`) names its
copy in an object store. Then the file here can be deleted and fetched again.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from penstock.broker.log.chunk import (
    CHUNK_MAGIC,
    HEADER_BYTES,
    SMALLEST_MESSAGE,
    Chunk,
    ChunkHeader,
    corrupt_chunk,
    decode_chunk,
    decode_chunk_header,
    encode_chunk_header,
)
from penstock.broker.log.compacted_file import torn_tail
from penstock.broker.log.remote_segment import (
    load_remote_index,
    load_remote_segment,
    remote_path,
)
from penstock.core.data_directory import private_opener
from penstock.core.errors import CorruptChunk


class SegmentNotLocal(Exception):
    """Only an object store has the segment."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment.path.name)
        self.segment = segment


class Segment:
    __slots__ = (
        "_corruption",
        "_fd",
        "_index",
        "_newest",
        "base",
        "is_local",
        "path",
        "remote",
        "size",
        "used_at",
    )

    def __init__(self, path: Path, corruption: CorruptionReport) -> None:
        """A sealed segment, until `create` or `recover` makes it active."""
        self.path = path
        self.base = int(path.stem)
        self.size = 0
        self.remote = load_remote_segment(path)  #: its copy in an object store, if it has one
        self.is_local = True
        self.used_at = 0.0  #: when it was last read, if it is remote
        try:
            self.size = path.stat().st_size
        except FileNotFoundError:
            if self.remote is not None:
                self.is_local = False
                self.size = self.remote.file.size
        self._corruption = corruption
        self._fd = -1
        self._index: SegmentIndex | None = None
        self._newest: int | None = None

    def create(self) -> None:
        self._fd = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._index = SegmentIndex(self.base)

    def recover(self) -> bool:
        """Open for appending: check every chunk, cut a torn tail; returns whether it was closed
        cleanly."""
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        saved = load_index(self._index_path, self.base, self.size)
        found, torn = self._walk(verify=True)
        if saved is not None:
            # It was closed cleanly, so nothing is torn: this is corruption, and the index has the
            # lost offsets.
            if torn:
                self._report_end(torn)
            self._index = saved
            return True
        if torn:
            self.size -= torn
            os.ftruncate(self._fd, self.size)
            self._corruption.cut(self.path, torn, found.end)
        self._index = found
        return not self.size

    def mark_clean(self) -> None:
        """Save the index, which marks the segment as closed cleanly."""
        save_index(self.index, self._index_path, self.size)

    def sync(self) -> None:
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def append(self, chunk: Chunk) -> None:
        buffers = [encode_chunk_header(chunk.header), chunk.payload]
        left, position = chunk.header.file_bytes, self.size
        try:
            while True:
                written = os.pwritev(self._fd, buffers, position)
                left -= written
                if not left:
                    break
                position += written
                buffers = [b"".join(buffers)[written:]]  # the disk is nearly full: rare
        except OSError:
            with suppress(OSError):  # the next append overwrites it in any case
                os.ftruncate(self._fd, self.size)
            raise
        self.index.add(chunk.header, self.size)
        self.size += chunk.header.file_bytes

    def duplicate(self) -> int:
        """A duplicate descriptor, for a thread to sync and close."""
        return os.dup(self._fd)

    def seal(self) -> int:
        """End appending; the caller syncs and closes the returned descriptor."""
        save_index(self.index, self._index_path, self.size)
        self._newest = self.index.newest
        fd, self._fd, self._index = self._fd, -1, None
        return fd

    def read(self, i: int) -> Chunk:
        """The i-th chunk; raises CorruptChunk or SegmentNotLocal."""
        if self.remote is not None:
            if not self.is_local:
                raise SegmentNotLocal(self)
            self.used_at = time.monotonic()
        index = self.index
        start = index.positions[i]
        stop = index.positions[i + 1] if i + 1 < len(index) else self.size
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(self._fd, stop - start, start)
        except OSError as error:  # a bad sector costs one chunk
            raise CorruptChunk(f"unreadable: {error.strerror}") from error
        return decode_chunk(data)

    @property
    def index(self) -> SegmentIndex:
        index = self._index
        if index is None:
            index = self._index = self._find_index()
        return index

    @property
    def newest(self) -> int:
        """The newest timestamp, -1 if it is empty."""
        if self._newest is None:
            if self._index is not None:
                return self._index.newest  # changes while the segment is active
            self._newest = self._find_index().newest
            self.release()  # it is not in use yet
        return self._newest

    def release(self) -> None:
        """Close the file, and free the index, which can be loaded again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._index = -1, None

    def delete(self) -> None:
        self.release()
        self._index_path.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        if self.remote is not None:
            remote_path(self.path).unlink(missing_ok=True)

    def drop_file(self) -> None:
        """Keep the copy in the object store only."""
        self.release()
        self.is_local = False
        self.path.unlink(missing_ok=True)

    @property
    def _index_path(self) -> Path:
        return self.path.with_suffix(".idx")

    def _find_index(self) -> SegmentIndex:
        """The saved index of a sealed segment, or a rebuilt one."""
        index = load_index(self._index_path, self.base, self.size)
        if index is None and self.remote is not None:
            index = decode_index(load_remote_index(self.path), self.base, self.size)
        if index is None:
            if not self.is_local:
                raise SegmentNotLocal(self)
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            index, torn = self._walk(verify=False)
            if torn:
                self._report_end(torn)
            save_index(index, self._index_path, self.size)
        self._newest = index.newest
        return index

    def _report_end(self, count: int) -> None:
        what = f"{count} bytes at the end hold no whole chunk"
        self._corruption.found(self.path, self.size - count, what)

    def _walk(self, *, verify: bool) -> tuple[SegmentIndex, int]:
        """The index, and the number of bytes after the last complete chunk."""
        index = SegmentIndex(self.base)
        with mapped_file(self._fd) as data:
            for part in scan_chunks(data, self.base, verify=verify):
                if isinstance(part, ScannedChunk):
                    index.add(part.header, part.position)
                    if not part.valid:
                        self._corruption.found(self.path, part.position, corrupt_chunk(part.header))
                elif part.stop == self.size:
                    return index, part.stop - part.position
                else:
                    what = f"{part.stop - part.position} damaged bytes from offset {index.end}"
                    self._corruption.found(self.path, part.position, what)
        return index, 0


INDEX_MAGIC: Final = b"PSIX"
_SEAL = struct.Struct("<4sI")
_FIELDS = struct.Struct("<qqq")


class SegmentIndex:
    """Base offset, time and file position of each chunk.

    The index of the active segment is in memory only. It is saved when the segment is sealed or
    closed; a missing or invalid index file is rebuilt from the segment.

        file  magic "PSIX", crc32 of all that follows, count i64, segment bytes i64, end offset i64,
              then bases i64[count], times i64[count], positions i64[count]

    The time is the newest of this chunk and all before it: it never decreases, even if the clock
    steps back, so chunks are found by bisection.
    """

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

    def add(self, header: ChunkHeader, position: int) -> None:
        self.bases.append(header.base)
        self.times.append(max(header.newest, self.newest))
        self.positions.append(position)
        self.end = header.end

    def at_offset(self, offset: int) -> int:
        """The chunk that has the offset, if any: the last that begins at or before it."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def position(self, offset: int, size: int) -> int:
        """Where the message is in the file, about, which has `size` bytes."""
        if offset >= self.end or not self.bases:
            return size
        i = self.at_offset(offset)
        base, rows, start, length = self._chunk(i, size)
        return start + max(offset - base, 0) * length // rows

    def offset(self, position: int, size: int) -> int:
        """The message at the position, about."""
        base, rows, start, length = self._chunk(bisect_right(self.positions, position) - 1, size)
        return base + (position - start) * rows // length

    def _chunk(self, i: int, size: int) -> tuple[int, int, int, int]:
        """First offset, number of offsets, position and length of a chunk."""
        more = i + 1 < len(self.bases)
        base, start = self.bases[i], self.positions[i]
        return (
            base,
            (self.bases[i + 1] if more else self.end) - base,
            start,
            (self.positions[i + 1] if more else size) - start,
        )

    def at_time(self, timestamp: int) -> int:
        """The first chunk with a message of that time or later; the length if there is none."""
        return bisect_left(self.times, timestamp)


def encode_index(index: SegmentIndex, segment_bytes: int) -> bytes:
    body = _FIELDS.pack(len(index), segment_bytes, index.end) + b"".join(
        (index.bases, index.times, index.positions)
    )
    return _SEAL.pack(INDEX_MAGIC, crc32(body)) + body


def decode_index(data: bytes, base: int, segment_bytes: int) -> SegmentIndex | None:
    """The index, or None if it does not match the segment."""
    if len(data) < _SEAL.size + _FIELDS.size:
        return None
    magic, seal = _SEAL.unpack_from(data)
    body = data[_SEAL.size :]
    count, covered, end = _FIELDS.unpack_from(body)
    columns = body[_FIELDS.size :]
    if (
        magic != INDEX_MAGIC
        or seal != crc32(body)
        or covered != segment_bytes
        or len(columns) != 24 * count
    ):
        return None
    index = SegmentIndex(base)
    index.bases.frombytes(columns[: 8 * count])
    index.times.frombytes(columns[8 * count : 16 * count])
    index.positions.frombytes(columns[16 * count :])
    index.end = end
    return index


def save_index(index: SegmentIndex, path: Path, segment_bytes: int) -> None:
    """Write the file; if that fails, the index is rebuilt next time."""
    partial = path.with_suffix(".idx.new")
    try:
        with open(partial, "wb", opener=private_opener) as file:
            file.write(encode_index(index, segment_bytes))
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def load_index(path: Path, base: int, segment_bytes: int) -> SegmentIndex | None:
    """The saved index, or None if it does not match the segment."""
    try:
        return decode_index(path.read_bytes(), base, segment_bytes)
    except OSError:
        return None


class ScannedChunk(NamedTuple):
    position: int
    header: ChunkHeader
    valid: bool  #: the payload matches its checksum


class CorruptRange(NamedTuple):
    position: int
    stop: int


@contextmanager
def mapped_file(fd: int) -> Iterator[bytes | mmap.mmap]:
    """The file mapped into memory."""
    if not os.fstat(fd).st_size:  # an empty file cannot be mapped
        yield b""
        return
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as data:
        yield data


def scan_chunks(
    data: bytes | mmap.mmap, base: int, *, verify: bool
) -> Iterator[ScannedChunk | CorruptRange]:
    """Every chunk and every damaged range, in order; with `verify`, payloads are checked.

    Each header tells where the next chunk begins. After a damaged range, a header is accepted only
    if its payload matches its checksum and its offsets fit, so that a segment inside a message body
    is not mistaken for a part of this one.
    """
    size, position, expected = len(data), 0, base
    while position < size:
        header = decode_chunk_header(data, position)
        if header is not None and header.base >= expected:
            end = position + header.file_bytes
            if end > size:  # torn: nothing can follow
                yield CorruptRange(position, size)
                return
            yield ScannedChunk(position, header, not verify or _matches(data, position, header))
            expected = header.end
        else:
            end = _resume(data, position, expected)
            yield CorruptRange(position, end)
        position = end


def _matches(data: bytes | mmap.mmap, position: int, header: ChunkHeader) -> bool:
    start = position + HEADER_BYTES
    with memoryview(data) as view, view[start : start + header.payload_bytes] as payload:
        return crc32(payload) == header.payload_crc


def _resume(data: bytes | mmap.mmap, damaged: int, expected: int) -> int:
    """The position of the next plausible chunk, or the end of the file."""
    at = data.find(CHUNK_MAGIC, damaged + 1)
    while at >= 0:
        header = decode_chunk_header(data, at) if at % 8 == 0 else None
        if (
            header is not None
            and expected < header.base <= expected + (at - damaged) // SMALLEST_MESSAGE
            and at + header.file_bytes <= len(data)
            and _matches(data, at, header)
        ):
            return at
        at = data.find(CHUNK_MAGIC, at + 1)
    return len(data)


class CorruptionReport:
    """Counts damaged parts of a log and reports each once."""

    __slots__ = ("_known", "_report")

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._known: set[tuple[str, int]] = set()

    def __len__(self) -> int:
        return len(self._known)

    def found(self, path: Path, position: int, what: str) -> None:
        if (path.name, position) not in self._known:
            self._known.add((path.name, position))
            self._report(f"{path} at byte {position}: {what}; skipped")

    def cut(self, path: Path, count: int, offset: int) -> None:
        """A torn tail is left by a crash; it does not count as corruption."""
        self._report(f"{torn_tail(path, count)}; the log ends before offset {offset}")
