"""A journal: an append-only file of records that is compacted while it is in use.

When the file has doubled since it was last compacted, a copy is begun beside it with a snapshot of
the owner's state. The copy receives every record from then on, and replaces the file once it is on
disk: at no time is there less on disk than before. The committer writes and syncs the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.broker.log.committer import Committer
from penstock.core.data_directory import make_directory

_CREATE: Final = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC


def torn_tail(path: Path, count: int) -> str:
    """The report of an incomplete record at the end of a file, which a crash leaves."""
    return f"{path}: torn tail of {count} bytes cut"


class CompactedFile:
    __slots__ = (
        "_closed",
        "_committer",
        "_compact_at",
        "_copy",
        "_file",
        "_lazy",
        "_min_bytes",
        "_new_name",
        "_path",
        "_pending",
        "_snapshot",
        "_unsynced",
        "_written",
    )

    def __init__(
        self,
        path: Path,
        committer: Committer,
        *,
        pending: Callable[[], bytes],
        written: Callable[[], None],
        snapshot: Callable[[], bytes],
        min_bytes: int,
        lazy: bool = True,
    ) -> None:
        """`pending` returns new records, `written` clears them, `snapshot` returns the whole state.

        A file below `min_bytes` is not compacted.
        """
        self._path = path
        self._committer = committer
        self._pending = pending
        self._written = written
        self._snapshot = snapshot
        self._min_bytes = min_bytes
        self._lazy = lazy
        self._file: _RecordFile | None = None  # created by the first write
        self._copy: _RecordFile | None = None  # the compacted file, until it is on disk
        self._new_name = False  # the directory must be synced
        self._unsynced = False
        self._compact_at = min_bytes
        self._closed = False
        self._copy_path.unlink(missing_ok=True)

    @property
    def _copy_path(self) -> Path:
        return self._path.with_name(self._path.name + ".new")

    def read(self) -> bytes:
        return self._path.read_bytes() if self._path.exists() else b""

    def resume(self, end: int, report: Callable[[str], None]) -> None:
        """Append to the existing file, whose valid records end at `end`."""
        if not self._path.exists():
            return
        torn = self._path.stat().st_size - end
        self._file = _RecordFile(self._path, end)
        if torn:
            self._file.truncate()
            if (observer := self._committer.observer) is not None:
                observer.truncate(self._path, end)
            report(torn_tail(self._path, torn))
        self._unsynced = True  # a killed process may have left data that only the kernel has
        self.touch()

    def touch(self) -> None:
        """There are pending records."""
        self._committer.touch(self, lazy=self._lazy)

    def hasten(self) -> None:
        """Who waits from now on also waits for what is in the file or pending."""
        self._committer.hasten(self)

    # For the committer.

    def write(self) -> None:
        if self._closed or not (records := self._pending()):
            return
        if self._file is None:
            make_directory(self._path.parent)
            self._file = _RecordFile(self._path)
            self._new_name = True
        self._file.write(records)
        if (observer := self._committer.observer) is not None:
            observer.append(self._path, self._file.size - len(records), records)
        self._unsynced = True
        self._written()
        if self._copy is not None:
            try:
                self._copy.write(records)
            except OSError:
                self._abandon_copy()
        elif self._file.size >= self._compact_at:
            self._begin_copy()

    def begin_sync(self) -> list[int]:
        descriptors: list[int] = []
        try:
            for file in (self._file, self._copy):
                if file is not None:
                    descriptors.append(os.dup(file.fd))
            if self._new_name and not self._closed:
                for directory in (self._path.parent, self._path.parent.parent):  # which may be new
                    descriptors.append(os.open(directory, os.O_RDONLY | os.O_DIRECTORY))
        except OSError:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        self._new_name = self._unsynced = False
        return descriptors

    def end_sync(self, error: OSError | None) -> None:
        if error is not None and self._file is not None:
            self._unsynced = True
            if self._copy is None:
                self._begin_copy()  # the file's content is uncertain; memory has all of it

    # Compaction.

    def compact(self) -> None:
        """Replace the file by a compacted one now; returns when it is on disk."""
        copy = _RecordFile(self._copy_path)
        try:
            copy.write(self._snapshot())
            os.fsync(copy.fd)
            self._replace_by(copy)
        except OSError:
            copy.close()
            raise
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _begin_copy(self) -> None:
        try:
            self._copy = _RecordFile(self._copy_path)
            self._copy.write(self._snapshot())
            self._committer.also_sync(self._copy.fd)
        except OSError:
            self._abandon_copy()
        else:
            self._committer.after(self._finish_copy, lambda _: self._abandon_copy())

    def _finish_copy(self) -> None:
        if self._copy is None:
            return
        try:
            self._replace_by(self._copy)
        except OSError:  # the file as it is has all records
            self._abandon_copy()
            return
        self._copy = None
        self.touch()

    def _abandon_copy(self) -> None:
        """Keep the file; compact again when it has grown by `min_bytes`."""
        if self._copy is not None:
            self._copy.close()
            self._copy = None
        with suppress(OSError):
            self._copy_path.unlink(missing_ok=True)
        if self._file is not None:
            self._compact_at = self._file.size + self._min_bytes

    def _replace_by(self, copy: _RecordFile) -> None:
        self._copy_path.replace(self._path)
        if (observer := self._committer.observer) is not None:
            observer.replace(self._path, copy.fd, copy.size)
        if self._file is not None:
            self._file.close()
        self._file = copy
        self._new_name = self._unsynced = True
        self._compact_at = max(self._min_bytes, 2 * copy.size)

    # The end.

    def close(self) -> None:
        if self._closed:
            return
        try:
            self.write()
        finally:
            for descriptor in self.begin_sync() if self._unsynced else ():
                self._committer.adopt(descriptor)
            self._end()

    def delete(self) -> None:
        self._end()
        self._path.unlink(missing_ok=True)
        if (observer := self._committer.observer) is not None:
            observer.delete(self._path)

    def _end(self) -> None:
        self._closed = True
        self._abandon_copy()
        if self._file is not None:
            self._file.close()
            self._file = None


class _RecordFile:
    """A file that grows by whole records: the rest of a failed write is cut or overwritten."""

    __slots__ = ("fd", "size")

    def __init__(self, path: Path, size: int = 0) -> None:
        self.fd = os.open(path, _CREATE if size else _CREATE | os.O_TRUNC, 0o600)
        self.size = size

    def write(self, records: bytes) -> None:
        written = 0
        try:
            while written < len(records):
                written += os.pwrite(self.fd, records[written:], self.size + written)
        except OSError:
            with suppress(OSError):
                self.truncate()
            raise
        self.size += len(records)

    def truncate(self) -> None:
        os.ftruncate(self.fd, self.size)

    def close(self) -> None:
        os.close(self.fd)
