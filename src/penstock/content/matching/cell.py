"""A cell: filters that lie together because one thing they ask tells them apart from all others.

Few are a list, to be gone through one by one. More have their ranges in columns, a column for each
filter, of the form that `columns.py` explains: whoever asks several cells puts their columns side
by side and goes through all in one go. In place of filters there are their numbers then, which a
roster knows. A cell has so much room and no more: what comes then lies elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.content.matching.columns import Floats, Layout
from penstock.content.matching.entries import Entry
from penstock.content.matching.kernel import address
from penstock.content.matching.roster import Roster

Numbers = NDArray[np.intp]

#: Up to so many filters, going through them one by one is quicker than columns.
FEW: Final = 4
#: More are found more quickly by lines of bits.
MOST: Final = 1024
#: Those that ask for more than ranges are looked at one by one, so there are few of them.
MOST_ODD: Final = 32

_NO_ENDS: Final[Floats] = np.empty((0, 0))
_NO_NUMBERS: Final[Numbers] = np.empty(0, np.intp)


class Cell:
    __slots__ = (
        "_at",
        "_ends",
        "_numbers",
        "_odds",
        "columns",
        "few",
        "laid_out",
        "numbers",
        "where",
    )

    def __init__(self) -> None:
        self.few: list[Entry] = []
        self.laid_out = False  #: they are in columns
        self.columns: Floats = _NO_ENDS
        self.numbers: Numbers = _NO_NUMBERS  #: whose columns they are
        # The same with room for more.
        self._ends: Floats = _NO_ENDS
        self._numbers: Numbers = _NO_NUMBERS
        self._odds = 0
        self._at = (0, 0)  # the addresses of both
        self.where = (0, 0, 0, 0)  #: as a kernel wants to know it

    def __len__(self) -> int:
        return len(self.numbers) if self.laid_out else len(self.few)

    def has_room(self, odd: bool) -> bool:
        return len(self) < MOST and not (odd and self._odds >= MOST_ODD)

    def add(self, entry: Entry, odd: bool, layout: Layout) -> None:
        self._odds += odd
        if self.laid_out:
            self._append(entry, layout)
            return
        self.few.append(entry)
        if len(self.few) > FEW:
            few, self.few = self.few, []
            self.laid_out = True
            for one in few:
                self._append(one, layout)

    def _append(self, entry: Entry, layout: Layout) -> None:
        count = len(self.numbers)
        if count == len(self._numbers):
            self._make_room(layout.height, 2 * max(FEW, count))
        self._ends[:, count] = layout.column(entry)
        self._numbers[count] = entry.number
        self._show(count + 1)

    def remove(self, entry: Entry, odd: bool) -> None:
        self._odds -= odd
        if not self.laid_out:
            self.few.remove(entry)
            return
        at, last = (self.numbers == entry.number).argmax(), len(self.numbers) - 1
        if at != last:
            self._ends[:, at] = self._ends[:, last]
            self._numbers[at] = self._numbers[last]
        self._show(last)

    def widen(self, height: int) -> None:
        """Have longer columns, where nobody asks for what is new in them."""
        if self.laid_out:
            self._make_room(height, len(self._numbers))

    def _make_room(self, height: int, capacity: int) -> None:
        count = len(self.numbers)
        ends, numbers = np.full((height, capacity), -inf), np.empty(capacity, np.intp)
        ends[: len(self.columns), :count] = self.columns
        numbers[:count] = self.numbers
        self._ends, self._numbers = ends, numbers
        self._at = (address(ends), address(numbers))
        self._show(count)

    def _show(self, count: int) -> None:
        self.columns, self.numbers = self._ends[:, :count], self._numbers[:count]
        self.where = (self._at[0], len(self._numbers), count, self._at[1])

    def entries(self, roster: Roster) -> Iterator[Entry]:
        yield from self.few
        for number in self.numbers.tolist():
            yield roster[number]
