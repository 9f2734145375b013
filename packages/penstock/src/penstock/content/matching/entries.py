"""A filter prepared for an index: number ranges, and residual predicates.

Almost all number comparisons are ranges from a lowest number to just beyond the highest.
`next_float` knows the next of all floats and 64-bit integers, so such a predicate is exactly `low
<= value < high`. The few whose ends are no floats stay residual predicates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.content.bindings import bind
from penstock.content.messages import (
    Filter,
    Number,
    Operator,
    Predicate,
    Publication,
    Value,
    Variable,
)

if TYPE_CHECKING:
    from penstock.content.matching.cell_index import CellRange
    from penstock.content.matching.cluster import FilterBlock, FilterCluster


#: Attribute, lower bound, exclusive upper bound.
Range: TypeAlias = tuple[str, Number, Number]

#: From here on floats are sparser than integers.
_COARSE: Final = 1 << 53


def next_float(number: Number) -> Number:
    if -_COARSE < number < _COARSE:
        return nextafter(number, inf)
    return int(number) + 1


#: The range of a predicate, by operator.
RANGES: Final[dict[Operator, Callable[[Number], tuple[Number, Number]]]] = {
    Operator.GREATER: lambda operand: (next_float(operand), inf),
    Operator.LESS: lambda operand: (-inf, operand),
    Operator.GREATER_EQUAL: lambda operand: (operand, inf),
    Operator.LESS_EQUAL: lambda operand: (-inf, next_float(operand)),
    Operator.EQUAL: lambda operand: (operand, next_float(operand)),
    Operator.PRESENT: lambda operand: (-inf, inf),
}


class FilterEntry:
    """A filter and its location in an index."""

    __slots__ = (
        *("access", "block", "cluster", "key", "message", "number", "place"),
        *("ranges", "rest", "row", "strict"),
    )

    def __init__(
        self, key: Any, message: Filter, strict: bool, access: Predicate | None = None
    ) -> None:
        self.key = key
        self.message = message
        self.strict = strict
        self.access = access
        # In a cell, …
        self.number = -1
        self.place: CellRange | None = None
        # … or in a cluster.
        self.cluster: FilterCluster | None = None
        self.block: FilterBlock | None = None
        self.row = -1
        ranges: dict[str, Range] = {}
        rest: list[Predicate] = []
        for predicate in message.predicates:
            if predicate is access:  # implied by the access path
                continue
            attribute, operator, operand = predicate
            if operand.__class__ is float or (operand.__class__ is int and not strict):
                made = RANGES.get(operator)
                if made is not None:
                    low, high = made(operand)
                    if low == float(low) and high == float(high):
                        known = ranges.get(attribute)
                        if known is not None:
                            _, lowest, highest = known
                            low = lowest if lowest > low else low
                            high = highest if highest < high else high
                        ranges[attribute] = (attribute, low, high)
                        continue
            rest.append(predicate)
        self.ranges = tuple(ranges.values())  #: one per attribute
        self.rest = tuple(rest)


def match_entries(entries: Iterable[FilterEntry], event: PublicationView, found: list[Any]) -> None:
    """Test filters one by one, without their access predicate, and add the keys of matches."""
    numbers, attributes = event.numbers, event.attributes
    for entry in entries:
        for name, low, high in entry.ranges:
            if name not in numbers or not low <= numbers[name] < high:
                break
        else:
            if not entry.rest or bind(entry.rest, attributes, entry.strict) is not None:
                found.append(entry.key)


#: Integers up to here are exact as floats.
_EXACT: Final = 1 << 53


class PublicationView:
    """A publication for indexes: its numbers apart from its texts."""

    __slots__ = ("_held", "_reach", "attributes", "exact", "numbers", "texts")

    def __init__(self, publication: Publication) -> None:
        attributes = publication.attributes
        self.attributes: Mapping[str, Value | Variable] = attributes
        self.numbers: dict[str, Number] = {}
        self.texts: dict[str, str] = {}
        self._reach: dict[tuple[str, ...], list[Number]] = {}
        self._held: dict[tuple[str, ...], NDArray[np.float64]] = {}
        self.exact = True  #: all its numbers are exact as floats
        for name, value in attributes.items():
            if value.__class__ is str:
                self.texts[name] = value
            elif value.__class__ is float:
                self.numbers[name] = value
            elif value.__class__ is int:
                self.numbers[name] = value
                if not -_EXACT <= value <= _EXACT:
                    self.exact = self.exact and value == float(value)

    def reach(self, names: tuple[str, ...]) -> list[Number]:
        """Each number and its negative; -inf where it has none."""
        found = self._reach.get(names)
        if found is None:
            found = self._reach[names] = []
            for name in names:
                number = self.numbers.get(name)
                found += (-inf, -inf) if number is None else (number, -number)
        return found

    def held(self, names: tuple[str, ...]) -> NDArray[np.float64]:
        found = self._held.get(names)
        if found is None:
            found = self._held[names] = np.array(self.reach(names), np.float64)
        return found
