"""A filter made ready for an index: ranges of numbers apart from everything else.

Almost all comparisons of numbers are ranges from a lowest number to one that is just beyond the
highest. `beyond` knows the next number of all that can occur, whether float or integer of 64 bits,
so every such predicate is exactly `low <= value < high`. Those few whose ends no float can express
stay predicates.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.content.bindings import bind
from penstock.content.messages import Filter, Predicate
from penstock.content.operators import Operator
from penstock.content.values import Number, Value, Variable

if TYPE_CHECKING:
    from penstock.content.matching.block import Block
    from penstock.content.matching.cluster import Cluster

#: An attribute, the lowest number it may hold, and the lowest beyond.
Range: TypeAlias = tuple[str, Number, Number]

#: From here on floats are further apart than integers.
_COARSE: Final = 1 << 53


def beyond(number: Number) -> Number:
    """The next number, of all floats and integers."""
    if -_COARSE < number < _COARSE:
        return nextafter(number, inf)
    return int(number) + 1


def range_of(operator: Operator, operand: Number) -> tuple[Number, Number] | None:
    """The numbers a predicate is true of; None when they are no range."""
    match operator:
        case Operator.GREATER:
            return beyond(operand), inf
        case Operator.LESS:
            return -inf, operand
        case Operator.GREATER_EQUAL:
            return operand, inf
        case Operator.LESS_EQUAL:
            return -inf, beyond(operand)
        case Operator.EQUAL:
            return operand, beyond(operand)
        case Operator.PRESENT:
            return -inf, inf
        case _:
            return None


class Entry:
    """A filter and where it lies."""

    __slots__ = (
        *("access", "block", "cluster", "key", "message"),
        *("ranges", "rest", "row", "strict"),
    )

    def __init__(
        self, key: Any, message: Filter, strict: bool, access: Predicate | None = None
    ) -> None:
        self.key = key
        self.message = message
        self.strict = strict
        self.access = access
        self.cluster: Cluster | None = None
        self.block: Block | None = None
        self.row = -1
        ranges: list[Range] = []
        rest: list[Predicate] = []
        for predicate in message.predicates:
            if predicate is access:  # whoever files by it knows that it is true
                continue
            attribute, operator, operand = predicate
            if operand.__class__ is float or (operand.__class__ is int and not strict):
                found = range_of(operator, operand)
                if (
                    found is not None
                    and found[0] == float(found[0])
                    and found[1] == float(found[1])
                ):
                    ranges.append((attribute, *found))
                    continue
            rest.append(predicate)
        self.ranges = tuple(ranges)
        self.rest = tuple(rest)

    def is_met(
        self, numbers: Mapping[str, Number], attributes: Mapping[str, Value | Variable]
    ) -> bool:
        """Whether all it asks, beside what it is filed by, is true of these attributes."""
        for name, low, high in self.ranges:
            value = numbers.get(name)
            if value is None or not low <= value < high:
                return False
        return not self.rest or bind(self.rest, attributes, self.strict) is not None
