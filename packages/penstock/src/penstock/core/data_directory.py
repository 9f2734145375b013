"""Data directories: readable by their owner only, and locked by one process.

A lock is a file locked by `flock`. It names the process that holds it; the system releases it when
the process ends. Two locks on one file exclude each other within one process, too.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from penstock.core.errors import PreconditionFailed, ResourceLocked

#: A file in a directory whose restore from a backup is not complete.
RESTORE_MARKER: Final = "restore.incomplete"


class FileLock:
    """An exclusive lock on a file, which is created if missing and never removed."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def acquire(self, *, wait: bool = False) -> bool:
        """Returns False if another holder has the lock; with `wait`, blocks until it is free."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            os.close(fd)
            return False
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        return True

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    @property
    def is_held(self) -> bool:
        try:
            with self.path.open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    @property
    def holder(self) -> str:
        """The process that holds it, for messages."""
        try:
            number = self.path.read_text().strip()
        except OSError:
            number = ""
        return f"process {number}" if number.isdecimal() else "another process"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def lock_directory(directory: Path, name: str, advice: str) -> FileLock:
    """Lock a directory by the file `name` in it; raises `ResourceLocked` with `advice`.

    Parts that share a directory use different names. A directory with an incomplete restore is
    refused.
    """
    if (directory / RESTORE_MARKER).exists():
        raise PreconditionFailed(
            f"{directory} was not restored completely: run `penstock restore` again"
        )
    lock = FileLock(directory / name)
    if not lock.acquire():
        raise ResourceLocked(f"{directory} is in use by {lock.holder}: {advice}")
    return lock


def private_directory(path: Path, *, traversable: bool = False) -> Path:
    """Create a directory with mode 0700, or restrict an existing one.

    With `traversable`, permission of others to pass through (not to list) stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.stat()
    surplus = status.st_mode & (0o066 if traversable else 0o077)
    if surplus and status.st_uid == os.geteuid():
        path.chmod(status.st_mode & 0o7777 & ~surplus)
    return path


def make_directory(path: Path) -> None:
    """Create a directory. The names of new parents are on disk when it returns; its own is not."""
    if not path.parent.exists():
        make_directory(path.parent)
        descriptor = os.open(path.parent.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    path.mkdir(exist_ok=True)


def private_opener(path: str, flags: int) -> int:
    """For `open`: created files are readable and writable by their owner only."""
    return os.open(path, flags, 0o600)
