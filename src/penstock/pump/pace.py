"""A bound on bytes a second, for all transfers of a component together."""

from __future__ import annotations

import asyncio
import time


class Pace:
    """Waits as long as it takes; without a rate it never does."""

    def __init__(self, bytes_per_second: float = 0.0) -> None:
        self._rate = bytes_per_second
        self._due = 0.0  #: when what was let through so far will have passed

    async def let_through(self, size: int) -> None:
        if self._rate <= 0:
            return
        now = time.monotonic()
        self._due = max(self._due, now) + size / self._rate
        if self._due > now:
            await asyncio.sleep(self._due - now)
