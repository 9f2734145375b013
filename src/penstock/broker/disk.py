"""Bulk reading and writing away from the loop: one thread, one piece of work after another.

The thread runs at a lower priority than the loop's, where the system lets it: moving a huge body
may take longer, small messages meanwhile may not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread, get_native_id
from typing import Final

#: What the thread yields to the rest of the process.
NICENESS: Final = 10

Work = Callable[[], None]
Done = Callable[[OSError | None], None]


class DiskThread:
    __slots__ = ("_jobs", "_loop", "_thread")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[tuple[Work, Done] | None] = SimpleQueue()
        self._thread: Thread | None = None

    def submit(self, work: Work, done: Done) -> None:
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
