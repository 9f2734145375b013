"""The shelf: filters that lie in cells, by a value they ask for or by a narrow range.

A publication opens the few cells that its own values name. Whatever is in them is gone through in
one go, wherever it came from. A cell that is full takes nobody more; so does a shelf that finds
nothing in a filter to tell it apart by. Whoever has it (`matcher.py`) puts such filters elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from penstock.content.extents import Extent
from penstock.content.matching.cell import Cell
from penstock.content.matching.columns import Layout
from penstock.content.matching.entries import Entry, look
from penstock.content.matching.event import Event
from penstock.content.matching.intervals import Intervals
from penstock.content.matching.kernel import Kernel
from penstock.content.matching.roster import Roster
from penstock.content.number_sets import NumberSet
from penstock.content.values import Value


class Shelf:
    __slots__ = ("_equal", "_intervals", "_kernel", "_layout", "_roster")

    def __init__(self, kernel: Kernel | None) -> None:
        self._kernel = kernel
        self._roster = Roster()
        self._layout = Layout()
        self._equal: dict[str, dict[Value, Cell]] = {}
        self._intervals = Intervals()

    def values(self, attribute: str) -> int:
        """How many different values this attribute is to equal."""
        return len(self._equal.get(attribute, ()))

    def takes(self, entry: Entry) -> bool:
        """Take a filter, if it has a place here and there is room."""
        if entry.access is None:
            entry.place = self._intervals.place(entry)
            if entry.place is None:
                return False
        odd = bool(entry.rest) or not self._knows(entry)
        cells = self._cells(entry)
        for cell in cells:
            if not cell.has_room(odd):
                self._forget_empty(entry)
                return False
        self._roster.add(entry, odd)
        for cell in cells:
            cell.add(entry, odd, self._layout)
        return True

    def _knows(self, entry: Entry) -> bool:
        """Whether columns can say all its ranges; they are made to, if there can be more lines."""
        layout = self._layout
        if layout.knows(entry):
            return True
        before = layout.height
        layout.widen(entry)
        if layout.height > before:
            for cell in self:
                cell.widen(layout.height)
        return layout.knows(entry)

    def remove(self, entry: Entry) -> None:
        odd = self._roster.remove(entry)
        left = True
        for cell in self._cells(entry):
            cell.remove(entry, odd)
            left = left and len(cell) > 0
        if not left:
            self._forget_empty(entry)

    def _cells(self, entry: Entry) -> list[Cell]:
        return self._intervals.cells(entry.place) if entry.place else [self._cell(entry)]

    def _cell(self, entry: Entry) -> Cell:
        """The cell of the value that a filter asks for."""
        assert entry.access is not None
        attribute, _, value = entry.access
        cells = self._equal.setdefault(attribute, {})
        cell = cells.get(value)  # type: ignore[arg-type]
        if cell is None:
            cell = cells[value] = Cell()  # type: ignore[index]
        return cell

    def _forget_empty(self, entry: Entry) -> None:
        if entry.place is not None:
            self._intervals.forget_empty(entry.place)
        elif entry.access is not None and not len(self._cell(entry)):
            attribute, _, value = entry.access
            cells = self._equal[attribute]
            del cells[value]  # type: ignore[arg-type]
            if not cells:
                del self._equal[attribute]

    def __iter__(self) -> Iterator[Cell]:
        for cells in self._equal.values():
            yield from cells.values()
        yield from self._intervals

    # Asking.

    def match(self, event: Event, found: list[Any]) -> None:
        """Add the keys of all that an event meets."""
        cells = self._intervals.around(event.numbers)
        attributes = event.attributes
        for name, values in self._equal.items():
            cell = values.get(attributes.get(name))  # type: ignore[arg-type]
            if cell is not None:
                cells.append(cell)
        laid_out = []
        for cell in cells:
            if cell.laid_out:
                if cell.stale:
                    cell.show()
                laid_out.append(cell)
            else:
                look(cell.few, event, found)
        if laid_out:
            self._go_through(laid_out, event, found)

    def _go_through(self, cells: list[Cell], event: Event, found: list[Any]) -> None:
        roster = self._roster
        if not event.exact:
            numbers = np.concatenate([cell.numbers for cell in cells])
        elif self._kernel is not None:
            where: list[int] = []
            for cell in cells:
                where += cell.where
            most = sum(where[2::4]) if roster.odds else 0
            reach = event.reach(self._layout.names)
            numbers = self._kernel.cells(where, reach, *roster.addresses, found, most)
        else:
            numbers = np.concatenate([cell.numbers for cell in cells])
            columns = np.concatenate([cell.columns for cell in cells], axis=1)
            held = event.held(self._layout.names)
            numbers = numbers[np.logical_and.reduce(columns <= held[:, None])]
            odd = roster.odd[numbers] if roster.odds else None
            found += roster.keys[numbers if odd is None else numbers[~odd]].tolist()
            numbers = numbers[:0] if odd is None else numbers[odd]
        if len(numbers):
            look(map(roster.__getitem__, numbers.tolist()), event, found)

    def candidates(self, offered: Extent) -> Iterator[Entry]:
        """Those that may intersect what is offered, each once."""
        opened: list[Iterator[Entry]] = []
        for attribute, values in offered.allowed.items():
            for value, cell in self._equal.get(attribute, {}).items():
                if values is not None and value in values:
                    opened.append(cell.entries(self._roster))
            if isinstance(values, NumberSet):
                for cell in self._intervals.overlapping(attribute, values):
                    opened.append(cell.entries(self._roster))
        yield from {entry.number: entry for entry in chain.from_iterable(opened)}.values()
