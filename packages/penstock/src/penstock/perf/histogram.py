"""A histogram of latencies with a constant relative error."""

from __future__ import annotations

import math
from typing import Final

#: Each bucket is 2 % wider than the one before, so a quantile is exact within 2 %.
GROWTH: Final = 1.02
#: From a microsecond to an hour.
LEAST_SECONDS: Final = 1e-6
_LOG_GROWTH: Final = math.log(GROWTH)
BUCKETS: Final = math.ceil(math.log(3600 / LEAST_SECONDS) / _LOG_GROWTH) + 1


class LatencyHistogram:
    __slots__ = ("counts", "longest", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}  #: by bucket
        self.total = 0
        self.longest = 0.0

    def add(self, seconds: float) -> None:
        bucket = 0
        if seconds > LEAST_SECONDS:
            bucket = min(int(math.log(seconds / LEAST_SECONDS) / _LOG_GROWTH), BUCKETS - 1)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.total += 1
        self.longest = max(self.longest, seconds)

    def merge(self, other: LatencyHistogram) -> None:
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.total += other.total
        self.longest = max(self.longest, other.longest)

    def quantile(self, share: float) -> float:
        """The latency that this share of the messages does not exceed; 0 without messages."""
        wanted, seen = share * self.total, 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                return min(LEAST_SECONDS * GROWTH ** (bucket + 1), self.longest)
        return self.longest

    def ranges(self, rows: int) -> list[tuple[float, float, int]]:
        """At most so many ranges of equal ratio from the least to the longest latency: lower bound,
        upper bound, messages."""
        if not self.total:
            return []
        first, last = min(self.counts), max(self.counts)
        width = math.ceil((last - first + 1) / rows)
        found = []
        for start in range(first, last + 1, width):
            count = sum(self.counts.get(bucket, 0) for bucket in range(start, start + width))
            bounds = (LEAST_SECONDS * GROWTH**start, LEAST_SECONDS * GROWTH ** (start + width))
            found.append((*bounds, count))
        return found
