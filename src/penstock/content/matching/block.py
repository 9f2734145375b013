"""A block: some thousand filters that are asked all at once.

Its lines of bits (`lines.py`) leave filters that are surely true of a publication and some that may
be. Those are looked at: ranges of numbers all together (`columns.py`), anything else one by one. A
small block goes through its columns whole, and has no lines.

Filters come in words of 32 rows, written in one go. A row that is removed stays empty until its
word is written again: a word with few left is given up, and those move. Buckets are cut when a
block is made; whoever has it (`cluster.py`) makes a larger one when it is full, so that the cuts
follow what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.content.matching.columns import Columns, Rows
from penstock.content.matching.entries import Entry, look
from penstock.content.matching.event import Event
from penstock.content.matching.kernel import Kernel, address
from penstock.content.matching.lanes import Order, asked
from penstock.content.matching.lines import MOST_LANES, Lines
from penstock.content.matching.occurrences import Bits

WORD: Final = 32
#: A word with fewer filters than this is given up.
_SPARSE: Final = 16
#: How many filters are written in one go, so that what it takes meanwhile stays small.
_AT_ONCE: Final = 2048

#: Up to this room columns are gone through whole, and there are no lines, unless many ask for more.
_SMALL: Final = 1024

#: Which entries to look at, of those that are there; None is none.
Choice = Callable[[Lines], Bits | None]


class Block:
    __slots__ = (
        *(
            "_addresses",
            "_columns",
            "_entries",
            "_free",
            "_full",
            "_kernel",
            "_keys",
            "_lines",
            "_live",
        ),
        *("_odd", "_odds", "capacity", "count"),
    )

    def __init__(
        self, entries: Sequence[Entry], capacity: int, kernel: Kernel | None = None
    ) -> None:
        """Take whole words of entries into room for `capacity`."""
        self._kernel = kernel
        self.capacity = capacity
        self.count = 0
        found = asked(entries, MOST_LANES)
        self._full = len(found) == MOST_LANES  # no more attributes can have lanes
        numbers = sorted(name.attribute for name in found if name.order is Order.NUMBERS)
        odd = sum(bool(entry.rest) for entry in entries)
        plain = capacity <= _SMALL and bool(numbers) and odd * 4 <= len(entries)
        self._columns = Columns(tuple(numbers), capacity, by_rows=not plain)
        self._lines = None if plain else Lines(found, capacity)
        self._free = list(range(capacity // WORD - 1, -1, -1))
        self._live = [0] * (capacity // WORD)
        self._entries: list[Entry | None] = [None] * capacity
        self._keys: NDArray[np.object_] = np.empty(capacity, object)
        self._odd = np.zeros(capacity, bool)  # asks for more than columns know
        self._odds = 0
        self._addresses = (address(self._odd), address(self._keys))
        for start in range(0, len(entries), _AT_ONCE):
            self._write(start, entries[start : start + _AT_ONCE])
        del self._free[len(self._free) - len(entries) // WORD :]

    def takes(self, word: Sequence[Entry]) -> bool:
        """Take one word more, if there is room and there are lanes for it."""
        if not self._free or not (self._full or all(map(self._knows, word))):
            return False
        self._write(self._free.pop() * WORD, word)
        return True

    def _knows(self, entry: Entry) -> bool:
        return (self._columns if self._lines is None else self._lines).have(entry)

    def _write(self, start: int, entries: Sequence[Entry]) -> None:
        stop = start + len(entries)
        undecided = [self._full and not self._knows(entry) for entry in entries]
        ranges = self._columns.write(start, entries)
        if self._lines is not None:
            self._lines.write(start, entries, undecided, ranges)
        self._entries[start:stop] = entries
        self._keys[start:stop] = [entry.key for entry in entries]
        for row, (entry, more) in enumerate(zip(entries, undecided, strict=True), start):
            entry.block = self
            entry.row = row
            self._odd[row] = is_odd = more or bool(entry.rest)
            self._odds += is_odd
        for word in range(start // WORD, stop // WORD):
            self._live[word] = WORD
        self.count += len(entries)

    def remove(self, entry: Entry) -> list[Entry]:
        """Forget an entry; returns those that have to move because little is left around it."""
        self._erase(entry)
        word = entry.row // WORD
        if self._live[word] >= _SPARSE:
            return []
        rows = slice(word * WORD, (word + 1) * WORD)
        moving = [other for other in self._entries[rows] if other is not None]
        for other in moving:
            self._erase(other)
        self._free.append(word)
        return moving

    def _erase(self, entry: Entry) -> None:
        row = entry.row
        self._columns.erase(row)
        if self._lines is not None:
            self._lines.erase(row, entry)
        self._entries[row] = None
        self._keys[row] = None
        self._odds -= bool(self._odd[row])
        self._live[row // WORD] -= 1
        self.count -= 1
        entry.block = None

    def entries(self) -> list[Entry]:
        return [entry for entry in self._entries if entry is not None]

    def candidates(self, choose: Choice) -> Iterator[Entry]:
        if self._lines is None:
            yield from self.entries()
            return
        line = choose(self._lines)
        if line is not None:
            yield from self._at(_set_bits(line).nonzero()[0])

    def match(self, event: Event, found: list[Any]) -> None:
        """Add the keys of all that an event meets."""
        if self._lines is None:
            if event.exact:
                self._take(event, self._columns.met(event), found)
            else:
                look(self.entries(), event, found)
            return
        if self._kernel is not None and event.exact and self._lines.settled:
            self._match_quickly(self._kernel, self._lines, event, found)
            return
        surely, maybe = self._lines.of(event)
        rows: Rows = _set_bits(maybe).nonzero()[0]
        if not len(rows):
            return
        sure = _set_bits(surely)[rows]
        found += self._keys[rows[sure]].tolist()
        rows = rows[~sure]
        if not len(rows):
            return
        if event.exact:
            self._take(event, self._columns.met_of(rows, event), found)
        else:
            look(self._at(rows), event, found)

    def _match_quickly(self, kernel: Kernel, lines: Lines, event: Event, found: list[Any]) -> None:
        left = kernel.block(
            lines.address,
            lines.picked(event),
            self.capacity,
            self._columns.address,
            event.reach(self._columns.names),
            *self._addresses,
            found,
            self.capacity if self._odds else 0,
        )
        if len(left):
            look(self._at(left), event, found)

    def _take(self, event: Event, rows: Rows, found: list[Any]) -> None:
        """Add the keys of rows whose ranges are met, and whatever else they ask."""
        if self._odds:
            odd = self._odd[rows]
            look(self._at(rows[odd]), event, found)
            rows = rows[~odd]
        found += self._keys[rows].tolist()

    def _at(self, rows: Rows) -> Iterator[Entry]:
        for row in rows.tolist():
            entry = self._entries[row]
            assert entry is not None, "a row that is empty has no bit"
            yield entry


def _set_bits(line: Bits) -> NDArray[np.bool_]:
    return np.unpackbits(line, bitorder="little").view(bool)
