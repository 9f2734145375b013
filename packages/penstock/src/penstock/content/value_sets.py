"""Sets of numbers and texts that predicates describe, exact over the reals and all texts.

A `NumberSet` is an interval with open or closed ends without finitely many points, perhaps of
integers only. Every conjunction of predicates on a number is such a set, so emptiness and inclusion
follow from the ends.

A `StringSet` is an interval in code point order, plus suffixes, substrings and excluded texts. The
successor of `a` is `a\\0`, so `<= a` is `< a\\0`, and the texts with prefix `a` are those from `a`
to before `b`. An interval either has few texts, `low`, `low\\0`, …, or contains a *cone*: all texts
with some stem. A cone has texts with any substrings and suffix, so such a set is never empty, and
all its texts have in common what their stems have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import Final

from penstock.content.messages import Number, Operator, Value, is_integral


@dataclass(frozen=True, slots=True)
class NumberSet:
    low: Number = -inf
    high: Number = inf
    low_open: bool = False
    high_open: bool = False
    excluded: frozenset[Number] = frozenset()
    whole: bool = False  #: integers by value
    typed: bool = False  #: integers by type (strict types); implies whole

    def __contains__(self, value: Value) -> bool:
        if isinstance(value, str) or value in self.excluded:
            return False
        if self.whole and not is_integral(value, self.typed):
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
        """The only number, if there is one."""
        return self.low if self.low == self.high and not self.is_empty() else None

    def includes(self, other: NumberSet) -> bool:
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
    """A whole number as an int, which is a member wherever the float is."""
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
    """The normal form: no excluded ends; ends of whole numbers are whole and closed."""
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


def numbers_satisfying(operator: Operator, operand: Number, strict: bool = False) -> NumberSet:
    """`strict`: an integer operand allows integers only."""
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


_LAST: Final = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class StringSet:
    low: str = ""
    high: str | None = None  #: exclusive; None for no end
    endings: frozenset[str] = frozenset()
    inside: frozenset[str] = frozenset()  #: substrings
    excluded: frozenset[str] = frozenset()

    def __contains__(self, value: Value) -> bool:
        return (
            isinstance(value, str)
            and self.low <= value
            and (self.high is None or value < self.high)
            and value not in self.excluded
            and all(value.endswith(ending) for ending in self.endings)
            and all(text in value for text in self.inside)
        )

    def __and__(self, other: StringSet) -> StringSet:
        if self.high is None or other.high is None:
            high = other.high if self.high is None else self.high
        else:
            high = min(self.high, other.high)
        return StringSet(
            max(self.low, other.low),
            high,
            self.endings | other.endings,
            self.inside | other.inside,
            self.excluded | other.excluded,
        )

    def is_empty(self) -> bool:
        ending = max(self.endings, key=len, default="")
        if not all(ending.endswith(shorter) for shorter in self.endings):
            return True
        few = self._few()
        return few is not None and not any(text in self for text in few)

    def only(self) -> str | None:
        """The only text, if there is one."""
        members = [text for text in self._few() or () if text in self]
        return members[0] if len(members) == 1 else None

    def includes(self, other: StringSet) -> bool:
        if other.is_empty():
            return True
        few = other._few()
        if few is not None:
            return all(text in self for text in few if text in other)
        return (
            not any(text in other for text in self.excluded)
            and all(any(its.endswith(ours) for its in other.endings) for ours in self.endings)
            and (other & StringSet(high=self.low)).is_empty()
            and (self.high is None or (other & StringSet(low=self.high)).is_empty())
            and all(other._always_has(text) for text in self.inside)
        )

    def _few(self) -> list[str] | None:
        """All texts of the interval, or None if it has a cone."""
        if self.high is None:
            return None
        if self.high <= self.low:
            return []
        rest = self.high[len(self.low) :]
        if not self.high.startswith(self.low) or rest.strip("\0"):
            return None
        return [self.low + "\0" * more for more in range(len(rest))]

    def _always_has(self, text: str) -> bool:
        """Whether a text occurs in every member of a set with a cone."""
        if any(text in known for known in (*self.inside, *self.endings)):
            return True
        # Some text of a cone continues its stem without another occurrence.
        if any(text not in stem for stem in self._stems()):
            return False
        high = self.high or ""
        return all(text in high[:end] for end in range(len(high)) if high[:end] in self)

    def _stems(self) -> Iterator[str]:
        """Stems of the interval's cones; of those that differ in the last character only, two."""
        low, high = self.low, self.high
        common = 0
        if high is not None:
            while common < len(low) and low[common] == high[common]:
                common += 1
        if high is None or common < len(low):
            yield low
            beyond = common + 1 if high is not None else 0
            for at in range(beyond, len(low)):
                if low[at] != _LAST:
                    yield low[:at] + chr(ord(low[at]) + 1)
                    yield low[:at] + _LAST
        if high is None:
            return
        if common < len(low) and ord(high[common]) - ord(low[common]) > 1:
            yield low[:common] + chr(ord(low[common]) + 1)
            yield low[:common] + chr(ord(high[common]) - 1)
        for at in range(common + (common < len(low)), len(high)):
            if high[at] != "\0":
                yield high[:at] + "\0"
                yield high[:at] + chr(ord(high[at]) - 1)


ANY_STRING: Final = StringSet()


def prefix_upper_bound(prefix: str) -> str | None:
    """The first text after all with a prefix; None if there is none."""
    stem = prefix.rstrip(_LAST)
    return stem[:-1] + chr(ord(stem[-1]) + 1) if stem else None


def strings_satisfying(operator: Operator, operand: str) -> StringSet:
    if not operand and operator in (Operator.PREFIX, Operator.POSTFIX, Operator.CONTAINS):
        return ANY_STRING
    match operator:
        case Operator.EQ:
            return StringSet(operand, operand + "\0")
        case Operator.NEQ:
            return StringSet(excluded=frozenset((operand,)))
        case Operator.STR_LT:
            return StringSet(high=operand)
        case Operator.STR_LE:
            return StringSet(high=operand + "\0")
        case Operator.STR_GT:
            return StringSet(operand + "\0")
        case Operator.STR_GE:
            return StringSet(operand)
        case Operator.PREFIX:
            return StringSet(operand, prefix_upper_bound(operand))
        case Operator.POSTFIX:
            return StringSet(endings=frozenset((operand,)))
        case Operator.CONTAINS:
            return StringSet(inside=frozenset((operand,)))
        case _:
            assert operator is Operator.PRESENT
            return ANY_STRING
