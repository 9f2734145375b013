"""A cluster of filters: few in a list, many in blocks.

New filters go to a short list that is scanned; 32 at a time move to a block. So an insert is cheap
and visible at once. Nothing is rebuilt except a full block, which is replaced by one of twice its
size, up to some thousand filters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.content.matching.bitmap_index import (
    MAX_BINNED_ATTRIBUTES,
    BitmapIndex,
    ValueOrder,
    collect_edges,
)
from penstock.content.matching.columns import RangeColumns, Rows
from penstock.content.matching.entries import FilterEntry, PublicationView, match_entries
from penstock.content.matching.kernel import NativeKernel, array_address
from penstock.content.matching.substring_index import Bits

#: The capacity of a block, at first and at most.
_SMALLEST: Final = 128
_LARGEST: Final = 1 << 15


class FilterCluster:
    __slots__ = ("_blocks", "_kernel", "_waiting")

    def __init__(self, kernel: NativeKernel | None = None) -> None:
        self._kernel = kernel
        self._waiting: dict[Any, FilterEntry] = {}
        self._blocks: list[FilterBlock] = []

    def __len__(self) -> int:
        return len(self._waiting) + sum(block.count for block in self._blocks)

    def insert(self, entry: FilterEntry) -> None:
        entry.cluster = self
        self._waiting[entry.key] = entry
        if len(self._waiting) >= FILTERS_PER_WORD:
            self._flush()

    def remove(self, entry: FilterEntry) -> None:
        if entry.block is None:
            del self._waiting[entry.key]
            return
        block = entry.block
        for moving in block.remove(entry):
            self._waiting[moving.key] = moving
        if not block.count:
            self._blocks.remove(block)
        if len(self._waiting) >= FILTERS_PER_WORD:
            self._flush()

    def _flush(self) -> None:
        """Move multiples of 32 filters into blocks."""
        waiting = list(self._waiting.values())
        whole = len(waiting) // FILTERS_PER_WORD * FILTERS_PER_WORD
        self._waiting = {entry.key: entry for entry in waiting[whole:]}
        for start in range(0, whole, FILTERS_PER_WORD):
            self._put(waiting[start : start + FILTERS_PER_WORD])

    def _put(self, word: list[FilterEntry]) -> None:
        for block in self._blocks:
            if block.try_add(word):
                return
        growing = self._growing()
        if growing is None:
            self._blocks.append(FilterBlock(word, _SMALLEST, self._kernel))
            return
        self._blocks.remove(growing)
        entries = growing.entries() + word
        whole = len(entries) // FILTERS_PER_WORD * FILTERS_PER_WORD
        capacity = growing.capacity if whole * 4 < growing.capacity * 3 else growing.capacity * 2
        self._blocks.append(FilterBlock(entries[:whole], min(capacity, _LARGEST), self._kernel))
        for entry in entries[whole:]:
            entry.block = None
            self._waiting[entry.key] = entry

    def _growing(self) -> FilterBlock | None:
        """A block that can be rebuilt with more capacity."""
        for block in self._blocks:
            if block.count + FILTERS_PER_WORD <= _LARGEST * 3 // 4 or block.capacity < _LARGEST:
                return block
        return None

    def candidates(self, choose: CandidateFilter) -> Iterator[FilterEntry]:
        """Filters that are not in blocks, and the chosen ones of blocks."""
        yield from self._waiting.values()
        for block in self._blocks:
            yield from block.candidates(choose)

    def match(self, event: PublicationView, found: list[Any]) -> None:
        """Add the keys of all matching filters."""
        match_entries(self._waiting.values(), event, found)
        for block in self._blocks:
            block.match(event, found)


FILTERS_PER_WORD: Final = 32
#: A word with fewer filters is dissolved.
_SPARSE: Final = 16
#: Filters written at once, to limit temporary memory.
_AT_ONCE: Final = 2048

#: Up to this capacity, columns are scanned without bitmaps, unless many filters have residual
#: predicates.
_SMALL: Final = 1024

#: Selects candidates by bitmaps; None for none.
CandidateFilter = Callable[[BitmapIndex], Bits | None]


class FilterBlock:
    """Some thousand filters that are matched together.

    Bitmaps leave filters that surely match and some that may. Of those, number ranges are tested
    together (`columns.py`), everything else one by one. A small block has no bitmaps.

    Filters are written in words of 32 rows. A removed row stays empty until its word is rewritten;
    a sparse word is dissolved, and its filters move. Bins are chosen when a block is built; a full
    block is replaced by a larger one, so bins follow the filters.
    """

    __slots__ = (
        *(
            "_addresses",
            "_columns",
            "_entries",
            "_free",
            "_full",
            "_kernel",
            "_keys",
            "_bitmaps",
            "_live",
        ),
        *("_odd", "_odds", "capacity", "count"),
    )

    def __init__(
        self, entries: Sequence[FilterEntry], capacity: int, kernel: NativeKernel | None = None
    ) -> None:
        """`entries` are whole words."""
        self._kernel = kernel
        self.capacity = capacity
        self.count = 0
        found = collect_edges(entries, MAX_BINNED_ATTRIBUTES)
        self._full = len(found) == MAX_BINNED_ATTRIBUTES  # no more attributes can be binned
        numbers = sorted(name.attribute for name in found if name.order is ValueOrder.NUMBERS)
        odd = sum(bool(entry.rest) for entry in entries)
        plain = capacity <= _SMALL and bool(numbers) and odd * 4 <= len(entries)
        self._columns = RangeColumns(tuple(numbers), capacity, by_rows=not plain)
        self._bitmaps = None if plain else BitmapIndex(found, capacity)
        self._free = list(range(capacity // FILTERS_PER_WORD - 1, -1, -1))
        self._live = [0] * (capacity // FILTERS_PER_WORD)
        self._entries: list[FilterEntry | None] = [None] * capacity
        self._keys: NDArray[np.object_] = np.empty(capacity, object)
        self._odd = np.zeros(capacity, bool)  # has residual predicates
        self._odds = 0
        self._addresses = (array_address(self._odd), array_address(self._keys))
        for start in range(0, len(entries), _AT_ONCE):
            self._write(start, entries[start : start + _AT_ONCE])
        del self._free[len(self._free) - len(entries) // FILTERS_PER_WORD :]

    def try_add(self, word: Sequence[FilterEntry]) -> bool:
        """Add one word, if there is space and its attributes are binned."""
        if not self._free or not (self._full or all(map(self._knows, word))):
            return False
        self._write(self._free.pop() * FILTERS_PER_WORD, word)
        return True

    def _knows(self, entry: FilterEntry) -> bool:
        return (self._columns if self._bitmaps is None else self._bitmaps).have(entry)

    def _write(self, start: int, entries: Sequence[FilterEntry]) -> None:
        stop = start + len(entries)
        undecided = [self._full and not self._knows(entry) for entry in entries]
        ranges = self._columns.write(start, entries)
        if self._bitmaps is not None:
            self._bitmaps.write(start, entries, undecided, ranges)
        self._entries[start:stop] = entries
        self._keys[start:stop] = [entry.key for entry in entries]
        for row, (entry, more) in enumerate(zip(entries, undecided, strict=True), start):
            entry.block = self
            entry.row = row
            self._odd[row] = is_odd = more or bool(entry.rest)
            self._odds += is_odd
        for word in range(start // FILTERS_PER_WORD, stop // FILTERS_PER_WORD):
            self._live[word] = FILTERS_PER_WORD
        self.count += len(entries)

    def remove(self, entry: FilterEntry) -> list[FilterEntry]:
        """Remove an entry; returns those that must move because their word became sparse."""
        self._erase(entry)
        word = entry.row // FILTERS_PER_WORD
        if self._live[word] >= _SPARSE:
            return []
        rows = slice(word * FILTERS_PER_WORD, (word + 1) * FILTERS_PER_WORD)
        moving = [other for other in self._entries[rows] if other is not None]
        for other in moving:
            self._erase(other)
        self._free.append(word)
        return moving

    def _erase(self, entry: FilterEntry) -> None:
        row = entry.row
        self._columns.erase(row)
        if self._bitmaps is not None:
            self._bitmaps.erase(row, entry)
        self._entries[row] = None
        self._keys[row] = None
        self._odds -= bool(self._odd[row])
        self._live[row // FILTERS_PER_WORD] -= 1
        self.count -= 1
        entry.block = None

    def entries(self) -> list[FilterEntry]:
        return [entry for entry in self._entries if entry is not None]

    def candidates(self, choose: CandidateFilter) -> Iterator[FilterEntry]:
        if self._bitmaps is None:
            yield from self.entries()
            return
        line = choose(self._bitmaps)
        if line is not None:
            yield from self._at(_set_bits(line).nonzero()[0])

    def match(self, event: PublicationView, found: list[Any]) -> None:
        """Add the keys of all matching filters."""
        if self._bitmaps is None:
            if event.exact:
                self._add_matches(event, self._columns.matching(event), found)
            else:
                match_entries(self.entries(), event, found)
            return
        if self._kernel is not None and event.exact and self._bitmaps.settled:
            self._match_quickly(self._kernel, self._bitmaps, event, found)
            return
        surely, maybe = self._bitmaps.of(event)
        rows: Rows = _set_bits(maybe).nonzero()[0]
        if not len(rows):
            return
        sure = _set_bits(surely)[rows]
        found += self._keys[rows[sure]].tolist()
        rows = rows[~sure]
        if not len(rows):
            return
        if event.exact:
            self._add_matches(event, self._columns.matching_of(rows, event), found)
        else:
            match_entries(self._at(rows), event, found)

    def _match_quickly(
        self, kernel: NativeKernel, bitmaps: BitmapIndex, event: PublicationView, found: list[Any]
    ) -> None:
        left = kernel.block(
            bitmaps.address,
            bitmaps.picked(event),
            self.capacity,
            self._columns.address,
            event.reach(self._columns.names),
            *self._addresses,
            found,
            self.capacity if self._odds else 0,
        )
        if len(left):
            match_entries(self._at(left), event, found)

    def _add_matches(self, event: PublicationView, rows: Rows, found: list[Any]) -> None:
        """Add the keys of rows whose ranges match, after residual predicates."""
        if self._odds:
            odd = self._odd[rows]
            match_entries(self._at(rows[odd]), event, found)
            rows = rows[~odd]
        found += self._keys[rows].tolist()

    def _at(self, rows: Rows) -> Iterator[FilterEntry]:
        for row in rows.tolist():
            entry = self._entries[row]
            assert entry is not None, "an empty row has no bit"
            yield entry


def _set_bits(line: Bits) -> NDArray[np.bool_]:
    return np.unpackbits(line, bitorder="little").view(bool)
