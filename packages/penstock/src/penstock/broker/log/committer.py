"""Group commit: one fdatasync for all that waited.

At the end of a turn `write` puts what every touched log has pending into its file. When somebody
waits, a thread then syncs the files that were written since their last sync, and once it has, all
who waited for data written before it began are told. Meanwhile the next cycle gathers.

It promises that nobody is told before the data is on disk. A write that fails (disk full, I/O
error) keeps the data in memory, is reported once and tried again until it succeeds; those who
wait, wait on. A sync that fails is not made good by a second one, because the kernel may have
dropped the pages it could not write: those who waited are failed. To hold publishers back during
a fault, and to flush sockets after a cycle, is the broker's, which the hooks tell.

Acknowledgements are *lazy*: written after the data of the same turn, so that a message moved from
one queue to another is never in neither file, and synced within a second.
"""

from __future__ import annotations

import errno
import os
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from penstock.broker.contract import Channel


#: Data nobody waits for, and acknowledgements, are on disk at most about this much later.
LAZY_SYNC_SECONDS: Final = 1.0


class Writable(Protocol):
    """What the committer writes and syncs: a log, an acknowledgement file."""

    def write(self) -> None:
        """Put what is pending into the file; on OSError, keep it for the next time."""

    def begin_sync(self) -> list[int]:
        """Descriptors to sync, and then close, for all that is written to be on disk."""

    def end_sync(self, error: OSError | None) -> None:
        """The sync that was begun has ended."""


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
        retry_seconds: float = 0.5,
        sync: Callable[[int], None] = os.fdatasync,
    ) -> None:
        self._loop = loop
        self._on_fault = on_fault
        self._on_recovered = on_recovered
        self._on_synced = on_synced
        self._retry_seconds = retry_seconds
        self._sync = sync
        self._thread = SyncThread(loop, sync, self._ended)
        self._touched: dict[Writable, None] = {}  # something pending in memory
        self._touched_lazily: dict[Writable, None] = {}
        self._dirty: dict[Writable, None] = {}  # something written and not synced
        self._dirty_lazily: dict[Writable, None] = {}
        self._others: list[int] = []  # descriptors to sync besides
        self._fresh = CommitWaiters()  # their data may be pending
        self._written = CommitWaiters()  # their data is in the files
        self._syncing: CommitWaiters | None = (
            None  # their data is being synced: a cycle is under way
        )
        self._syncing_files: list[Writable] = []
        self._fault: OSError | None = None
        self._probing = False  # the cycle under way tells whether the fault is over
        self._overdue = False  # what is lazy belongs in the next cycle
        self._lazy_timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._cycle_ended: asyncio.Future[bool] | None = None
        self._closing = False
        self._closed = False

    # What logs and drivers call.

    def touch(self, log: Writable, lazy: bool = False) -> None:
        """`log` has something to write."""
        if lazy:
            self._touched_lazily[log] = None
        else:
            self._touched[log] = None

    def wait(self, channel: Channel, receipt: int) -> None:
        """Confirm this receipt once all that is appended so far is on disk."""
        self._fresh.receipts.append((channel, receipt))

    def after(
        self, callback: Callable[[], None], failed: Callable[[OSError], None] | None = None
    ) -> None:
        """Call back once all that is appended so far is on disk, or `failed` if it cannot be."""
        self._fresh.callbacks.append((callback, failed))

    def also_sync(self, file: int | HasFileno) -> None:
        """Sync this file too, before those who wait from now on are told."""
        self.adopt(os.dup(file if isinstance(file, int) else file.fileno()))

    def adopt(self, descriptor: int) -> None:
        """Sync this descriptor too, and close it: its owner is done with it."""
        if not self._closed:
            self._others.append(descriptor)
            self._sync_soon()
        elif (error := sync_all([descriptor], self._sync)) is not None:
            raise error

    # What the broker calls.

    @property
    def pending(self) -> bool:
        """Whether `write` has something to do."""
        return bool(self._touched or self._touched_lazily or self._fresh)

    @property
    def unwritten(self) -> int:
        """How many files `write` will have to write to."""
        return len(self._touched)

    def write(self) -> None:
        """The end of a turn: everything pending goes to the files, and those who wait are next."""
        if self._fault is not None or not self._write_touched():
            return  # the retry timer takes it from here
        if self._written:
            if self._syncing is None:
                self._begin()
        else:
            self._sync_soon()

    async def close(self) -> None:
        """Write, sync, tell all who wait, stop the thread. Who cannot be confirmed is failed."""
        self._closing = True
        for timer in (self._lazy_timer, self._retry_timer):
            if timer is not None:
                timer.cancel()
        await self._cycle()
        self._fault = None  # one honest try, whatever went before
        while self._write_touched() and self._unsynced():
            self._overdue = True
            self._begin()
            if not await self._cycle():
                break
        self._written.take(self._fresh)
        self._written.fail(self._loop, OSError(errno.ESHUTDOWN, "the broker closed"))
        self._written = CommitWaiters()
        self._on_synced()
        self._thread.stop()
        self._closed = True

    # Writing.

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
        self._written.take(self._fresh)
        return True

    def _failed(self, error: OSError) -> None:
        first, self._fault = self._fault is None, error
        if not self._closing and self._retry_timer is None:
            self._retry_timer = self._loop.call_later(self._retry_seconds, self._retry)
        if first:
            self._on_fault(error)

    def _retry(self) -> None:
        self._retry_timer = None
        if self._syncing is not None:  # it began before the fault and proves nothing
            self._retry_timer = self._loop.call_later(self._retry_seconds, self._retry)
        elif self._write_touched():
            self._probing = self._overdue = True
            self._begin()

    # Syncing, a cycle at a time.

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
        """Hand to the thread all that must be on disk before those who wait are told."""
        self._syncing, self._written = self._written, CommitWaiters()
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
            self._thread.submit(descriptors)

    def _ended(self, error: OSError | None) -> None:
        """On the loop again: a cycle has ended."""
        told, self._syncing = self._syncing or CommitWaiters(), None
        files, self._syncing_files = self._syncing_files, []
        for file in files:
            file.end_sync(error)
        probing, self._probing = self._probing, False
        if error is None:
            told.confirm(self._loop)
            if probing:
                self._fault = None
                self._on_recovered()
        else:
            # What was written while the thread synced may have been dropped with the rest.
            told.take(self._written)
            self._dirty.update(dict.fromkeys(files))
            self._failed(error)
            told.fail(self._loop, error)
        self._on_synced()
        if self._cycle_ended is not None:
            self._cycle_ended.set_result(error is None)
            self._cycle_ended = None
        elif not self._closing:
            if self._written or self._overdue:
                self._begin()
            if probing:
                self.write()  # what gathered during the fault

    async def _cycle(self) -> bool:
        """Wait for the cycle under way, if one is. Whether it went well."""
        if self._syncing is None:
            return True
        self._cycle_ended = self._loop.create_future()
        return await self._cycle_ended


# The thread that syncs: it is handed descriptors, syncs and closes each, and says how it went.
#
# The descriptors are duplicates, so a log can close or delete its files at any time. Nothing else
# of the broker is touched from this thread.


class SyncThread:
    __slots__ = ("_ended", "_jobs", "_loop", "_sync", "_thread")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sync: Callable[[int], None],
        ended: Callable[[OSError | None], None],
    ) -> None:
        """`ended` is called on the loop after each list, with the first error if there was one."""
        self._loop = loop
        self._sync = sync
        self._ended = ended
        self._jobs: SimpleQueue[list[int] | None] = SimpleQueue()
        self._thread: Thread | None = None

    def submit(self, descriptors: list[int]) -> None:
        if self._thread is None:  # a broker with nothing durable needs no thread
            # A daemon, because a sync on a dying disk may never return.
            self._thread = Thread(target=self._run, name="penstock-sync", daemon=True)
            self._thread.start()
        self._jobs.put(descriptors)

    def stop(self) -> None:
        """End the thread once it has done what it was given."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (descriptors := self._jobs.get()) is not None:
            error = sync_all(descriptors, self._sync)
            try:
                self._loop.call_soon_threadsafe(self._ended, error)
            except RuntimeError:  # the loop was closed without closing the committer
                return


def sync_all(descriptors: list[int], sync: Callable[[int], None]) -> OSError | None:
    """Sync and close each, also after an error. Returns the first."""
    first: OSError | None = None
    for descriptor in descriptors:
        try:
            sync(descriptor)
        except OSError as error:
            first = first or error
        finally:
            os.close(descriptor)
    return first


# Those who wait for data to be safe: publishers' receipts, and callbacks of the broker's own.
#
# Telling one of them never keeps the others from being told: what a waiter raises goes to the
# loop's exception handler.


class CommitWaiters:
    __slots__ = ("callbacks", "receipts")

    def __init__(self) -> None:
        self.receipts: list[tuple[Channel, int]] = []
        self.callbacks: list[tuple[Callable[[], None], Callable[[OSError], None] | None]] = []

    def __bool__(self) -> bool:
        return bool(self.receipts or self.callbacks)

    def take(self, other: CommitWaiters) -> None:
        """All of `other` wait here from now on."""
        self.receipts += other.receipts
        self.callbacks += other.callbacks
        other.receipts, other.callbacks = [], []

    def confirm(self, loop: asyncio.AbstractEventLoop) -> None:
        for channel, receipt in self.receipts:
            try:
                channel.terminal.channel_confirm(channel, receipt)
            except Exception as error:
                _report_callback_error(loop, error)
        for callback, _ in self.callbacks:
            try:
                callback()
            except Exception as error:
                _report_callback_error(loop, error)

    def fail(self, loop: asyncio.AbstractEventLoop, cause: OSError) -> None:
        for channel, receipt in self.receipts:
            try:
                channel.terminal.channel_failure(channel, receipt, cause)
            except Exception as error:
                _report_callback_error(loop, error)
        for _, failed in self.callbacks:
            try:
                if failed is not None:
                    failed(cause)
            except Exception as error:
                _report_callback_error(loop, error)


def _report_callback_error(loop: asyncio.AbstractEventLoop, error: Exception) -> None:
    message = "a waiter raised when it was told about its data"
    loop.call_exception_handler({"message": message, "exception": error})
