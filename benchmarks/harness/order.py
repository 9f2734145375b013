"""Which message must come next: the rule a checker holds a broker to.

One publisher's messages arrive in the order they were written. Of many publishers each has its own
order, and the broker may serve them in any.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from benchmarks.harness.rows import NUMBER, Octets, Sequences


class Order(Protocol):
    def expected(self, rows: Octets) -> Sequences:
        """The sequence numbers that the next rows to be checked must have."""


class InOrder:
    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def expected(self, rows: Octets) -> Sequences:
        first, self._next = self._next, self._next + len(rows)
        return np.arange(first, self._next, dtype=np.uint64)


class Interleaved:
    """Publishers take turns to write `batch` messages each; a row says whose it is by its number.

    What is expected of a row is the message that its publisher wrote next.
    """

    __slots__ = ("_batch", "_next", "_number_at", "_publishers")

    def __init__(self, publishers: int, batch: int, number_at: int) -> None:
        self._publishers = publishers
        self._batch = batch
        self._number_at = number_at
        self._next = np.zeros(publishers, np.int64)  #: by publisher, how many have arrived

    def expected(self, rows: Octets) -> Sequences:
        claimed = np.ascontiguousarray(rows[:, self._number_at : self._number_at + NUMBER])
        numbers = claimed.view(">u8").ravel().astype(np.uint64)
        batch, publishers = np.uint64(self._batch), np.uint64(self._publishers)
        owners = (numbers // batch % publishers).astype(np.uint16)
        by_owner = np.argsort(owners, kind="stable")
        counts = np.bincount(owners, minlength=self._publishers)
        before = np.cumsum(counts) - counts  #: rows of the owners that come first
        ranks = np.empty(len(rows), np.int64)
        ranks[by_owner] = np.arange(len(rows)) + (self._next - before)[owners[by_owner]]
        self._next += counts
        turns, within = np.divmod(ranks, self._batch)
        return ((turns * self._publishers + owners) * self._batch + within).astype(np.uint64)
