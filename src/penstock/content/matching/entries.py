"""A filter made ready for an index: ranges of numbers apart from everything else.

Almost all comparisons of numbers are ranges from a lowest number to one that is just beyond the
highest. `beyond` knows the next number of all that can occur, whether float or integer of 64 bits,
so every such predicate is exactly `low <= value < high`. Those few whose ends no float can express
stay predicates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.content.bindings import bind
from penstock.content.matching.event import Event
from penstock.content.messages import Filter, Predicate
from penstock.content.operators import Operator
from penstock.content.values import Number

if TYPE_CHECKING:
    from penstock.content.matching.block import Block
    from penstock.content.matching.cluster import Cluster
    from penstock.content.matching.intervals import Place

#: An attribute, the lowest number it may hold, and the lowest beyond.
Range: TypeAlias = tuple[str, Number, Number]

#: From here on floats are further apart than integers.
_COARSE: Final = 1 << 53


def beyond(number: Number) -> Number:
    """The next number, of all floats and integers."""
    if -_COARSE < number < _COARSE:
        return nextafter(number, inf)
    return int(number) + 1


#: The numbers a predicate is true of, by its operator, where they are a range.
RANGES: Final[dict[Operator, Callable[[Number], tuple[Number, Number]]]] = {
    Operator.GREATER: lambda operand: (beyond(operand), inf),
    Operator.LESS: lambda operand: (-inf, operand),
    Operator.GREATER_EQUAL: lambda operand: (operand, inf),
    Operator.LESS_EQUAL: lambda operand: (-inf, beyond(operand)),
    Operator.EQUAL: lambda operand: (operand, beyond(operand)),
    Operator.PRESENT: lambda operand: (-inf, inf),
}


class Entry:
    """A filter and where it lies."""

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
        # In a cell:
        self.number = -1
        self.place: Place | None = None
        # Or in a cluster:
        self.cluster: Cluster | None = None
        self.block: Block | None = None
        self.row = -1
        ranges: dict[str, Range] = {}
        rest: list[Predicate] = []
        for predicate in message.predicates:
            if predicate is access:  # whoever files by it knows that it is true
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
        self.ranges = tuple(ranges.values())  #: one an attribute
        self.rest = tuple(rest)


def look(entries: Iterable[Entry], event: Event, found: list[Any]) -> None:
    """Go through filters one by one, and add the keys of those that an event meets, beside what
    they are filed by."""
    numbers, attributes = event.numbers, event.attributes
    for entry in entries:
        for name, low, high in entry.ranges:
            if name not in numbers or not low <= numbers[name] < high:
                break
        else:
            if not entry.rest or bind(entry.rest, attributes, entry.strict) is not None:
                found.append(entry.key)
