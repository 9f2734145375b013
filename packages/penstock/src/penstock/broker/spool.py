"""Spools: files that hold the bodies of large messages.

A thread appends fragments and reads them back one bucket at a time, so that a slow disk never
blocks the loop. A durable destination hard-links the file into its own directory (`BodyFiles`): the
file system counts the references. A file without a link is removed with the last `Spool` object, or
at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from penstock.broker.buckets import BUCKET_BYTES, Bucket, BucketPool, MemoryAccount
from penstock.broker.disk_thread import DiskThread
from penstock.broker.log.committer import Committer
from penstock.core.data_directory import private_directory

#: Delay before a failed write is retried.
RETRY_SECONDS = 0.5
#: The priority of the disk thread, so that large messages do not delay small ones.
NICENESS: Final = 10


class Spool:
    """A message body in a file."""

    __slots__ = ("__weakref__", "_fd", "owned", "path", "size")

    def __init__(self, path: Path, *, owned: bool) -> None:
        self.path = path
        self._fd = -1
        self.owned = owned  #: the file is removed with this object
        self.size = 0 if owned else path.stat().st_size

    def fileno(self) -> int:
        if self._fd < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL if self.owned else os.O_RDONLY
            self._fd = os.open(self.path, flags | os.O_CLOEXEC, 0o600)
        return self._fd

    def link(self, path: Path) -> None:
        """Add a name that outlives this object."""
        with contextlib.suppress(FileExistsError):
            os.link(self.path, path)

    def write(self, data: memoryview) -> None:
        fd = self.fileno()
        written = 0
        while written < len(data):
            written += os.pwrite(fd, data[written:], self.size + written)
        self.size += written

    def read_into(self, bucket: Bucket, offset: int) -> None:
        bucket.filled = os.preadv(self.fileno(), [bucket.memory], offset)

    def read(self) -> bytes:
        return os.pread(self.fileno(), self.size, 0)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            if self.owned:
                with contextlib.suppress(FileNotFoundError):
                    self.path.unlink()


class Spools:
    """The spool directory of a broker, and its thread."""

    def __init__(
        self,
        directory: Path,
        pool: BucketPool,
        loop: asyncio.AbstractEventLoop,
        *,
        on_fault: Callable[[OSError], None],
        on_recovered: Callable[[], None],
    ) -> None:
        self.directory = directory
        self._on_fault = on_fault
        self._on_recovered = on_recovered
        self._faults = 0  # failed writes
        shutil.rmtree(directory, ignore_errors=True)
        private_directory(directory)
        self._account = MemoryAccount(pool, 1 << 62, lambda: None)
        self._numbers = count(1)
        self._loop = loop
        self._thread = DiskThread(loop, "penstock-spool", NICENESS)

    def receive(self, on_complete: Callable[[Spool], None]) -> SpoolWriter:
        path = self.directory / f"{next(self._numbers):012d}"
        return SpoolWriter(Spool(path, owned=True), self, on_complete)

    def relink(self, spool: Spool) -> Spool:
        """A spool with its own link, for a body whose destination is about to remove it."""
        if spool.owned:
            return spool
        path = self.directory / f"{next(self._numbers):012d}"
        spool.link(path)
        linked = Spool(path, owned=False)
        linked.fileno()
        linked.owned = True
        return linked

    def write(self, spool: Spool, data: memoryview, done: Callable[[], None]) -> None:
        """Append to a body, with retries while the disk is full; then call `done`."""
        self._thread.submit(
            partial(spool.write, data), partial(self._wrote, spool, data, done, False)
        )

    def _wrote(
        self,
        spool: Spool,
        data: memoryview,
        done: Callable[[], None],
        again: bool,
        error: OSError | None,
    ) -> None:
        if error is not None:
            self._faults += not again
            self._on_fault(error)
            self._loop.call_later(RETRY_SECONDS, self._retry, spool, data, done)
            return
        self._faults -= again
        if again and not self._faults:
            self._on_recovered()
        done()

    def _retry(self, spool: Spool, data: memoryview, done: Callable[[], None]) -> None:
        self._thread.submit(
            partial(spool.write, data), partial(self._wrote, spool, data, done, True)
        )

    def read(
        self, spool: Spool, offset: int, done: Callable[[Bucket, OSError | None], None]
    ) -> None:
        """Fill a bucket from a body, then call `done`, which releases it."""
        bucket = self._account.take(BUCKET_BYTES)
        self._thread.submit(partial(spool.read_into, bucket, offset), partial(done, bucket))

    def close(self) -> None:
        self._thread.stop()


class SpoolWriter:
    """Writes buckets to a spool one after another, then calls `on_complete`."""

    __slots__ = ("_cancelled", "_ended", "_on_complete", "_spools", "_waiting", "_writing", "spool")

    def __init__(self, spool: Spool, spools: Spools, on_complete: Callable[[Spool], None]) -> None:
        self.spool = spool
        self._spools = spools
        self._on_complete = on_complete
        self._waiting: deque[Bucket] = deque()
        self._writing: Bucket | None = None
        self._ended = False
        self._cancelled = False

    def append(self, bucket: Bucket, last: bool) -> None:
        self._waiting.append(bucket)
        self._ended = last
        if self._writing is None:
            self._write()

    def _write(self) -> None:
        self._writing = bucket = self._waiting.popleft()
        self._spools.write(self.spool, bucket.content, self._written)

    def _written(self) -> None:
        bucket, self._writing = self._writing, None
        assert bucket is not None
        try:
            if self._waiting:
                self._write()
            elif self._ended and not self._cancelled:
                self._on_complete(self.spool)
        finally:
            bucket.release()

    def cancel(self) -> None:
        """Drop the body: the sender is gone. A running write ends first."""
        self._cancelled = True
        for bucket in self._waiting:
            bucket.release()
        self._waiting.clear()


class BodyFiles:
    """The bodies of large messages beside a log: files named by the offsets of their records.

    A body is linked before its record is written, and removed only when the record's successor or
    acknowledgement is stored. The receiver of a message has synced its bytes.
    """

    __slots__ = ("_committer", "_directory")

    def __init__(self, directory: Path, committer: Committer) -> None:
        self._directory = directory
        self._committer = committer

    def path(self, offset: int) -> Path:
        return self._directory / f"{offset:020d}.body"

    def open(self, offset: int, size: int | None = None) -> Spool:
        """The body of a record, which has this size; raises FileNotFoundError, also if it is
        incomplete: a power cut came before it was synced, so its message was not confirmed."""
        spool = Spool(self.path(offset), owned=False)
        if size is not None and spool.size != size:
            raise FileNotFoundError(f"{spool.path} has {spool.size} bytes, not {size}")
        return spool

    def sizes(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The offsets in a range that have a body here, and its size, in order."""
        found = []
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if entry.name.endswith(".body") and start <= int(entry.name[:-5]) < stop:
                    with contextlib.suppress(FileNotFoundError):  # retention has just removed it
                        found.append((int(entry.name[:-5]), entry.stat().st_size))
        return sorted(found)

    def add(self, offset: int, spool: Spool) -> None:
        path = self.path(offset)
        spool.link(path)
        if (observer := self._committer.observer) is not None:
            observer.replace(path, spool.fileno(), spool.size)
        self._committer.adopt(os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY))

    def remove(self, offset: int) -> None:
        self._delete(self.path(offset))

    def remove_later(self, offset: int) -> None:
        """Remove a body once everything appended so far is on disk."""
        self._committer.after(lambda: self.remove(offset))

    def sweep(self, is_live: Callable[[int], bool]) -> None:
        for body in self._directory.glob("*.body"):
            if not is_live(int(body.stem)):
                self._delete(body)

    def _delete(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        if (observer := self._committer.observer) is not None:
            observer.delete(path)
