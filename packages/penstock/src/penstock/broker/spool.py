"""Spools: where the body of a large message lies, from its first fragment to its last reader.

A spool is a file. Fragments are appended by a thread, so that a slow disk never holds up the loop,
and read back one bucket at a time. A durable destination that takes the message hard-links the
file into its own directory: the file system counts the references, and what nobody linked is gone
with the last `Spool` object, or at the next start.
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
from queue import SimpleQueue
from threading import Thread, get_native_id
from typing import Final

from penstock.broker.buckets import BUCKET_BYTES, Bucket, BucketPool, MemoryAccount
from penstock.core.data_directory import private_directory

#: How long to wait before another try when the disk has refused a write.
RETRY_SECONDS = 0.5


class Spool:
    """A message body in a file."""

    __slots__ = ("__weakref__", "_fd", "owned", "path", "size")

    def __init__(self, path: Path, *, owned: bool) -> None:
        self.path = path
        self._fd = -1
        self.owned = owned  #: this object's file: goes when the object goes
        self.size = 0 if owned else path.stat().st_size

    def fileno(self) -> int:
        if self._fd < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL if self.owned else os.O_RDONLY
            self._fd = os.open(self.path, flags | os.O_CLOEXEC, 0o600)
        return self._fd

    def link(self, path: Path) -> None:
        """Give the body another name, that outlives this object."""
        with contextlib.suppress(FileExistsError):
            os.link(self.path, path)

    def write(self, data: memoryview) -> None:
        """Append all of `data`, or nothing that counts."""
        fd = self.fileno()
        written = 0
        while written < len(data):
            written += os.pwrite(fd, data[written:], self.size + written)
        self.size += written

    def read_into(self, bucket: Bucket, offset: int) -> None:
        bucket.filled = os.preadv(self.fileno(), [bucket.memory], offset)

    def read(self) -> bytes:
        """The whole body: for those who must have it in memory."""
        return os.pread(self.fileno(), self.size, 0)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            if self.owned:
                with contextlib.suppress(FileNotFoundError):
                    self.path.unlink()


class Spools:
    """The spool directory of a broker and the thread that works for it."""

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
        self._faults = 0  # writes that are being tried again
        shutil.rmtree(directory, ignore_errors=True)
        private_directory(directory)
        self._account = MemoryAccount(pool, 1 << 62, lambda: None)
        self._numbers = count(1)
        self._loop = loop
        self._thread = DiskThread(loop)

    def receive(self, on_complete: Callable[[Spool], None]) -> SpoolWriter:
        """Begin to take in a body."""
        path = self.directory / f"{next(self._numbers):012d}"
        return SpoolWriter(Spool(path, owned=True), self, on_complete)

    def keep(self, spool: Spool) -> Spool:
        """A hold on a body that the destination it lies with is about to let go of."""
        if spool.owned:
            return spool
        path = self.directory / f"{next(self._numbers):012d}"
        spool.link(path)
        kept = Spool(path, owned=False)
        kept.fileno()
        kept.owned = True
        return kept

    def write(self, spool: Spool, data: memoryview, done: Callable[[], None]) -> None:
        """Append to a body, however long the disk takes to have room for it; then call `done`."""
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
        """Fill a bucket from a body, then call `done` with it, which releases it."""
        bucket = self._account.take(BUCKET_BYTES)
        self._thread.submit(partial(spool.read_into, bucket, offset), partial(done, bucket))

    def close(self) -> None:
        self._thread.stop()


class SpoolWriter:
    """A body on its way in: buckets waiting for the disk, then `on_complete`."""

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
        """The sender has gone: drop what came of it. A write that is under way ends first."""
        self._cancelled = True
        for bucket in self._waiting:
            bucket.release()
        self._waiting.clear()


# Bulk reading and writing away from the loop: one thread, one piece of work after another.
#
# The thread runs at a lower priority than the loop's, where the system lets it: moving a huge body
# may take longer, small messages meanwhile may not.

#: What the thread yields to the rest of the process.
NICENESS: Final = 10

DiskWork = Callable[[], None]
DiskCallback = Callable[[OSError | None], None]


class DiskThread:
    __slots__ = ("_jobs", "_loop", "_thread")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[tuple[DiskWork, DiskCallback] | None] = SimpleQueue()
        self._thread: Thread | None = None

    def submit(self, work: DiskWork, done: DiskCallback) -> None:
        """Do `work` in the thread, then call `done` on the loop with what went wrong, if it did."""
        if self._thread is None:  # a broker with no large messages needs no thread
            self._thread = Thread(target=self._run, name="penstock-spool", daemon=True)
            self._thread.start()
        self._jobs.put((work, done))

    def stop(self) -> None:
        """End the thread once it has done what it was given."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, get_native_id(), NICENESS)
        while (job := self._jobs.get()) is not None:
            work, done = job
            failure = None
            try:
                work()
            except OSError as error:
                failure = error
            try:
                self._loop.call_soon_threadsafe(done, failure)
            except RuntimeError:  # the loop has ended
                return
            del job, work, done  # what they hold on to may have a file of its own
