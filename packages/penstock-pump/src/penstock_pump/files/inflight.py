"""A file in flight: written under a temporary name, verified, then renamed.

The digest is computed while the file is written. A partial file is resumed where the checksum can
be verified in the end; otherwise, or if the checksum then differs, it is written anew. A lock keeps
other processes away.
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
    preserve_mode: bool = True
    preserve_times: bool = True
    mode: int | None = None  #: of files announced without one
    folder_mode: int = 0o775
    durable: bool = True  #: sync before the rename


class InflightFile:
    """Opened, written and renamed; or closed, which keeps it only if it can be resumed."""

    __slots__ = ("_digest", "_fd", "_length", "_resumable", "path", "written")

    def __init__(self, path: str, length: int | None, digest: Digest | None) -> None:
        self.path = path
        self.written = 0
        self._length = length
        self._digest = digest
        self._fd = -1
        self._resumable = False

    def open(self, *, resume: bool = True) -> int:
        """The number of bytes that a former attempt wrote."""
        size = self._open_locked()
        while size is None:
            size = self._open_locked()
        self._resumable = resume and self._digest is not None and self._length is not None
        if size == 0:
            return 0
        if not self._resumable or self._length is None or size > self._length:
            os.ftruncate(self._fd, 0)
            return 0
        assert self._digest is not None
        while size > self.written and (chunk := os.read(self._fd, CHUNK)):
            self._digest.update(chunk)
            self.written += len(chunk)
        return size

    def _open_locked(self) -> int | None:
        """The size; None if another process renamed the file before we had the lock."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._fd = os.open(self.path, flags, 0o644)
        except FileNotFoundError:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, flags, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            opened, current = os.fstat(self._fd), os.stat(self.path)  # noqa: PTH116
        except BlockingIOError:
            self._release()
            raise SourceUnavailable(f"{self.path} is being written by another process") from None
        except FileNotFoundError:
            self._release()
            return None
        if not os.path.samestat(opened, current):
            self._release()
            return None
        return opened.st_size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += len(data)
        if self._length is not None and self.written > self._length:
            os.ftruncate(self._fd, 0)  # it cannot be resumed
            raise WrongSize(f"more than the {self._length} bytes announced")
        if self._digest is not None:
            self._digest.update(memoryview(data))
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def verify(self, announced: Checksum | None, *, strict: bool) -> Checksum | None:
        """The checksum. A file that is too short can be resumed; one with another checksum not."""
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

    def rename_to(self, path: str) -> str:
        """Returns the folder, which the caller syncs."""
        os.rename(self.path, path)  # noqa: PTH104 - Path.rename costs twice as much
        self._release()
        return os.path.dirname(path)  # noqa: PTH120

    def close(self) -> None:
        """Removes the file unless it was renamed or can be resumed. It is still locked, so no other
        process has opened it."""
        if self._fd >= 0:
            if not self._resumable or os.fstat(self._fd).st_size == 0:
                _unlink(self.path)
            self._release()

    def abandon(self) -> None:
        """Removes the file unless another process writes to it."""
        if not os.path.lexists(self.path):
            return
        with contextlib.suppress(OSError, SourceUnavailable):
            self.open(resume=False)
            self.close()

    def _release(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108


def set_attributes(
    fd: int, attributes: FileAttributes, mode: int | None, mtime: int | None, atime: int | None
) -> None:
    """Sets the announced mode and times."""
    new_mode = mode if mode is not None and attributes.preserve_mode else attributes.mode
    # Most files have the mode already, and reading it costs less than setting it.
    if new_mode is not None and new_mode & 0o777 != stat.S_IMODE(os.fstat(fd).st_mode):
        os.fchmod(fd, new_mode & 0o777)
    if mtime is not None and attributes.preserve_times:
        os.utime(fd, ns=(mtime if atime is None else atime, mtime))
