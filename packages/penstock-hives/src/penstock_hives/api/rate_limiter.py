"""How much one caller may ask, together of all workers: a steady rate, and some at once.

    limits = Limits(known=20, anonymous=5, burst=10, counts=open_counts(file))
    limits.take(caller, address)        # raises `TooManyRequests`

What is kept of a caller is one moment: the one at which all they have asked for would be paid for
at their rate. It may lie ahead by what they may ask at once, and no further. Moments lie in a table
of fixed size, mapped from a file that all workers of a machine share. There are no locks: two
workers that write the same moment at once forget one request of the two. A table that is full
forgets who has been quiet longest, so forgetting is generous.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Final

from penstock_hives.errors import TooManyRequests
from penstock_hives.people.permissions import Caller

#: Who it is, as a digest, and the moment.
_ENTRY: Final = Struct("<Qd")
#: Callers whose digests begin alike share so many entries.
_WAYS: Final = 4
_ROWS: Final = 16_384
_ROW_BYTES: Final = _WAYS * _ENTRY.size
#: A mebibyte: 65,536 callers.
TABLE_BYTES: Final = _ROWS * _ROW_BYTES


def open_counters(file: Path | None) -> mmap.mmap:
    """The table in a file, which is made if it is not there; one of this process without."""
    if file is None:
        return mmap.mmap(-1, TABLE_BYTES)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+b") as opened:
        opened.truncate(TABLE_BYTES)
        return mmap.mmap(opened.fileno(), TABLE_BYTES)


class RateLimiter:
    def __init__(
        self,
        known: float,
        anonymous: float,
        burst: float,
        counts: mmap.mmap | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Requests a second, and how many seconds' worth may come at once. The clock is the
        machine's, so that it is the same in all workers."""
        self._known = known
        self._anonymous = anonymous
        self._burst = burst
        self._counts = open_counters(None) if counts is None else counts
        self._clock = clock

    def take(self, caller: Caller, address: str) -> None:
        """One request; raises when there have been too many."""
        if caller.id is None:
            self._take(f"a{address}", self._anonymous)
        else:
            self._take(f"u{caller.id}", self._known)

    def _take(self, who: str, rate: float) -> None:
        now = self._clock()
        digest = int.from_bytes(blake2b(who.encode(), digest_size=8).digest(), "little") | 1
        at, paid = self._find(digest, now)
        owed = max(paid, now) + 1 / rate
        if (late := owed - now - self._burst) > 1e-9:
            raise TooManyRequests(f"more than {rate:g} requests a second; wait a little", late)
        _ENTRY.pack_into(self._counts, at, digest, owed)

    def _find(self, digest: int, now: float) -> tuple[int, float]:
        """Where a caller's entry is, or is to be, and the moment in it."""
        first = digest // 2 % _ROWS * _ROW_BYTES
        oldest, quiet = first, float("inf")
        for at in range(first, first + _ROW_BYTES, _ENTRY.size):
            found, paid = _ENTRY.unpack_from(self._counts, at)
            if not paid <= now + self._burst:  # of a clock before the machine was started again
                found, paid = 0, 0.0
            if found == digest:
                return at, paid
            if paid < quiet:
                oldest, quiet = at, paid
        return oldest, now
