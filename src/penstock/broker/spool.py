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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from penstock.broker.buckets import BUCKET_BYTES, Account, Bucket, BucketPool

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
        *,
        on_fault: Callable[[OSError], None],
        on_recovered: Callable[[], None],
    ) -> None:
        self.directory = directory
        self._on_fault = on_fault
        self._on_recovered = on_recovered
        self._faults = 0  # writes that are being tried again
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self._account = Account(pool, 1 << 62, lambda: None)
        self._numbers = count(1)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spool")

    def receive(self, on_complete: Callable[[Spool], None]) -> Reception:
        """Begin to take in a body."""
        path = self.directory / f"{next(self._numbers):012d}"
        return Reception(Spool(path, owned=True), self, on_complete)

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

    async def write(self, spool: Spool, data: memoryview) -> None:
        """Append to a body, however long the disk takes to have room for it."""
        loop = asyncio.get_running_loop()
        failed = False
        try:
            while True:
                try:
                    await loop.run_in_executor(self._thread, spool.write, data)
                    return
                except OSError as error:
                    self._faults += not failed
                    failed = True
                    self._on_fault(error)
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._faults -= failed
            if failed and not self._faults:
                self._on_recovered()

    async def read(self, spool: Spool, offset: int) -> Bucket:
        """One bucket of the body, from `offset`; the caller releases it."""
        bucket = self._account.take(BUCKET_BYTES)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, spool.read_into, bucket, offset)
        except OSError:
            bucket.release()
            raise
        return bucket

    def close(self) -> None:
        self._thread.shutdown(wait=True)


class Reception:
    """A body on its way in: buckets waiting for the thread, then `on_complete`."""

    __slots__ = ("_ended", "_on_complete", "_spools", "_task", "_waiting", "spool")

    def __init__(self, spool: Spool, spools: Spools, on_complete: Callable[[Spool], None]) -> None:
        self.spool = spool
        self._spools = spools
        self._on_complete = on_complete
        self._waiting: list[Bucket] = []
        self._ended = False
        self._task: asyncio.Task[None] | None = None

    def append(self, bucket: Bucket, last: bool) -> None:
        self._waiting.append(bucket)
        self._ended = last
        if self._task is None:
            self._task = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        try:
            while self._waiting:
                bucket = self._waiting[0]
                await self._spools.write(self.spool, bucket.content)
                del self._waiting[0]
                try:
                    if self._ended and not self._waiting:
                        self._on_complete(self.spool)
                finally:
                    bucket.release()
        finally:
            self._task = None

    def cancel(self) -> None:
        """The sender has gone: drop what came of it."""
        if self._task is not None:
            self._task.cancel()
        for bucket in self._waiting:
            bucket.release()
        self._waiting.clear()
