"""Rate limits per caller, shared by all workers: a generic cell rate algorithm (GCRA).

    limits = RateLimiter(known=20, anonymous=5, burst=10, counts=open_counters(file))
    limits.take(caller, address)        # raises `TooManyRequests`

A caller's state is one timestamp: when their requests so far are used up at their rate. It may be
ahead of now by the burst. Timestamps are in a table of fixed size, in a file that all workers of a
machine map. There are no locks: of two workers that write at once one request is not counted. A
full row drops the caller that was idle longest, to that caller's advantage.
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

#: Digest of the caller, timestamp.
_ENTRY: Final = Struct("<Qd")
#: Entries in a row; the digest selects the row.
_WAYS: Final = 4
_ROWS: Final = 16_384
_ROW_BYTES: Final = _WAYS * _ENTRY.size
#: 1 MiB: 65,536 callers.
TABLE_BYTES: Final = _ROWS * _ROW_BYTES


def open_counters(file: Path | None) -> mmap.mmap:
    """The table in a file; without a file, in the memory of this process."""
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
        """Requests a second, and the burst in seconds; all workers must have the same clock."""
        self._known = known
        self._anonymous = anonymous
        self._burst = burst
        self._counts = open_counters(None) if counts is None else counts
        self._clock = clock

    def take(self, caller: Caller, address: str) -> None:
        """Count a request; raises `TooManyRequests`."""
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
            raise TooManyRequests(f"more than {rate:g} requests a second", late)
        _ENTRY.pack_into(self._counts, at, digest, owed)

    def _find(self, digest: int, now: float) -> tuple[int, float]:
        """The position of the caller's entry, and its timestamp."""
        first = digest // 2 % _ROWS * _ROW_BYTES
        oldest, quiet = first, float("inf")
        for at in range(first, first + _ROW_BYTES, _ENTRY.size):
            found, paid = _ENTRY.unpack_from(self._counts, at)
            if not paid <= now + self._burst:  # from before a reboot
                found, paid = 0, 0.0
            if found == digest:
                return at, paid
            if paid < quiet:
                oldest, quiet = at, paid
        return oldest, now
