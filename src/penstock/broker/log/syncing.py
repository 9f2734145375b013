"""The thread that syncs: it is handed descriptors, syncs and closes each, and says how it went.

The descriptors are duplicates, so a log can close or delete its files at any time. Nothing else
of the broker is touched from this thread.
"""

from __future__ import annotations

import os
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


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
