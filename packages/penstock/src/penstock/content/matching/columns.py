"""Ranges of numbers in columns: which of many filters have all their ranges met, in a few steps.

For each attribute there is a line of lowest numbers and one of negated highest; a filter is a
column across them. Its ranges are met when none of its numbers exceeds what the event has there:
its number and the negative of it, or less than any number where it has none. Where a filter does
not ask, it has less than any number too, so anything is enough; where there is no filter, nothing
is.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nextafter
from sys import float_info
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from penstock.content.matching.entries import FilterEntry, PublicationView
from penstock.content.matching.kernel import array_address

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.intp]

#: Asks for a number, whichever it is.
_ANY: Final = -float_info.max
#: Lines that a layout has; what else is asked for is looked at.
_MAX_ATTRIBUTES: Final = 12


class RangeColumns:
    __slots__ = ("_at", "_ends", "address", "names")

    def __init__(self, names: tuple[str, ...], capacity: int, by_rows: bool) -> None:
        """Whoever goes through all filters wants lines together, whoever picks some, columns."""
        self.names = names
        self._at = {name: at for at, name in enumerate(names)}
        order: Literal["C", "F"] = "F" if by_rows else "C"
        self._ends: Floats = np.full((2 * len(names), capacity), inf, order=order)
        self.address = array_address(self._ends)

    def __len__(self) -> int:
        return len(self.names)

    def have(self, entry: FilterEntry) -> bool:
        """Whether there are lines for all its ranges."""
        return all(attribute in self._at for attribute, _, _ in entry.ranges)

    def write(self, start: int, entries: Sequence[FilterEntry]) -> tuple[Floats, Floats, Flags]:
        """Write filters from a row on; where ranges begin, where they end, and who asks for none,
        by attribute and filter."""
        count = len(entries)
        lows = [[-inf] * count for _ in self.names]
        highs = [[inf] * count for _ in self.names]
        silent = [[True] * count for _ in self.names]
        for row, entry in enumerate(entries):
            for attribute, low, high in entry.ranges:
                column = self._at.get(attribute, -1)
                if column < 0:
                    continue
                silent[column][row] = False
                lows[column][row] = low
                highs[column][row] = high
        shape = (len(self.names), count)
        begin, end = np.array(lows, float).reshape(shape), np.array(highs, float).reshape(shape)
        quiet = np.array(silent, bool).reshape(shape)
        rows = slice(start, start + count)
        self._ends[0::2, rows] = np.where(quiet, -inf, np.maximum(begin, _ANY))
        self._ends[1::2, rows] = np.where(quiet, -inf, -np.nextafter(end, -inf))
        return begin, end, quiet

    def erase(self, row: int) -> None:
        self._ends[:, row] = inf

    def met(self, event: PublicationView) -> Rows:
        """The filters whose ranges are met, of all that are there."""
        fits = np.logical_and.reduce(self._ends <= event.held(self.names)[:, None])
        found: Rows = fits.nonzero()[0]
        return found

    def met_of(self, rows: Rows, event: PublicationView) -> Rows:
        """Those of some filters whose ranges are met."""
        fits = self._ends.T.take(rows, axis=0) <= event.held(self.names)
        found: Rows = rows[np.logical_and.reduce(fits, axis=1)]
        return found


class ColumnLayout:
    """What the lines of columns are that have been given out one by one; more come as they are
    asked for, up to so many."""

    __slots__ = ("_at", "height", "names")

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self.names: tuple[str, ...] = ()
        self.height = 0

    def knows(self, entry: FilterEntry) -> bool:
        """Whether there are lines for all its ranges."""
        at = self._at
        for attribute, _, _ in entry.ranges:  # noqa: SIM110 - `all` would take twice as long
            if attribute not in at:
                return False
        return True

    def widen(self, entry: FilterEntry) -> None:
        """Have lines for what a filter asks, as far as there can be more."""
        for attribute, _, _ in entry.ranges:
            if attribute not in self._at and len(self._at) < _MAX_ATTRIBUTES:
                self._at[attribute] = self.height
                self.names = tuple(self._at)
                self.height += 2

    def column(self, entry: FilterEntry) -> list[float]:
        column = [-inf] * self.height
        for attribute, low, high in entry.ranges:
            at = self._at.get(attribute)
            if at is not None:
                column[at] = low if low > _ANY else _ANY
                column[at + 1] = -nextafter(high, -inf)
        return column
