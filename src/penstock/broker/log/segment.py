"""One segment: a file of chunks, named by the offset of its first message, with its index.

A segment is *active* while chunks are appended to it, *sealed* after. It promises that after a
failed append the file ends with the last whole chunk, or that the next append overwrites what is
left of the failed one. A sealed segment opens its file and its index when it is first read and
can let go of both at any time. Which segments exist, and when data is synced, is the log's.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.broker.log import index as index_file
from penstock.broker.log.chunk import Chunk, damaged, decode, encode_header
from penstock.broker.log.index import Index
from penstock.broker.log.walk import Found, mapped, walk
from penstock.core.errors import CorruptChunk

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.broker.log.damage import Damages


class Segment:
    __slots__ = ("_damages", "_fd", "_index", "_newest", "base", "path", "size")

    def __init__(self, path: Path, damages: Damages) -> None:
        """A sealed segment, until `create` or `recover` makes it the active one."""
        self.path = path
        self.base = int(path.stem)
        self.size = 0
        with suppress(FileNotFoundError):
            self.size = path.stat().st_size
        self._damages = damages
        self._fd = -1
        self._index: Index | None = None
        self._newest: int | None = None

    def create(self) -> None:
        self._fd = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._index = Index(self.base)

    def recover(self) -> bool:
        """Open for appending: check every chunk, cut a torn tail. Whether it was closed cleanly."""
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        saved = index_file.load(self._index_path, self.base, self.size)
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
        index_file.save(self.index, self._index_path, self.size)

    def sync(self) -> None:
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def append(self, chunk: Chunk) -> None:
        buffers = [encode_header(chunk.header), chunk.payload]
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
        index_file.save(self.index, self._index_path, self.size)
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
        return decode(data)

    @property
    def index(self) -> Index:
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

    def _find_index(self) -> Index:
        """The index of a sealed segment: as saved, or made again and saved."""
        index = index_file.load(self._index_path, self.base, self.size)
        if index is None:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            index, torn = self._walk(verify=False)
            if torn:
                self._report_end(torn)
            index_file.save(index, self._index_path, self.size)
        self._newest = index.newest
        return index

    def _report_end(self, count: int) -> None:
        what = f"{count} bytes at the end hold no whole chunk"
        self._damages.found(self.path, self.size - count, what)

    def _walk(self, *, verify: bool) -> tuple[Index, int]:
        """The index, and how many bytes at the end hold no whole chunk."""
        index = Index(self.base)
        with mapped(self._fd) as data:
            for part in walk(data, self.base, verify=verify):
                if isinstance(part, Found):
                    index.add(part.header, part.position)
                    if not part.sound:
                        self._damages.found(self.path, part.position, damaged(part.header))
                elif part.stop == self.size:
                    return index, part.stop - part.position
                else:
                    what = f"{part.stop - part.position} damaged bytes from offset {index.end}"
                    self._damages.found(self.path, part.position, what)
        return index, 0
