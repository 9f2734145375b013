"""The files of a follower: changes are applied in order and synced together."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.cluster.file_index import is_replicated
from penstock.cluster.frames import Change, ChangeKind, FilePart, ReplicatedBatch
from penstock.core.errors import FrameError

#: Open files.
OPEN_FILES: Final = 128


def replicated_path(path: str) -> str:
    """Only files that are replicated, and only below the data directory."""
    if not is_replicated(path) or ".." in path.split("/"):
        raise FrameError(f"replication: {path!r} is not a replicated file")
    return path


class ReplicaFiles:
    """The files of a follower. Everything runs in one thread at a time."""

    def __init__(self, data: Path, observe_sync: Callable[[float], None] = lambda _: None) -> None:
        self._data = data
        self._observe_sync = observe_sync
        self._open: OrderedDict[str, int] = OrderedDict()
        self._written: set[str] = set()  # not synced
        self._directories: set[Path] = set()  # with new names
        #: Changes up to this sequence may meet files of a later state: they are repeated.
        self.lenient_until = -1

    def store(self, parts: list[FilePart]) -> None:
        """Content of the copy."""
        for path, position, data in parts:
            self._write(replicated_path(path), position, data)

    def apply(self, batches: list[ReplicatedBatch]) -> None:
        """Write the changes in order, and sync them."""
        for batch in batches:
            lenient = batch.sequence <= self.lenient_until
            for change in batch.changes:
                self._apply(change, lenient)
        self.sync()

    def _apply(self, change: Change, lenient: bool) -> None:
        kind, path, number, data = change
        replicated_path(path)
        match kind:
            case ChangeKind.APPEND:
                fd = self._file(path)
                if not lenient and number > os.fstat(fd).st_size:
                    raise FrameError(f"replication: {path} ends before byte {number}")
                self._write(path, number, data)
            case ChangeKind.TRUNCATE:
                os.ftruncate(self._file(path), number)
                self._written.add(path)
            case ChangeKind.DELETE:
                self._delete(path)
            case ChangeKind.BEGIN:
                self._close(path + ".part")
                (self._data / (path + ".part")).unlink(missing_ok=True)
                self._file(path + ".part")
            case ChangeKind.PART:
                self._write(path + ".part", number, data)
            case ChangeKind.COMMIT:
                self._commit(path, number)
            case ChangeKind.LINK:
                self._link(path, replicated_path(data.decode()), lenient)

    def _commit(self, path: str, size: int) -> None:
        part = self._data / (path + ".part")
        fd = self._file(path + ".part")
        if os.fstat(fd).st_size != size:
            raise FrameError(f"replication: {path} has not {size} bytes")
        os.fdatasync(fd)
        self._close(path + ".part")
        self._close(path)
        part.replace(self._data / path)
        self._directories.add(part.parent)

    def _link(self, path: str, other: str, lenient: bool) -> None:
        self._close(path)
        target = self._data / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            os.link(self._data / other, target)
        except FileNotFoundError:
            if not lenient:
                raise FrameError(f"replication: {other} is missing, {path} links to it") from None
        self._directories.add(target.parent)

    def _delete(self, path: str) -> None:
        target = self._data / path
        for name in [name for name in self._open if name == path or name.startswith(path + "/")]:
            self._close(name)
        if target.is_dir():
            shutil.rmtree(target)
            self._directories = {
                one for one in self._directories if one != target and target not in one.parents
            }
        else:
            target.unlink(missing_ok=True)
            target.with_suffix(".idx").unlink(missing_ok=True)

    def _write(self, path: str, position: int, data: bytes) -> None:
        fd = self._file(path)
        written = 0
        while written < len(data):
            written += os.pwrite(fd, data[written:], position + written)
        self._written.add(path)

    def _file(self, path: str) -> int:
        fd = self._open.get(path)
        if fd is not None:
            self._open.move_to_end(path)
            return fd
        file = self._data / path
        if not file.parent.is_dir():
            file.parent.mkdir(parents=True, mode=0o700)
            self._directories.update((file.parent, file.parent.parent))
        if not file.exists():
            self._directories.add(file.parent)
        fd = self._open[path] = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while len(self._open) > OPEN_FILES:
            oldest = next(iter(self._open))
            if oldest in self._written:
                os.fdatasync(self._open[oldest])
            self._close(oldest)
        return fd

    def _close(self, path: str) -> None:
        fd = self._open.pop(path, None)
        if fd is not None:
            os.close(fd)
        self._written.discard(path)

    def sync(self) -> None:
        started = time.monotonic()
        has_work = bool(self._written or self._directories)
        for path in self._written:
            os.fdatasync(self._open[path])
        self._written.clear()
        for directory in self._directories:
            with contextlib.suppress(FileNotFoundError):
                fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        self._directories.clear()
        if has_work:
            self._observe_sync(time.monotonic() - started)

    def close(self) -> None:
        for path in list(self._open):
            self._close(path)
