"""A thread for blocking disk operations of the event loop, one after another."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread, get_native_id

DiskWork = Callable[[], None]
DiskCallback = Callable[[OSError | None], None]


class DiskThread:
    """`niceness` lowers the thread's priority, where the system allows it."""

    __slots__ = ("_jobs", "_loop", "_name", "_niceness", "_thread")

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, niceness: int = 0) -> None:
        self._loop = loop
        self._name = name
        self._niceness = niceness
        self._jobs: SimpleQueue[tuple[DiskWork, DiskCallback] | None] = SimpleQueue()
        self._thread: Thread | None = None

    def submit(self, work: DiskWork, done: DiskCallback) -> None:
        """Run `work` in the thread, then call `done` on the loop with its error, if any."""
        if self._thread is None:  # started at the first use: many brokers need none
            # A daemon, because a sync on a failing disk may never return.
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put((work, done))

    def stop(self, wait: bool = True) -> None:
        """End the thread after all submitted work, and wait for that."""
        if self._thread is not None:
            self._jobs.put(None)
            if wait:
                self._thread.join()
            self._thread = None

    def _run(self) -> None:
        if self._niceness:
            with contextlib.suppress(OSError, AttributeError):
                os.setpriority(os.PRIO_PROCESS, get_native_id(), self._niceness)
        while (job := self._jobs.get()) is not None:
            work, done = job
            failure = None
            try:
                work()
            except OSError as error:
                failure = error
            try:
                self._loop.call_soon_threadsafe(done, failure)
            except RuntimeError:  # the loop is closed
                return
            del job, work, done  # they may hold the last reference to a file
