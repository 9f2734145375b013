"""A bound on bytes a second, for all transfers of a component together.

What comes over sockets waits on the event loop, what is copied in a thread waits there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from threading import Lock

from penstock.pump.transports.contract import Writing


class Pace:
    """Waits as long as it takes; without a rate it never does."""

    def __init__(
        self, bytes_per_second: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._due = 0.0  #: when what was let through so far will have passed
        self._lock = Lock()

    async def let_through(self, size: int) -> None:
        if self._rate > 0 and (seconds := self.seconds(size)) > 0:
            await asyncio.sleep(seconds)

    def kept_by(self, writing: Writing) -> Writing:
        """The same for what is written in a thread."""
        return _Paced(self, writing) if self._rate > 0 else writing

    def seconds(self, size: int) -> float:
        """How long so many bytes have to wait; they count from now on."""
        with self._lock:
            now = self._clock()
            self._due = max(self._due, now) + size / self._rate
            return self._due - now


class _Paced:
    """Keeps `Writing`."""

    __slots__ = ("_pace", "_writing")

    def __init__(self, pace: Pace, writing: Writing) -> None:
        self._pace = pace
        self._writing = writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._writing.write(data)
        time.sleep(self._pace.seconds(len(data)))
