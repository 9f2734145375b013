"""A file put together from blocks that come in any order.

Blocks are written where they belong in one file, under its name in flight; beside it lies a list of
those that are there: a line that says which version of the file is being made, and a byte a block.
Several processes may be at the same file: the list is locked while it is read or changed. When the
last block is there the file gets its name and the list goes, while the lock is still held.

A block of an older announcement than the one being made is not wanted any more; one of a newer
begins the file again, for a growing file must not become a mixture of its versions.
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

_HERE: Final = b"1"
_MISSING: Final = b"0"
BLOCK_LIST: Final = ".blocks"
#: A list of more would not be a list any more; a post that says so lies.
MAX_BLOCKS: Final = 1 << 20


class BlockAssembly:
    """One file being put together; `moment` tells its versions apart."""

    def __init__(self, path: Path, parts: Parts, moment: int) -> None:
        if parts.count > MAX_BLOCKS:
            raise BadPost(f"{parts.count} blocks are more than {MAX_BLOCKS}")
        self.path = path
        self._list = path.with_name(path.name + BLOCK_LIST)
        self._parts = parts
        self._moment = moment
        self._head = f"{moment},{parts.size},{parts.count},{parts.remainder}\n".encode()

    def open(self) -> int | None:
        """The file to write the block to, if it is missing; made if the block is the first."""
        with self._locked() as fd:
            if not self._begin(fd) or self._flags(fd)[self._parts.number] == _HERE[0]:
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
        """The block has been written. Whether the file is whole now, and has its name."""
        with self._locked() as fd:
            if not self._still_made(fd):
                return False
            os.pwrite(fd, _HERE, len(self._head) + self._parts.number)
            if _MISSING in self._flags(fd):
                return False
            self._apply_attributes(attributes, mode, mtime, atime)
            self.path.rename(final)
            if attributes.durable:
                sync_folder(final.parent)
            self._list.unlink()
            return True

    def abandon(self) -> None:
        """No other attempt will follow for one of its blocks: this version will never be whole."""
        if not self._list.exists():
            return
        with self._locked() as fd:
            head = self._read_head(fd)
            if head in (self._head, b"\n"):  # nobody makes the other
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

    def _still_made(self, fd: int) -> bool:
        """Whether the block was written to what is being made. Not so where a newer version is;
        where there is nothing, the file may have been finished meanwhile: look again."""
        head = self._read_head(fd)
        if head == b"\n":
            self._list.unlink()
            raise SourceUnavailable(f"{self.path} is not being made any more")
        return head == self._head

    def _read_head(self, fd: int) -> bytes:
        return os.pread(fd, 128, 0).partition(b"\n")[0] + b"\n"

    def _begin(self, fd: int) -> bool:
        """Whether this version is the one being made, after it has been begun if need be."""
        head = self._read_head(fd)
        if head == self._head:
            return True
        made = head.partition(b",")[0]
        if made.isdigit() and int(made) > self._moment:
            return False
        self._make_room()
        os.ftruncate(fd, 0)
        os.pwrite(fd, self._head + _MISSING * self._parts.count, 0)
        return True

    def _make_room(self) -> None:
        """An empty file of the size there will be, which takes no room yet. It is a new one, so
        that whoever still writes to the one before writes to nobody's."""
        self.path.unlink(missing_ok=True)
        try:
            with self.path.open("xb") as file:
                file.truncate(self._parts.file_size)
        except OSError as error:
            if error.errno in (errno.EFBIG, errno.EINVAL):
                raise BadPost(f"no file can have {self._parts.file_size} bytes here") from error
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
        """Not so where the file was finished, and its list removed, while we waited for it."""
        try:
            there = self._list.stat()
        except FileNotFoundError:
            return False
        ours = os.fstat(fd)
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


class BlockWriter:
    """One block as it comes in; keeps the face of a draft."""

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
