"""Rate limits per caller, shared by all workers: a generic cell rate algorithm (GCRA).

    limits = RateLimiter(known=20, anonymous=5, burst=10, counts=open_counters(file))
    limits.take(caller, address)        # raises `TooManyRequests`
    limits.take_account(address)        # beside it, for a sign-up or a mail about a password

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
_HOUR: Final = 3600.0


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
        accounts: float = 60.0,
    ) -> None:
        """Requests a second, and the burst in seconds; `accounts` is by the hour. All workers must
        have the same clock."""
        self._known = known
        self._anonymous = anonymous
        self._burst = burst
        self._accounts = accounts
        self._counts = open_counters(None) if counts is None else counts
        self._clock = clock

    def take(self, caller: Caller, address: str) -> None:
        """Count a request; raises `TooManyRequests`."""
        if caller.id is None:
            late = self._take(f"a{address}", rate := self._anonymous, self._burst)
        else:
            late = self._take(f"u{caller.id}", rate := self._known, self._burst)
        if late:
            raise TooManyRequests(f"more than {rate:g} requests a second", late)

    def take_account(self, address: str) -> None:
        """Count what creates an account or sends mail to somebody; an hour's worth at once."""
        if late := self._take(f"n{address}", self._accounts / _HOUR, _HOUR):
            detail = f"more than {self._accounts:g} sign-ups and mails an hour from one address"
            raise TooManyRequests(detail, late)

    def _take(self, who: str, rate: float, burst: float) -> float:
        """Seconds until it is allowed; zero: it is counted."""
        now = self._clock()
        digest = int.from_bytes(blake2b(who.encode(), digest_size=8).digest(), "little") | 1
        at, paid = self._find(digest, now, burst)
        owed = max(paid, now) + 1 / rate
        if (late := owed - now - burst) > 1e-9:
            return late
        _ENTRY.pack_into(self._counts, at, digest, owed)
        return 0.0

    def _find(self, digest: int, now: float, burst: float) -> tuple[int, float]:
        """The position of the caller's entry, and its timestamp."""
        first = digest // 2 % _ROWS * _ROW_BYTES
        oldest, quiet = first, float("inf")
        for at in range(first, first + _ROW_BYTES, _ENTRY.size):
            found, paid = _ENTRY.unpack_from(self._counts, at)
            if not paid <= now + max(burst, _HOUR):  # from before a reboot
                found, paid = 0, 0.0
            if found == digest:
                return at, paid if paid <= now + burst else 0.0
            if paid < quiet:
                oldest, quiet = at, paid
        return oldest, now
