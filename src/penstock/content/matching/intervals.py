"""Where filters lie that ask for a narrow range of numbers: in cells of about its width.

The numbers of an attribute are cut into cells of equal width, a power of two that is half as wide
as the range or wider: so a range lies in three cells at most, and a number is in one for each width
there is. What is narrow is measured by how far apart the ends of all ranges of the attribute are.
Nothing has to be known beforehand and nothing is ever cut anew; where this goes wrong, cells fill
up, and whoever asks finds another place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import frexp, inf, ldexp
from typing import Final, NamedTuple

from penstock.content.matching.cell import Cell
from penstock.content.matching.entries import Entry
from penstock.content.number_sets import NumberSet
from penstock.content.values import Number

#: A cell is narrow when so many lie side by side.
_SIDE_BY_SIDE: Final = 64
#: Attributes that have cells, and widths that each has.
_MOST_ATTRIBUTES: Final = 64
_MOST_WIDTHS: Final = 8
#: Cells further out cannot be counted in floats.
_FARTHEST: Final = float(1 << 50)


class Place(NamedTuple):
    """The cells of a range: of this width, from the first to the last."""

    attribute: str
    width: float
    first: float
    last: float


class Intervals:
    __slots__ = ("_spread", "_widths")

    def __init__(self) -> None:
        self._widths: dict[str, dict[float, dict[float, Cell]]] = {}
        self._spread: dict[str, tuple[float, float]] = {}  # the lowest and the highest end

    def place(self, entry: Entry) -> Place | None:
        """Where a filter is to lie by its narrowest range; None when none is narrow."""
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
            place = Place(attribute, width, low // width, high // width)
            if width <= spread * narrowest and self._fits(place):
                best, narrowest = place, width / spread
        return best

    def _spread_with(self, attribute: str, low: float, high: float) -> float:
        """How far apart ends are; for an attribute too many, not at all."""
        spread = self._spread.get(attribute)
        if spread is None:
            if len(self._spread) >= _MOST_ATTRIBUTES:
                return 0.0
            spread = self._spread[attribute] = (low, high)
        elif low < spread[0] or high > spread[1]:
            spread = self._spread[attribute] = (min(low, spread[0]), max(high, spread[1]))
        return spread[1] - spread[0]

    def _fits(self, place: Place) -> bool:
        if place.first < -_FARTHEST or place.last > _FARTHEST:
            return False
        widths = self._widths.get(place.attribute, {})
        return place.width in widths or len(widths) < _MOST_WIDTHS

    def cells(self, place: Place) -> list[Cell]:
        """The cells of a place; those that are not there yet are made."""
        cells = self._widths.setdefault(place.attribute, {}).setdefault(place.width, {})
        found = []
        for at in _indexes(place):
            cell = cells.get(at)
            if cell is None:
                cell = cells[at] = Cell()
            found.append(cell)
        return found

    def forget_empty(self, place: Place) -> None:
        widths = self._widths[place.attribute]
        cells = widths[place.width]
        for at in _indexes(place):
            if not len(cells[at]):
                del cells[at]
        if not cells:
            del widths[place.width]
        if not widths:
            del self._widths[place.attribute]

    def around(self, numbers: Mapping[str, Number]) -> list[Cell]:
        """The cells that these numbers are in."""
        found = []
        for attribute, widths in self._widths.items():
            number = numbers.get(attribute)
            if number is not None:
                for width, cells in widths.items():
                    cell = cells.get(number // width)
                    if cell is not None:
                        found.append(cell)
        return found

    def overlapping(self, attribute: str, values: NumberSet) -> Iterator[Cell]:
        """The cells that have some of these numbers."""
        low, high = values.low, values.high
        for width, cells in self._widths.get(attribute, {}).items():
            for at, cell in cells.items():
                if at * width <= high and low <= (at + 1) * width:
                    yield cell

    def __iter__(self) -> Iterator[Cell]:
        for widths in self._widths.values():
            for cells in widths.values():
                yield from cells.values()


def _indexes(place: Place) -> Iterator[float]:
    at = place.first
    while at <= place.last:
        yield at
        at += 1
