"""Sets of numbers that predicates describe, exactly, over the reals.

An interval with open or closed ends, less finitely many points, perhaps of whole numbers only. The
conjunction of any predicates on a number is such a set, so emptiness and inclusion are decided by
looking at ends: `> 10` and `< 11` meet, `> 10` and `< 10` do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, inf
from typing import Final

from penstock.content.operators import Operator
from penstock.content.values import Number, Value, is_whole


@dataclass(frozen=True, slots=True)
class NumberSet:
    low: Number = -inf
    high: Number = inf
    low_open: bool = False
    high_open: bool = False
    excluded: frozenset[Number] = frozenset()
    whole: bool = False  #: whole numbers only
    typed: bool = False  #: integers by type, where types are strict; whole as well

    def __contains__(self, value: Value) -> bool:
        if isinstance(value, str) or value in self.excluded:
            return False
        if self.whole and not is_whole(value, self.typed):
            return False
        above = value > self.low if self.low_open else value >= self.low
        return above and (value < self.high if self.high_open else value <= self.high)

    def __and__(self, other: NumberSet) -> NumberSet:
        # Of two equal ends the open one is narrower: (5, True) is the higher low end.
        low, low_open = max((self.low, self.low_open), (other.low, other.low_open))
        high, high_closed = min((self.high, not self.high_open), (other.high, not other.high_open))
        excluded = self.excluded | other.excluded
        whole, typed = self.whole or other.whole, self.typed or other.typed
        return _narrowed(low, high, low_open, not high_closed, excluded, whole, typed)

    def is_empty(self) -> bool:
        if self.low > self.high:
            return True
        return self.low == self.high and (self.low_open or self.high_open)

    def only(self) -> Number | None:
        """The one number there is, if it is one."""
        return self.low if self.low == self.high and not self.is_empty() else None

    def includes(self, other: NumberSet) -> bool:
        """Whether every number of the other is in this."""
        if other.is_empty():
            return True
        if self.typed and not other.typed:
            return False
        if other.low == other.high:
            return other.low in self
        if self.whole and not other.whole:
            return False
        if (self.low, self.low_open) > (other.low, other.low_open):
            return False
        if (self.high, not self.high_open) < (other.high, not other.high_open):
            return False
        return not any(_by_value(number) in other for number in self.excluded)


def _by_value(number: Number) -> Number:
    """A whole number as an integer: that is a member wherever the float would be, by type too."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _narrowed(
    low: Number,
    high: Number,
    low_open: bool,
    high_open: bool,
    excluded: frozenset[Number],
    whole: bool,
    typed: bool,
) -> NumberSet:
    """The set in one form: no excluded ends, and those of whole numbers are whole and closed."""
    if whole:
        if low != -inf:
            low, low_open = floor(low) + 1 if low_open else ceil(low), False
        if high != inf:
            high, high_open = ceil(high) - 1 if high_open else floor(high), False
        while low in excluded:
            low += 1
        while high in excluded:
            high -= 1
    else:
        low_open = low_open or low in excluded
        high_open = high_open or high in excluded
    return NumberSet(low, high, low_open, high_open, excluded, whole, typed)


ANY_NUMBER: Final = NumberSet()
WHOLE_NUMBERS: Final = NumberSet(whole=True)
INTEGERS: Final = NumberSet(whole=True, typed=True)


def numbers(operator: Operator, operand: Number, strict: bool = False) -> NumberSet:
    """What a predicate allows; strict is one that takes integers only when it names an integer."""
    typed = strict and isinstance(operand, int)
    low: Number = -inf
    high: Number = inf
    low_open = high_open = False
    excluded: frozenset[Number] = frozenset()
    match operator:
        case Operator.EQUAL:
            low = high = operand
        case Operator.UNEQUAL:
            excluded = frozenset((operand,))
        case Operator.LESS | Operator.LESS_EQUAL:
            high, high_open = operand, operator is Operator.LESS
        case Operator.GREATER | Operator.GREATER_EQUAL:
            low, low_open = operand, operator is Operator.GREATER
        case _:
            assert operator is Operator.PRESENT
    return _narrowed(low, high, low_open, high_open, excluded, typed, typed)
