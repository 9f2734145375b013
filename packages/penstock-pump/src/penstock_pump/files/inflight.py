"""A file as it comes in: written under its name in flight, verified, and then given its name.

The digest is computed while it is written. A draft that was left half-written is gone on with where
its sum can be verified in the end; where it cannot, or where the sum then differs, it is begun
again. Another process that is at the same file holds a lock on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.core.units import MiB
from penstock_pump.errors import SourceUnavailable, SumMismatch, WrongSize
from penstock_pump.posts.checksums import Checksum, Digest, checked_checksum

CHUNK: Final = MiB


@dataclass(frozen=True, slots=True)
class FileAttributes:
    """What is done about files beside their content."""

    keep_mode: bool = True
    keep_times: bool = True
    mode: int | None = None  #: for those that come without one
    folder_mode: int = 0o775
    durable: bool = True  #: on the disk before it is called done


class InflightFile:
    """Opened, written, and then given its name; or closed, and then it stays only where another
    attempt can go on with what it has."""

    __slots__ = ("_digest", "_fd", "_length", "_resumable", "path", "written")

    def __init__(self, path: str, length: int | None, digest: Digest | None) -> None:
        self.path = path
        self.written = 0
        self._length = length
        self._digest = digest
        self._fd = -1
        self._resumable = False

    def open(self, *, resume: bool = True) -> int:
        """How many bytes are there already."""
        there = self._locked()
        while there is None:
            there = self._locked()
        self._resumable = resume and self._digest is not None and self._length is not None
        if there == 0:
            return 0
        if not self._resumable or self._length is None or there > self._length:
            os.ftruncate(self._fd, 0)
            return 0
        assert self._digest is not None
        while there > self.written and (chunk := os.read(self._fd, CHUNK)):
            self._digest.update(chunk)
            self.written += len(chunk)
        return there

    def _locked(self) -> int | None:
        """Its size, when it is ours; None where it got its name before it was, and is to be left
        alone."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._fd = os.open(self.path, flags, 0o644)
        except FileNotFoundError:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, flags, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours, there = os.fstat(self._fd), os.stat(self.path)  # noqa: PTH116
        except BlockingIOError:
            self._let_go()
            raise SourceUnavailable(f"{self.path} is being written by another process") from None
        except FileNotFoundError:
            self._let_go()
            return None
        if (ours.st_ino, ours.st_dev) != (there.st_ino, there.st_dev):
            self._let_go()
            return None
        return ours.st_size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += len(data)
        if self._length is not None and self.written > self._length:
            os.ftruncate(self._fd, 0)  # what there is of it is not what was announced
            raise WrongSize(f"more than the {self._length} bytes announced")
        if self._digest is not None:
            self._digest.update(memoryview(data))
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def verify(self, announced: Checksum | None, *, strict: bool) -> Checksum | None:
        """The sum to announce it by. Too little is left to be gone on with; another sum is not."""
        if self._length is not None and self.written < self._length:
            raise WrongSize(f"{self.written} bytes of the {self._length} announced")
        try:
            return checked_checksum(announced, self._digest, strict=strict)
        except SumMismatch:
            os.ftruncate(self._fd, 0)
            raise

    def apply_attributes(
        self, attributes: FileAttributes, mode: int | None, mtime: int | None, atime: int | None
    ) -> None:
        set_attributes(self._fd, attributes, mode, mtime, atime)

    @property
    def file(self) -> int:
        return self._fd

    def name(self, place: str) -> str:
        """Give it its name, which is on the disk when its folder is. That folder."""
        os.rename(self.path, place)  # noqa: PTH104 - Path.rename costs twice as much
        self._let_go()
        return os.path.dirname(place)  # noqa: PTH120

    def close(self) -> None:
        """Nothing to do where it has its name. It is removed while it is locked: nobody else has
        begun to write to it."""
        if self._fd >= 0:
            if not self._resumable or os.fstat(self._fd).st_size == 0:
                _unlink(self.path)
            self._let_go()

    def abandon(self) -> None:
        """No other attempt will follow; what another process is at stays."""
        if not os.path.lexists(self.path):
            return
        with contextlib.suppress(OSError, SourceUnavailable):
            self.open(resume=False)
            self.close()

    def _let_go(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108


def set_attributes(
    fd: int, attributes: FileAttributes, mode: int | None, mtime: int | None, atime: int | None
) -> None:
    """Give a file the mode and the times it was announced with."""
    wanted = mode if mode is not None and attributes.keep_mode else attributes.mode
    # To set a mode costs a file system more than to look at it, and most files have it already.
    if wanted is not None and wanted & 0o777 != stat.S_IMODE(os.fstat(fd).st_mode):
        os.fchmod(fd, wanted & 0o777)
    if mtime is not None and attributes.keep_times:
        os.utime(fd, ns=(mtime if atime is None else atime, mtime))
