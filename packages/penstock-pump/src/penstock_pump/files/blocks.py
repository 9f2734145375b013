"""Assembles a file from blocks that arrive in any order.

Blocks are written at their offset in one file under its in-flight name. A list beside it has a line
with the version of the file and a byte per block. Several processes may work on one file: the list
is locked while it is read or changed. With the last block the file gets its final name and the list
is removed, under the same lock.

A block of an older announcement than the current version is dropped; one of a newer restarts the
file, so that a growing file never becomes a mixture of versions.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock_pump.errors import BadPost, SourceUnavailable, WrongSize
from penstock_pump.files.committer import sync_folder
from penstock_pump.files.inflight import FileAttributes, set_attributes
from penstock_pump.posts.checksums import Checksum, Digest, checked_checksum
from penstock_pump.posts.parts import Parts

_PRESENT: Final = b"1"
_MISSING: Final = b"0"
BLOCK_LIST: Final = ".blocks"
#: No real file has more blocks.
MAX_BLOCKS: Final = 1 << 20


class BlockAssembly:
    """One file in assembly; `moment` identifies its version."""

    def __init__(self, path: Path, parts: Parts, moment: int) -> None:
        if parts.count > MAX_BLOCKS:
            raise BadPost(f"{parts.count} blocks are more than {MAX_BLOCKS}")
        self.path = path
        self._list = path.with_name(path.name + BLOCK_LIST)
        self._parts = parts
        self._moment = moment
        self._head = f"{moment},{parts.size},{parts.count},{parts.remainder}\n".encode()

    def open(self) -> int | None:
        """The descriptor to write the block to; None if the block is not needed."""
        with self._locked() as fd:
            if not self._begin(fd) or self._flags(fd)[self._parts.number] == _PRESENT[0]:
                return None
            return os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def add(
        self,
        final: Path,
        attributes: FileAttributes,
        mode: int | None,
        mtime: int | None,
        atime: int | None,
    ) -> bool:
        """Records a written block; True when the file is complete and has its final name."""
        with self._locked() as fd:
            if not self._is_current(fd):
                return False
            os.pwrite(fd, _PRESENT, len(self._head) + self._parts.number)
            if _MISSING in self._flags(fd):
                return False
            self._apply_attributes(attributes, mode, mtime, atime)
            self.path.rename(final)
            if attributes.durable:
                sync_folder(final.parent)
            self._list.unlink()
            return True

    def abandon(self) -> None:
        """Removes the file: one of its blocks failed for good."""
        if not self._list.exists():
            return
        with self._locked() as fd:
            head = self._read_head(fd)
            if head in (self._head, b"\n"):
                self._list.unlink()
            if head == self._head:
                self.path.unlink(missing_ok=True)

    def _apply_attributes(
        self, attributes: FileAttributes, mode: int | None, mtime: int | None, atime: int | None
    ) -> None:
        fd = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            set_attributes(fd, attributes, mode, mtime, atime)
            if attributes.durable:
                os.fsync(fd)
        finally:
            os.close(fd)

    def _is_current(self, fd: int) -> bool:
        """False if a newer version was started. An empty list means that the file was completed or
        abandoned meanwhile; a retry finds out."""
        head = self._read_head(fd)
        if head == b"\n":
            self._list.unlink()
            raise SourceUnavailable(f"{self.path} is not being assembled any more")
        return head == self._head

    def _read_head(self, fd: int) -> bytes:
        return os.pread(fd, 128, 0).partition(b"\n")[0] + b"\n"

    def _begin(self, fd: int) -> bool:
        """Starts this version unless it or a newer one was started; False if there is a newer."""
        head = self._read_head(fd)
        if head == self._head:
            return True
        moment = head.partition(b",")[0]
        if moment.isdigit() and int(moment) > self._moment:
            return False
        self._create_sparse()
        os.ftruncate(fd, 0)
        os.pwrite(fd, self._head + _MISSING * self._parts.count, 0)
        return True

    def _create_sparse(self) -> None:
        """A new file of the final size. Processes that still write to the old one do no harm."""
        self.path.unlink(missing_ok=True)
        try:
            with self.path.open("xb") as file:
                file.truncate(self._parts.file_size)
        except OSError as error:
            if error.errno in (errno.EFBIG, errno.EINVAL):
                raise BadPost(
                    f"{self._parts.file_size} bytes are too many for the file system"
                ) from error
            raise

    def _flags(self, fd: int) -> bytes:
        return os.pread(fd, self._parts.count, len(self._head))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        while True:
            fd = os.open(self._list, flags, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if self._is_list(fd):
                    yield fd
                    return
            finally:
                os.close(fd)

    def _is_list(self, fd: int) -> bool:
        """False if the file was completed, and its list removed, while waiting for the lock."""
        try:
            return os.path.samestat(self._list.stat(), os.fstat(fd))
        except FileNotFoundError:
            return False


class BlockWriter:
    """Writes and verifies one block."""

    __slots__ = ("_digest", "_fd", "_parts", "written")

    def __init__(self, fd: int, parts: Parts, digest: Digest | None) -> None:
        self._fd = fd
        self._parts = parts
        self._digest = digest
        self.written = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        at = self._parts.offset + self.written
        self.written += len(data)
        if self.written > self._parts.length:
            raise WrongSize(f"more than the {self._parts.length} bytes of the block")
        if self._digest is not None:
            self._digest.update(memoryview(data))
        view = memoryview(data)
        while view:
            count = os.pwrite(self._fd, view, at)
            view, at = view[count:], at + count

    def verify(self, announced: Checksum | None, *, strict: bool) -> Checksum | None:
        if self.written < self._parts.length:
            raise WrongSize(f"{self.written} bytes of the {self._parts.length} of the block")
        return checked_checksum(announced, self._digest, strict=strict)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
