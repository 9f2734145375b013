"""One segment: a file of chunks, named by the offset of its first message, with its index.

A segment is *active* while chunks are appended to it, *sealed* after. It promises that after a
failed append the file ends with the last whole chunk, or that the next append overwrites what is
left of the failed one. A sealed segment opens its file and its index when it is first read and
can let go of both at any time. Which segments exist, and when data is synced, is the log's.
"""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple
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
from penstock.core.data_directory import private_opener
from penstock.core.errors import CorruptChunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.broker.log.chunk import ChunkHeader


class Segment:
    __slots__ = ("_damages", "_fd", "_index", "_newest", "base", "path", "size")

    def __init__(self, path: Path, damages: CorruptionReport) -> None:
        """A sealed segment, until `create` or `recover` makes it the active one."""
        self.path = path
        self.base = int(path.stem)
        self.size = 0
        with suppress(FileNotFoundError):
            self.size = path.stat().st_size
        self._damages = damages
        self._fd = -1
        self._index: SegmentIndex | None = None
        self._newest: int | None = None

    def create(self) -> None:
        self._fd = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._index = SegmentIndex(self.base)

    def recover(self) -> bool:
        """Open for appending: check every chunk, cut a torn tail. Whether it was closed cleanly."""
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        saved = load_index(self._index_path, self.base, self.size)
        found, torn = self._walk(verify=True)
        if saved is not None:
            # Nothing was being written when it ended, so nothing is torn: what is wrong is damage,
            # and the index knows the offsets it has cost.
            if torn:
                self._report_end(torn)
            self._index = saved
            return True
        if torn:
            self.size -= torn
            os.ftruncate(self._fd, self.size)
            self._damages.cut(self.path, torn, found.end)
        self._index = found
        return not self.size

    def mark_clean(self) -> None:
        """An index that fits the active segment says that its data was left to be synced."""
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
                buffers = [b"".join(buffers)[written:]]  # the disk is filling up: rare
        except OSError:
            with suppress(OSError):  # the next append begins at the same place in any case
                os.ftruncate(self._fd, self.size)
            raise
        self.index.add(chunk.header, self.size)
        self.size += chunk.header.file_bytes

    def duplicate(self) -> int:
        """Another descriptor of the active file, for a thread to sync and close."""
        return os.dup(self._fd)

    def seal(self) -> int:
        """End the writing. The descriptor goes to the caller, who syncs and closes it."""
        save_index(self.index, self._index_path, self.size)
        self._newest = self.index.newest
        fd, self._fd, self._index = self._fd, -1, None
        return fd

    def read(self, i: int) -> Chunk:
        """The i-th chunk; raises CorruptChunk."""
        index = self.index
        start = index.positions[i]
        stop = index.positions[i + 1] if i + 1 < len(index) else self.size
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(self._fd, stop - start, start)
        except OSError as error:  # a bad sector costs the chunk it lies in, no more
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
        """The newest timestamp in it, -1 when it is empty."""
        if self._newest is None:
            if self._index is not None:
                return self._index.newest  # changes while the segment is active
            self._newest = self._find_index().newest
            self.release()  # nobody reads it yet
        return self._newest

    def release(self) -> None:
        """Let go of the file and, as it can be loaded again, of the index."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._index = -1, None

    def delete(self) -> None:
        self.release()
        self._index_path.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    @property
    def _index_path(self) -> Path:
        return self.path.with_suffix(".idx")

    def _find_index(self) -> SegmentIndex:
        """The index of a sealed segment: as saved, or made again and saved."""
        index = load_index(self._index_path, self.base, self.size)
        if index is None:
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
        self._damages.found(self.path, self.size - count, what)

    def _walk(self, *, verify: bool) -> tuple[SegmentIndex, int]:
        """The index, and how many bytes at the end hold no whole chunk."""
        index = SegmentIndex(self.base)
        with mapped_file(self._fd) as data:
            for part in scan_chunks(data, self.base, verify=verify):
                if isinstance(part, ScannedChunk):
                    index.add(part.header, part.position)
                    if not part.sound:
                        self._damages.found(self.path, part.position, corrupt_chunk(part.header))
                elif part.stop == self.size:
                    return index, part.stop - part.position
                else:
                    what = f"{part.stop - part.position} damaged bytes from offset {index.end}"
                    self._damages.found(self.path, part.position, what)
        return index, 0


# The index of a segment: for each chunk its base offset, a time, and its place in the file.
#
# The index of the segment being written lives in memory only, since that segment is walked and
# checked when a log is opened. It is saved once, when the segment is sealed, and never relied on: a
# missing, short or damaged index file, or one that does not fit its segment, reads as None and is
# made again by walking the segment.
#
#     file  magic "PSIX", crc32 of all that follows, count i64, segment bytes i64, end offset i64,
#           then bases i64[count], times i64[count], positions i64[count]
#
# The time kept is the newest of this chunk and all before it in the segment. A clock may step back;
# the newest so far cannot, so the first chunk at or after a time is found by bisection.

INDEX_MAGIC: Final = b"PSIX"
_SEAL = struct.Struct("<4sI")
_FIELDS = struct.Struct("<qqq")


class SegmentIndex:
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
        """The chunk that holds the offset, if any does: the last to begin at or before it."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def at_time(self, timestamp: int) -> int:
        """The first chunk with a message of that time or later; the length when none has."""
        return bisect_left(self.times, timestamp)


def save_index(index: SegmentIndex, path: Path, segment_bytes: int) -> None:
    """Write the file; when that fails there is none, and the segment will be walked."""
    body = _FIELDS.pack(len(index), segment_bytes, index.end) + b"".join(
        (index.bases, index.times, index.positions)
    )
    partial = path.with_suffix(".idx.new")
    try:
        with open(partial, "wb", opener=private_opener) as file:
            file.write(_SEAL.pack(INDEX_MAGIC, crc32(body)) + body)
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def load_index(path: Path, base: int, segment_bytes: int) -> SegmentIndex | None:
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


# Walking a segment file from chunk to chunk, past whatever was damaged.
#
# A chunk's header says where the next one begins. Where there is no valid header, the walk looks
# for the next one and takes it only if it can be true: its payload matches its checksum, and its
# offsets fit the stretch that was skipped. So the image of a segment inside a message's body is not
# mistaken for a part of this one. The walk reads; what to cut and whom to tell is the caller's.


class ScannedChunk(NamedTuple):
    """A chunk with a valid header; `sound` says whether the payload matches its checksum."""

    position: int
    header: ChunkHeader
    sound: bool


class CorruptRange(NamedTuple):
    """A stretch that holds no chunk."""

    position: int
    stop: int


@contextmanager
def mapped_file(fd: int) -> Iterator[bytes | mmap.mmap]:
    """The file's bytes, without reading them all into memory."""
    if not os.fstat(fd).st_size:  # an empty file cannot be mapped
        yield b""
        return
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as data:
        yield data


def scan_chunks(
    data: bytes | mmap.mmap, base: int, *, verify: bool
) -> Iterator[ScannedChunk | CorruptRange]:
    """Every chunk and every damaged stretch, in order. Payloads are checked if `verify`."""
    size, position, expected = len(data), 0, base
    while position < size:
        header = decode_chunk_header(data, position)
        if header is not None and header.base >= expected:
            end = position + header.file_bytes
            if end > size:  # torn while it was written: nothing can follow
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
    """Where the next credible chunk begins, or the end of the file."""
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


# What was found damaged in a log: counted, and told once for each place.


class CorruptionReport:
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
        """A torn tail is how a crash looks, not a damage."""
        self._report(f"{path}: torn tail of {count} bytes cut; the log ends before offset {offset}")
