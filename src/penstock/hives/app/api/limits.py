"""How much one caller may ask: a bucket of tokens for each, filled at a steady rate.

Buckets are kept for the callers seen last, by process; with N workers a caller that is spread over
them may ask N times as much. What is forgotten is a full bucket, so forgetting is generous.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.errors import TooManyRequests

#: Callers remembered. A bucket is about 200 bytes.
REMEMBERED: Final = 50_000


class Limits:
    def __init__(
        self,
        known: float,
        anonymous: float,
        burst: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Requests a second, and how many seconds' worth may come at once."""
        self._known = known
        self._anonymous = anonymous
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: Caller, address: str) -> None:
        """One request; raises when there have been too many."""
        if caller.id is None:
            self._take(f"a{address}", self._anonymous)
        else:
            self._take(f"u{caller.id}", self._known)

    def _take(self, key: str, rate: float) -> None:
        now = self._clock()
        room = rate * self._burst
        tokens, since = self._buckets.pop(key, (room, now))
        tokens = min(room, tokens + (now - since) * rate)
        if tokens < 1:
            self._buckets[key] = (tokens, now)
            wait = (1 - tokens) / rate
            raise TooManyRequests(f"more than {rate:g} requests a second; wait a little", wait)
        self._buckets[key] = (tokens - 1, now)
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
