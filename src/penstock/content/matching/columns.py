"""Ranges of numbers in columns: which of many filters have all their ranges met, in a few steps.

For each attribute there is a column of lowest numbers, one of negated highest, and one that says
who asks at all. A filter's ranges are met when none of the three exceeds what the event has there:
its number, the negative of it, and 1 or 0 for having one; the last need not be looked at when it
has all. What is not there, nothing reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.content.matching.entries import Entry
from penstock.content.matching.event import Event

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.intp]


class Columns:
    __slots__ = ("_at", "_ends", "_names")

    def __init__(self, names: tuple[str, ...], capacity: int, by_rows: bool) -> None:
        """Whoever goes through all filters wants columns together, whoever picks some, rows."""
        self._names = names
        self._at = {name: at for at, name in enumerate(names)}
        order: Literal["C", "F"] = "F" if by_rows else "C"
        self._ends: Floats = np.full((3 * len(names), capacity), inf, order=order)

    def __len__(self) -> int:
        return len(self._names)

    def have(self, entry: Entry) -> bool:
        """Whether there are columns for all its ranges."""
        return all(attribute in self._at for attribute, _, _ in entry.ranges)

    def write(self, start: int, entries: Sequence[Entry]) -> tuple[Floats, Floats, Flags]:
        """Write filters from a row on; where ranges begin, where they end, and who asks for none,
        by column and filter."""
        count = len(entries)
        lows = [[-inf] * count for _ in self._names]
        highs = [[inf] * count for _ in self._names]
        silent = [[True] * count for _ in self._names]
        for row, entry in enumerate(entries):
            for attribute, low, high in entry.ranges:
                column = self._at.get(attribute, -1)
                if column < 0:
                    continue
                silent[column][row] = False
                if low > lows[column][row]:
                    lows[column][row] = low
                if high < highs[column][row]:
                    highs[column][row] = high
        shape = (len(self._names), count)
        begin, end = np.array(lows, float).reshape(shape), np.array(highs, float).reshape(shape)
        quiet = np.array(silent, bool).reshape(shape)
        ends = np.concatenate([begin, -np.nextafter(end, -inf), ~quiet])
        self._ends[:, start : start + count] = ends
        return begin, end, quiet

    def erase(self, row: int) -> None:
        self._ends[:, row] = inf

    def met(self, event: Event) -> Rows:
        """The filters whose ranges are met, of all that are there."""
        held = event.held(self._names)
        fits = np.logical_and.reduce(self._ends[: len(held)] <= held[:, None])
        found: Rows = fits.nonzero()[0]
        return found

    def met_of(self, rows: Rows, event: Event) -> Rows:
        """Those of some filters whose ranges are met."""
        held = event.held(self._names)
        fits = self._ends.T.take(rows, axis=0)[:, : len(held)] <= held
        found: Rows = rows[np.logical_and.reduce(fits, axis=1)]
        return found
