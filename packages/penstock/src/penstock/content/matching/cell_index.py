"""Filters in cells, by a value of an equality predicate or by a narrow range.

A publication opens the few cells of its own values, and all their filters are tested together. A
full cell, or a filter without an equality or narrow range, is refused; `matcher.py` puts such
filters into clusters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from math import frexp, inf, ldexp
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.content.matching.columns import ColumnLayout, Floats
from penstock.content.matching.entries import FilterEntry, PublicationView, match_entries
from penstock.content.matching.kernel import NativeKernel, array_address
from penstock.content.messages import Number, Value
from penstock.content.relations import FilterExtent
from penstock.content.value_sets import NumberSet


class CellIndex:
    __slots__ = ("_equal", "_intervals", "_kernel", "_layout", "_slot_table")

    def __init__(self, kernel: NativeKernel | None) -> None:
        self._kernel = kernel
        self._slot_table = SlotTable()
        self._layout = ColumnLayout()
        self._equal: dict[str, dict[Value, FilterCell]] = {}
        self._intervals = IntervalGrid()

    def values(self, attribute: str) -> int:
        """The number of different values of an attribute's equality predicates."""
        return len(self._equal.get(attribute, ()))

    def try_add(self, entry: FilterEntry) -> bool:
        """Add a filter, if it has a cell and the cell is not full."""
        if entry.access is None:
            entry.place = self._intervals.place(entry)
            if entry.place is None:
                return False
        odd = bool(entry.rest) or not self._knows(entry)
        cells = self._cells(entry)
        for cell in cells:
            if not cell.has_room(odd):
                self._remove_empty(entry)
                return False
        self._slot_table.add(entry, odd)
        for cell in cells:
            cell.add(entry, odd, self._layout)
        return True

    def _knows(self, entry: FilterEntry) -> bool:
        """Whether columns have all its ranges; they are widened if possible."""
        layout = self._layout
        if layout.knows(entry):
            return True
        before = layout.height
        layout.widen(entry)
        if layout.height > before:
            for cell in self:
                cell.widen(layout.height)
        return layout.knows(entry)

    def remove(self, entry: FilterEntry) -> None:
        odd = self._slot_table.remove(entry)
        left = True
        for cell in self._cells(entry):
            cell.remove(entry, odd)
            left = left and len(cell) > 0
        if not left:
            self._remove_empty(entry)

    def _cells(self, entry: FilterEntry) -> list[FilterCell]:
        return self._intervals.cells(entry.place) if entry.place else [self._cell(entry)]

    def _cell(self, entry: FilterEntry) -> FilterCell:
        """The cell of a filter's equality predicate."""
        assert entry.access is not None
        attribute, _, value = entry.access
        cells = self._equal.setdefault(attribute, {})
        cell = cells.get(value)  # type: ignore[arg-type]
        if cell is None:
            cell = cells[value] = FilterCell()  # type: ignore[index]
        return cell

    def _remove_empty(self, entry: FilterEntry) -> None:
        if entry.place is not None:
            self._intervals.remove_empty(entry.place)
        elif entry.access is not None and not len(self._cell(entry)):
            attribute, _, value = entry.access
            cells = self._equal[attribute]
            del cells[value]  # type: ignore[arg-type]
            if not cells:
                del self._equal[attribute]

    def __iter__(self) -> Iterator[FilterCell]:
        for cells in self._equal.values():
            yield from cells.values()
        yield from self._intervals

    def match(self, event: PublicationView, found: list[Any]) -> None:
        """Add the keys of all matching filters."""
        cells = self._intervals.containing(event.numbers)
        attributes = event.attributes
        for name, values in self._equal.items():
            cell = values.get(attributes.get(name))  # type: ignore[arg-type]
            if cell is not None:
                cells.append(cell)
        laid_out = []
        for cell in cells:
            if cell.laid_out:
                if cell.stale:
                    cell.refresh()
                laid_out.append(cell)
            else:
                match_entries(cell.few, event, found)
        if laid_out:
            self._match_columns(laid_out, event, found)

    def _match_columns(
        self, cells: list[FilterCell], event: PublicationView, found: list[Any]
    ) -> None:
        slot_table = self._slot_table
        if not event.exact:
            numbers = np.concatenate([cell.numbers for cell in cells])
        elif self._kernel is not None:
            where: list[int] = []
            for cell in cells:
                where += cell.where
            most = sum(where[2::4]) if slot_table.odds else 0
            reach = event.reach(self._layout.names)
            numbers = self._kernel.cells(where, reach, *slot_table.addresses, found, most)
        else:
            numbers = np.concatenate([cell.numbers for cell in cells])
            columns = np.concatenate([cell.columns for cell in cells], axis=1)
            held = event.held(self._layout.names)
            numbers = numbers[np.logical_and.reduce(columns <= held[:, None])]
            odd = slot_table.odd[numbers] if slot_table.odds else None
            found += slot_table.keys[numbers if odd is None else numbers[~odd]].tolist()
            numbers = numbers[:0] if odd is None else numbers[odd]
        if len(numbers):
            match_entries(map(slot_table.__getitem__, numbers.tolist()), event, found)

    def candidates(self, offered: FilterExtent) -> Iterator[FilterEntry]:
        """Filters that may intersect the advertisement, each once."""
        opened: list[Iterator[FilterEntry]] = []
        for attribute, values in offered.allowed.items():
            for value, cell in self._equal.get(attribute, {}).items():
                if values is not None and value in values:
                    opened.append(cell.entries(self._slot_table))
            if isinstance(values, NumberSet):
                for cell in self._intervals.overlapping(attribute, values):
                    opened.append(cell.entries(self._slot_table))
        yield from {entry.number: entry for entry in chain.from_iterable(opened)}.values()


_SMALLEST: Final = 16


class SlotTable:
    """Filters by small reusable numbers, for arrays."""

    __slots__ = ("_entries", "_free", "addresses", "keys", "odd", "odds")

    def __init__(self) -> None:
        self._entries: list[FilterEntry | None] = []
        self._free: list[int] = []
        self.keys: NDArray[np.object_] = np.empty(_SMALLEST, object)
        self.odd: NDArray[np.bool_] = np.zeros(_SMALLEST, bool)  #: has residual predicates
        self.odds = 0  #: the number of those
        self.addresses = (array_address(self.odd), array_address(self.keys))

    def __getitem__(self, number: int) -> FilterEntry:
        entry = self._entries[number]
        assert entry is not None, "a cell has only existing filters"
        return entry

    def add(self, entry: FilterEntry, odd: bool) -> None:
        if self._free:
            entry.number = self._free.pop()
            self._entries[entry.number] = entry
        else:
            entry.number = len(self._entries)
            self._entries.append(entry)
            if entry.number == len(self.keys):
                self.keys = np.concatenate([self.keys, np.empty_like(self.keys)])
                self.odd = np.concatenate([self.odd, np.zeros_like(self.odd)])
                self.addresses = (array_address(self.odd), array_address(self.keys))
        self.keys[entry.number] = entry.key
        self.odd[entry.number] = odd
        self.odds += odd

    def remove(self, entry: FilterEntry) -> bool:
        """Remove a filter; returns whether it had residual predicates."""
        number = entry.number
        odd = bool(self.odd[number])
        self._entries[number] = self.keys[number] = None
        self._free.append(number)
        self.odds -= odd
        return odd


Numbers = NDArray[np.intp]

#: Up to this number, a scan is faster than columns.
MIN_COLUMN_FILTERS: Final = 4
#: Beyond this number, bitmaps are faster.
MAX_CELL_FILTERS: Final = 1024
#: Filters with residual predicates are tested one by one, so they are limited.
MAX_RESIDUAL_FILTERS: Final = 32

_NO_ENDS: Final[Floats] = np.empty((0, 0))
_NO_NUMBERS: Final[Numbers] = np.empty(0, np.intp)


class FilterCell:
    """Filters with the same access value or range: few in a list, more in columns.

    Columns are as in `columns.py`, with filters as numbers of a `SlotTable`; those of several cells
    are tested together. The capacity is limited.
    """

    __slots__ = (
        *("_at", "_count", "_ends", "_numbers", "_odds"),
        *("columns", "few", "laid_out", "numbers", "stale", "where"),
    )

    def __init__(self) -> None:
        self.few: list[FilterEntry] = []
        self.laid_out = False  #: filters are in columns
        self._count = 0
        self._odds = 0
        # Columns and their filters with spare capacity, and the addresses of both.
        self._ends: Floats = _NO_ENDS
        self._numbers: Numbers = _NO_NUMBERS
        self._at = (0, 0)
        # The used part, computed on demand.
        self.stale = True
        self.columns: Floats = _NO_ENDS
        self.numbers: Numbers = _NO_NUMBERS
        self.where = (0, 0, 0, 0)  #: for a kernel

    def __len__(self) -> int:
        return self._count

    def has_room(self, odd: bool) -> bool:
        return self._count < MAX_CELL_FILTERS and not (odd and self._odds >= MAX_RESIDUAL_FILTERS)

    def add(self, entry: FilterEntry, odd: bool, layout: ColumnLayout) -> None:
        self._odds += odd
        if self.laid_out:
            self._write(self._count, entry, layout)
        else:
            self.few.append(entry)
            if self._count == MIN_COLUMN_FILTERS:
                self.laid_out = True
                for at, one in enumerate(self.few):
                    self._write(at, one, layout)
                self.few = []
        self._count += 1

    def _write(self, at: int, entry: FilterEntry, layout: ColumnLayout) -> None:
        if at == len(self._numbers):
            self._reallocate(layout.height, 2 * max(MIN_COLUMN_FILTERS, at))
        self._ends[:, at] = layout.column(entry)
        self._numbers[at] = entry.number
        self.stale = True

    def remove(self, entry: FilterEntry, odd: bool) -> None:
        self._odds -= odd
        self._count -= 1
        if not self.laid_out:
            self.few.remove(entry)
            return
        # The last one takes its place.
        at, last = (self._numbers == entry.number).argmax(), self._count
        if at != last:
            self._ends[:, at] = self._ends[:, last]
            self._numbers[at] = self._numbers[last]
        self.stale = True

    def widen(self, height: int) -> None:
        """Add lines for new attributes."""
        if self.laid_out:
            self._reallocate(height, len(self._numbers))

    def _reallocate(self, height: int, capacity: int) -> None:
        ends, numbers = np.full((height, capacity), -inf), np.full(capacity, -1, np.intp)
        rows, columns = self._ends.shape
        ends[:rows, :columns] = self._ends
        numbers[:columns] = self._numbers
        self._ends, self._numbers = ends, numbers
        self._at = (array_address(ends), array_address(numbers))
        self.stale = True

    def refresh(self) -> None:
        """Update `columns`, `numbers` and `where`."""
        count = self._count
        self.columns, self.numbers = self._ends[:, :count], self._numbers[:count]
        self.where = (self._at[0], len(self._numbers), count, self._at[1])
        self.stale = False

    def entries(self, slot_table: SlotTable) -> Iterator[FilterEntry]:
        yield from self.few
        if self.laid_out:
            for number in self._numbers[: self._count].tolist():
                yield slot_table[number]


#: A cell is narrow if this many fit into the spread of the attribute.
_SIDE_BY_SIDE: Final = 64
#: Limits: attributes, and cell widths per attribute.
_MAX_GRID_ATTRIBUTES: Final = 64
_MAX_CELL_WIDTHS: Final = 8
#: Cell numbers beyond this are not exact as floats.
_FARTHEST: Final = float(1 << 50)


class CellRange(NamedTuple):
    """The cells of a range: width, first and last."""

    attribute: str
    width: float
    first: float
    last: float


class IntervalGrid:
    """Cells for narrow ranges.

    The numbers of an attribute are cut into cells of equal width, a power of two of at least half
    the range: so a range is in three cells at most, and a number in one per width. Narrow is
    relative to the spread of all range ends of the attribute. Nothing is ever recut; where this
    fits badly, cells become full and filters go elsewhere.
    """

    __slots__ = ("_spread", "_widths")

    def __init__(self) -> None:
        self._widths: dict[str, dict[float, dict[float, FilterCell]]] = {}
        self._spread: dict[str, tuple[float, float]] = {}  # the lowest and the highest end

    def place(self, entry: FilterEntry) -> CellRange | None:
        """The cells of a filter's narrowest range; None if none is narrow."""
        best, narrowest = None, 1 / _SIDE_BY_SIDE
        for attribute, low, high in entry.ranges:
            if low == -inf or high == inf or low >= high:
                continue
            half = (high - low) / 2
            spread = self._spread_with(attribute, low, high)
            if half > spread * narrowest:
                continue
            width = ldexp(0.5, frexp(half)[1])
            if width < half:
                width *= 2
            place = CellRange(attribute, width, low // width, high // width)
            if width <= spread * narrowest and self._fits(place):
                best, narrowest = place, width / spread
        return best

    def _spread_with(self, attribute: str, low: float, high: float) -> float:
        """The spread of range ends; 0 for attributes beyond the limit."""
        spread = self._spread.get(attribute)
        if spread is None:
            if len(self._spread) >= _MAX_GRID_ATTRIBUTES:
                return 0.0
            spread = self._spread[attribute] = (low, high)
        elif low < spread[0] or high > spread[1]:
            spread = self._spread[attribute] = (min(low, spread[0]), max(high, spread[1]))
        return spread[1] - spread[0]

    def _fits(self, place: CellRange) -> bool:
        if place.first < -_FARTHEST or place.last > _FARTHEST:
            return False
        widths = self._widths.get(place.attribute, {})
        return place.width in widths or len(widths) < _MAX_CELL_WIDTHS

    def cells(self, place: CellRange) -> list[FilterCell]:
        """The cells of a place, created if missing."""
        cells = self._widths.setdefault(place.attribute, {}).setdefault(place.width, {})
        found = []
        for at in _cell_numbers(place):
            cell = cells.get(at)
            if cell is None:
                cell = cells[at] = FilterCell()
            found.append(cell)
        return found

    def remove_empty(self, place: CellRange) -> None:
        widths = self._widths[place.attribute]
        cells = widths[place.width]
        for at in _cell_numbers(place):
            if not len(cells[at]):
                del cells[at]
        if not cells:
            del widths[place.width]
        if not widths:
            del self._widths[place.attribute]

    def containing(self, numbers: Mapping[str, Number]) -> list[FilterCell]:
        found = []
        for attribute, widths in self._widths.items():
            number = numbers.get(attribute)
            if number is not None:
                for width, cells in widths.items():
                    cell = cells.get(number // width)
                    if cell is not None:
                        found.append(cell)
        return found

    def overlapping(self, attribute: str, values: NumberSet) -> Iterator[FilterCell]:
        low, high = values.low, values.high
        for width, cells in self._widths.get(attribute, {}).items():
            for at, cell in cells.items():
                if at * width <= high and low <= (at + 1) * width:
                    yield cell

    def __iter__(self) -> Iterator[FilterCell]:
        for widths in self._widths.values():
            for cells in widths.values():
                yield from cells.values()


def _cell_numbers(place: CellRange) -> Iterator[float]:
    at = place.first
    while at <= place.last:
        yield at
        at += 1
