"""Timers of many connections: those that are due at about the same time share one of the loop.

A timer of asyncio takes some 300 bytes with its callback and its context, which is a lot for an
idle connection. Here a connection has an entry in a dictionary. A timer fires up to 1/128 of its
time late, and never early.
"""

from __future__ import annotations

import asyncio
from math import ceil, frexp, ldexp
from typing import Protocol


class Timed(Protocol):
    def on_timer(self) -> None: ...


#: Those that are due together. To cancel one, remove it.
TimerBucket = dict[Timed, None]


class TimerWheel:
    __slots__ = ("_buckets", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[float, TimerBucket] = {}  # by time

    def start(self, timed: Timed, seconds: float) -> TimerBucket:
        """Call `on_timer` after so many seconds, once; returns where it waits."""
        width = ldexp(1.0, frexp(seconds)[1] - 8)
        at = ceil((self._loop.time() + seconds) / width) * width
        bucket = self._buckets.get(at)
        if bucket is None:
            bucket = self._buckets[at] = {}
            self._loop.call_at(at, self._expire, at)
        bucket[timed] = None
        return bucket

    def _expire(self, at: float) -> None:
        bucket = self._buckets.pop(at)
        while bucket:
            timed, _ = bucket.popitem()
            try:
                timed.on_timer()
            except Exception as error:
                self._loop.call_exception_handler(
                    {"message": f"timer of {timed} failed", "exception": error}
                )
