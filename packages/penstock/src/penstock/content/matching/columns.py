"""Number ranges of many filters in arrays, tested together.

For each attribute there is a line of lower bounds and one of negated upper bounds; a filter is a
column. Its ranges match if no value exceeds the event's: the number and its negative, or -inf if
the event has none. A filter without a range for an attribute has -inf there; an empty column has
inf.
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

#: Matches any number.
_ANY: Final = -float_info.max
#: The most attributes of a layout; ranges of others are residual.
_MAX_ATTRIBUTES: Final = 12


class RangeColumns:
    __slots__ = ("_at", "_ends", "address", "names")

    def __init__(self, names: tuple[str, ...], capacity: int, by_rows: bool) -> None:
        """`by_rows` chooses the memory order: by columns for selected filters, by lines for all."""
        self.names = names
        self._at = {name: at for at, name in enumerate(names)}
        order: Literal["C", "F"] = "F" if by_rows else "C"
        self._ends: Floats = np.full((2 * len(names), capacity), inf, order=order)
        self.address = array_address(self._ends)

    def __len__(self) -> int:
        return len(self.names)

    def have(self, entry: FilterEntry) -> bool:
        return all(attribute in self._at for attribute, _, _ in entry.ranges)

    def write(self, start: int, entries: Sequence[FilterEntry]) -> tuple[Floats, Floats, Flags]:
        """Write filters from a row on; returns lower bounds, upper bounds and absence of ranges, by
        attribute and filter."""
        count = len(entries)
        lows = [[-inf] * count for _ in self.names]
        highs = [[inf] * count for _ in self.names]
        absent = [[True] * count for _ in self.names]
        for row, entry in enumerate(entries):
            for attribute, low, high in entry.ranges:
                column = self._at.get(attribute, -1)
                if column < 0:
                    continue
                absent[column][row] = False
                lows[column][row] = low
                highs[column][row] = high
        shape = (len(self.names), count)
        begin, end = np.array(lows, float).reshape(shape), np.array(highs, float).reshape(shape)
        missing = np.array(absent, bool).reshape(shape)
        rows = slice(start, start + count)
        self._ends[0::2, rows] = np.where(missing, -inf, np.maximum(begin, _ANY))
        self._ends[1::2, rows] = np.where(missing, -inf, -np.nextafter(end, -inf))
        return begin, end, missing

    def erase(self, row: int) -> None:
        self._ends[:, row] = inf

    def matching(self, event: PublicationView) -> Rows:
        fits = np.logical_and.reduce(self._ends <= event.held(self.names)[:, None])
        found: Rows = fits.nonzero()[0]
        return found

    def matching_of(self, rows: Rows, event: PublicationView) -> Rows:
        fits = self._ends.T.take(rows, axis=0) <= event.held(self.names)
        found: Rows = rows[np.logical_and.reduce(fits, axis=1)]
        return found


class ColumnLayout:
    """The attributes of columns that are allocated one by one; it grows up to a limit."""

    __slots__ = ("_at", "height", "names")

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self.names: tuple[str, ...] = ()
        self.height = 0

    def knows(self, entry: FilterEntry) -> bool:
        at = self._at
        for attribute, _, _ in entry.ranges:  # noqa: SIM110 - `all` would take twice as long
            if attribute not in at:
                return False
        return True

    def widen(self, entry: FilterEntry) -> None:
        """Add lines for a filter's attributes, up to the limit."""
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
