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
        *("_at", "_count", "_ends", "_numbers", "_odds"),
        *("columns", "few", "laid_out", "numbers", "stale", "where"),
    )

    def __init__(self) -> None:
        self.few: list[Entry] = []
        self.laid_out = False  #: they are in columns
        self._count = 0
        self._odds = 0
        # Columns and whose they are, with room for more, and the addresses of both.
        self._ends: Floats = _NO_ENDS
        self._numbers: Numbers = _NO_NUMBERS
        self._at = (0, 0)
        # Those that are taken, as who asks wants them; made when somebody asks.
        self.stale = True
        self.columns: Floats = _NO_ENDS
        self.numbers: Numbers = _NO_NUMBERS
        self.where = (0, 0, 0, 0)  #: for a kernel

    def __len__(self) -> int:
        return self._count

    def has_room(self, odd: bool) -> bool:
        return self._count < MOST and not (odd and self._odds >= MOST_ODD)

    def add(self, entry: Entry, odd: bool, layout: Layout) -> None:
        self._odds += odd
        if self.laid_out:
            self._write(self._count, entry, layout)
        else:
            self.few.append(entry)
            if self._count == FEW:
                self.laid_out = True
                for at, one in enumerate(self.few):
                    self._write(at, one, layout)
                self.few = []
        self._count += 1

    def _write(self, at: int, entry: Entry, layout: Layout) -> None:
        if at == len(self._numbers):
            self._make_room(layout.height, 2 * max(FEW, at))
        self._ends[:, at] = layout.column(entry)
        self._numbers[at] = entry.number
        self.stale = True

    def remove(self, entry: Entry, odd: bool) -> None:
        self._odds -= odd
        self._count -= 1
        if not self.laid_out:
            self.few.remove(entry)
            return
        # What is left behind the last is found behind it.
        at, last = (self._numbers == entry.number).argmax(), self._count
        if at != last:
            self._ends[:, at] = self._ends[:, last]
            self._numbers[at] = self._numbers[last]
        self.stale = True

    def widen(self, height: int) -> None:
        """Have longer columns, where nobody asks for what is new in them."""
        if self.laid_out:
            self._make_room(height, len(self._numbers))

    def _make_room(self, height: int, capacity: int) -> None:
        ends, numbers = np.full((height, capacity), -inf), np.full(capacity, -1, np.intp)
        rows, columns = self._ends.shape
        ends[:rows, :columns] = self._ends
        numbers[:columns] = self._numbers
        self._ends, self._numbers = ends, numbers
        self._at = (address(ends), address(numbers))
        self.stale = True

    def show(self) -> None:
        """Have columns, numbers and addresses as they are now."""
        count = self._count
        self.columns, self.numbers = self._ends[:, :count], self._numbers[:count]
        self.where = (self._at[0], len(self._numbers), count, self._at[1])
        self.stale = False

    def entries(self, roster: Roster) -> Iterator[Entry]:
        yield from self.few
        if self.laid_out:
            for number in self._numbers[: self._count].tolist():
                yield roster[number]
