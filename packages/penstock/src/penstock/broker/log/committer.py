"""Group commit: one fdatasync for all waiting publishers.

At the end of a write batch, `write` writes pending data of all touched logs to their files. If
publishers wait, a thread then syncs the written files, and confirms everything written before the
sync began. Meanwhile the next cycle collects.

Nothing is confirmed before it is on disk. A failed write (disk full, I/O error) keeps its data in
memory, is reported once and retried until it succeeds. A failed sync is not repeated, because the
kernel may have dropped the pages: its waiters fail. Hooks tell the broker, which blocks publishers
during a fault.

Acknowledgements are *lazy*: written after the data of the same batch, so that a message moved
between queues is always in one of the files, and synced within a second, or with the next cycle if
somebody waits for them (`hasten`).
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from penstock.broker.contract import Channel
from penstock.broker.disk_thread import DiskThread
from penstock.broker.log.observer import CommitWaiters, StorageObserver

#: The delay of syncs that nobody waits for.
LAZY_SYNC_SECONDS: Final = 1.0


class Writable(Protocol):
    """A file that the committer writes and syncs."""

    def write(self) -> None:
        """Write pending data; after an OSError it stays pending."""

    def begin_sync(self) -> list[int]:
        """Descriptors to sync and close, so that all written data is on disk."""

    def end_sync(self, error: OSError | None) -> None: ...


class HasFileno(Protocol):
    def fileno(self) -> int: ...


def _nothing() -> None:
    return None


class Committer:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        on_fault: Callable[[OSError], None],
        on_recovered: Callable[[], None],
        on_synced: Callable[[], None] = _nothing,
        observe_sync: Callable[[float], None] = lambda _: None,
        retry_seconds: float = 0.5,
        sync: Callable[[int], None] = os.fdatasync,
    ) -> None:
        self._loop = loop
        #: Is told every change of a file; waiters also wait for it.
        self.observer: StorageObserver | None = None
        self.is_replicated = False  #: the broker leads a cluster
        self._sequence = 0  # of the last batch that the current cycle syncs
        self._on_fault = on_fault
        self._on_recovered = on_recovered
        self._on_synced = on_synced
        self._observe_sync = observe_sync  #: gets the seconds that each sync took
        self._sync_started = 0.0
        self._retry_seconds = retry_seconds
        self._sync = sync
        self._thread = DiskThread(loop, "penstock-sync")
        self._touched: dict[Writable, None] = {}  # with pending data
        self._touched_lazily: dict[Writable, None] = {}
        self._hastened: list[Writable] = []
        self._dirty: dict[Writable, None] = {}  # written, not synced
        self._dirty_lazily: dict[Writable, None] = {}
        self._others: list[int] = []  # further descriptors to sync
        self._fresh = CommitWaiters()  # their data may be pending
        self._written = CommitWaiters()  # their data is in the files
        self._syncing: CommitWaiters | None = None  # set during a cycle
        self._syncing_files: list[Writable] = []
        self._fault: OSError | None = None
        self._probing = False  # the current cycle tells whether the fault is over
        self._overdue = False  # the next cycle includes lazy files
        self._lazy_timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._cycle_ended: asyncio.Future[bool] | None = None
        self._closing = False
        self._closed = False

    # For logs and drivers.

    def touch(self, log: Writable, lazy: bool = False) -> None:
        """`log` has pending data."""
        if lazy:
            self._touched_lazily[log] = None
        else:
            self._touched[log] = None

    def hasten(self, log: Writable) -> None:
        """Who waits from now on also waits for what was written to this file lazily."""
        self._hastened.append(log)

    def wait(self, channel: Channel, receipt: int | Sequence[int], in_sync: int = 1) -> None:
        """Confirm this receipt, or those of a run, once everything appended so far is on disk: on
        the disks of all in-sync members of a cluster, or only here."""
        if in_sync:
            self._fresh.receipts.append((channel, receipt))
        else:
            self._fresh.local.append((channel, receipt))

    def after(
        self, callback: Callable[[], None], failed: Callable[[OSError], None] | None = None
    ) -> None:
        """Call back once everything appended so far is on disk, or `failed` if it cannot be.

        In a cluster, it is on the disks of all in-sync members.
        """
        self._fresh.callbacks.append((callback, failed))

    def also_sync(self, file: int | HasFileno) -> None:
        """Also sync this file, before later waiters are confirmed."""
        self.adopt(os.dup(file if isinstance(file, int) else file.fileno()))

    def when_replicated(self, callback: Callable[[], None]) -> None:
        """For `end_sync`: call back now, or when the in-sync members have what was synced."""
        if self.observer is None:
            callback()
        elif self._syncing is not None:
            self._syncing.callbacks.insert(0, (callback, None))

    def adopt(self, descriptor: int) -> None:
        """Also sync this descriptor, then close it."""
        if not self._closed:
            self._others.append(descriptor)
            self._sync_soon()
        else:
            sync_all([descriptor], self._sync)

    # For the broker.

    @property
    def pending(self) -> bool:
        if self._touched or self._touched_lazily:
            return True
        fresh = self._fresh
        return bool(fresh.local or fresh.receipts or fresh.callbacks)

    @property
    def has_fault(self) -> bool:
        """Pending data cannot be written now."""
        return self._fault is not None

    @property
    def refuses(self) -> bool:
        """Too few members of the cluster are in sync for queues that need them."""
        return self.observer is not None and self.observer.refuses

    @property
    def unwritten(self) -> int:
        """The number of files that `write` will write."""
        return len(self._touched)

    def write(self) -> None:
        """Write everything pending at the end of a write batch, and sync if anybody waits."""
        if self._fault is not None or not self._write_touched():
            return  # the retry timer continues
        if self._written:
            if self._syncing is None:
                self._begin()
        else:
            self._sync_soon()

    async def close(self) -> None:
        """Write, sync, confirm all waiters, or fail them, and stop the thread."""
        self._closing = True
        for timer in (self._lazy_timer, self._retry_timer):
            if timer is not None:
                timer.cancel()
        await self._cycle()
        self._fault = None  # one more attempt
        while self._write_touched() and self._unsynced():
            self._overdue = True
            self._begin()
            if not await self._cycle():
                break
        self._written.merge(self._fresh)
        cause = OSError(errno.ESHUTDOWN, "the broker closed")
        self._written.fail(self.report, cause)
        if self.observer is not None:
            self.observer.fail(cause)
        self._written = CommitWaiters()
        self._on_synced()
        self._thread.stop()
        self._closed = True

    def _write_touched(self) -> bool:
        try:
            for touched, dirty in (
                (self._touched, self._dirty),
                (self._touched_lazily, self._dirty_lazily),
            ):
                for log in list(touched):
                    log.write()
                    del touched[log]
                    dirty[log] = None
        except OSError as error:
            self._failed(error)
            return False
        if self._hastened:
            for log in self._hastened:
                if log in self._dirty_lazily:
                    del self._dirty_lazily[log]
                    self._dirty[log] = None
            self._hastened.clear()
        self._written.merge(self._fresh)
        if self.observer is not None:
            self.observer.seal()
        return True

    def _failed(self, error: OSError) -> None:
        first, self._fault = self._fault is None, error
        if not self._closing and self._retry_timer is None:
            self._retry_timer = self._loop.call_later(self._retry_seconds, self._retry)
        if first:
            self._on_fault(error)

    def _retry(self) -> None:
        self._retry_timer = None
        if self._syncing is not None:  # it began before the fault
            self._retry_timer = self._loop.call_later(self._retry_seconds, self._retry)
        elif self._write_touched():
            self._probing = self._overdue = True
            self._begin()

    def _unsynced(self) -> bool:
        return bool(self._dirty or self._dirty_lazily or self._others or self._written)

    def _sync_soon(self) -> None:
        if self._lazy_timer is None and not self._closing and self._unsynced():
            self._lazy_timer = self._loop.call_later(LAZY_SYNC_SECONDS, self._sync_lazily)

    def _sync_lazily(self) -> None:
        self._lazy_timer = None
        self._overdue = True
        if self._syncing is None:
            self._begin()

    def _begin(self) -> None:
        """Start a cycle: sync everything that must be on disk for the waiters."""
        self._syncing, self._written = self._written, CommitWaiters()
        self._sync_started = self._loop.time()
        if self.observer is not None:
            self._sequence = self.observer.seal()
        files = list(self._dirty)
        self._dirty.clear()
        if self._overdue:
            files += self._dirty_lazily
            self._dirty_lazily.clear()
            self._overdue = False
        self._syncing_files = files
        descriptors, self._others = self._others, []
        try:
            for file in files:
                descriptors += file.begin_sync()
        except OSError as error:  # out of descriptors
            for descriptor in descriptors:
                os.close(descriptor)
            self._loop.call_soon(self._ended, error)
        else:
            self._thread.submit(partial(sync_all, descriptors, self._sync), self._ended)

    def _ended(self, error: OSError | None) -> None:
        files, self._syncing_files = self._syncing_files, []
        for file in files:
            file.end_sync(error)
        waiters, self._syncing = self._syncing or CommitWaiters(), None
        probing, self._probing = self._probing, False
        if error is None:
            self._observe_sync(self._loop.time() - self._sync_started)
            if self.observer is None:
                waiters.confirm(self.report)
            else:
                self.observer.when_replicated(self._sequence, waiters)
            if probing:
                self._fault = None
                self._on_recovered()
        else:
            # Data written during the sync may have been dropped, too.
            waiters.merge(self._written)
            self._dirty.update(dict.fromkeys(files))
            self._failed(error)
            waiters.fail(self.report, error)
        self._on_synced()
        if self._cycle_ended is not None:
            self._cycle_ended.set_result(error is None)
            self._cycle_ended = None
        elif not self._closing:
            if self._written or self._overdue:
                self._begin()
            if probing:
                self.write()  # data from during the fault

    def report(self, error: Exception) -> None:
        """A callback of a waiter failed."""
        message = "commit callback failed"
        self._loop.call_exception_handler({"message": message, "exception": error})

    async def _cycle(self) -> bool:
        """Wait for the current cycle, if any; returns whether it succeeded."""
        if self._syncing is None:
            return True
        self._cycle_ended = self._loop.create_future()
        return await self._cycle_ended


def sync_all(descriptors: list[int], sync: Callable[[int], None]) -> None:
    """Sync and close each, also after an error; raises the first error.

    They are duplicates, so that a log can close or delete its files at any time.
    """
    first: OSError | None = None
    for descriptor in descriptors:
        try:
            sync(descriptor)
        except OSError as error:
            first = first or error
        finally:
            os.close(descriptor)
    if first is not None:
        raise first
