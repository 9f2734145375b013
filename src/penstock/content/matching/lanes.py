"""Lanes: how a block tells the values of an attribute apart.

A lane cuts an ordered kind of values (numbers; texts; texts read backwards, for endings) into
buckets, at values where filters begin and end. For each filter it is known in which buckets it may
be true and in which it surely is; only where the two differ does anything have to be looked at more
closely.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from math import inf
from typing import Any, Final, NamedTuple

from penstock.content.extents import allowed_by
from penstock.content.matching.entries import Entry
from penstock.content.operators import Operator
from penstock.content.string_sets import StringSet
from penstock.content.string_sets import beyond as beyond_prefix
from penstock.content.values import Kind, Variable

#: Of how many filters the ends of ranges are looked at when buckets are cut.
_SAMPLED: Final = 4096


class Order(Enum):
    NUMBERS = 0
    TEXTS = 1
    ENDINGS = 2  #: texts read backwards

    # Members are alone of their kind: hashing by identity is quicker than by name.
    __hash__ = object.__hash__


class Name(NamedTuple):
    attribute: str
    order: Order


class Claim(NamedTuple):
    """What a filter asks of a lane: values from low up to before high, None for no end.

    Of numbers it says no range, which the block has in columns; only what there is beside.
    """

    low: str = ""
    high: str | None = None
    hole: Any = None  #: a value that is not wanted
    decided: bool = True  #: whether this is all it asks

    def __and__(self, other: Claim) -> Claim:
        if self.high is None or other.high is None:
            high = other.high if self.high is None else self.high
        else:
            high = min(self.high, other.high)
        holes = [hole for hole in (self.hole, other.hole) if hole is not None]
        decided = self.decided and other.decided and len(holes) < 2
        return Claim(max(self.low, other.low), high, holes[0] if holes else None, decided)


def claims(entry: Entry) -> dict[Name, Claim]:
    """What a filter asks of lanes beside its ranges of numbers."""
    found: dict[Name, Claim] = {}
    variables = Counter(p.operand.name for p in entry.rest if isinstance(p.operand, Variable))
    looked_for = Counter(p.attribute for p in entry.rest if p.operator is Operator.CONTAINS)
    for predicate in entry.rest:
        attribute, operator, operand = predicate
        order = Order.TEXTS
        claim = Claim()
        if isinstance(operand, Variable):
            if operand.kind is not Kind.STRING:
                order = Order.NUMBERS
            claim = Claim(decided=variables[operand.name] == 1 and operand.kind is not Kind.INTEGER)
        elif not isinstance(operand, str):
            order = Order.NUMBERS
            hole = operand if operator is Operator.UNEQUAL else None
            claim = Claim(hole=hole, decided=hole is not None and not entry.strict)
        elif operator is Operator.NEQ:
            claim = Claim(hole=operand)
        elif operator is Operator.POSTFIX:
            # The lane of texts hears of it too: it knows who asks for a text at all.
            backwards = operand[::-1]
            ending = Claim(backwards, beyond_prefix(backwards))
            _add(found, Name(attribute, Order.ENDINGS), ending)
        elif operator is Operator.CONTAINS:  # `grams.py` has one of them for each attribute
            claim = Claim(decided=looked_for[attribute] == 1)
        else:
            allowed = allowed_by(predicate)
            assert isinstance(allowed, StringSet)
            claim = Claim(allowed.low, allowed.high)
        _add(found, Name(attribute, order), claim)
    return found


def _add(found: dict[Name, Claim], name: Name, claim: Claim) -> None:
    found[name] = found[name] & claim if name in found else claim


class Lane:
    __slots__ = ("attribute", "base", "cuts", "missing", "order")

    def __init__(self, name: Name, cuts: list[Any], base: int, buckets: int) -> None:
        self.attribute = name.attribute
        self.order = name.order
        self.cuts = cuts  #: bucket i has the values from cuts[i - 1] up to before cuts[i]
        self.base = base  #: the row of the block's matrix that has its first bucket
        self.missing = base + buckets  #: the row for those who have no such value

    def bucket(self, value: Any) -> int:
        return bisect_right(self.cuts, value)

    def span(self, claim: Claim) -> tuple[int, int, int, int]:
        """The buckets where a claim on texts may be true, first and last; and where surely."""
        low, high, cuts = claim.low, claim.high, self.cuts
        first, first_sure = bisect_right(cuts, low), bisect_left(cuts, low) + 1 if low else 0
        if high is None:
            last = last_sure = len(cuts)
        else:
            last, last_sure = bisect_left(cuts, high), bisect_right(cuts, high) - 1
        return first, last, first_sure, last_sure if claim.decided else -1


def cut(ends: Iterable[Any], buckets: int) -> list[Any]:
    """Where to cut into so many buckets: at ends of ranges, each with its share of them."""
    ordered = sorted(ends)
    step = max(1, -(-len(ordered) // (buckets - 1)))
    return sorted(set(ordered[step // 2 :: step]))


def ends(claim: Claim) -> Iterator[Any]:
    if claim.low:
        yield claim.low
    if claim.high is not None:
        yield claim.high
    if claim.hole is not None:
        yield claim.hole


def asked(entries: Sequence[Entry], most: int) -> dict[Name, list[Any]]:
    """The lanes that entries ask for, at most so many: for each some ends of what they ask."""
    numbers: dict[str, list[float]] = {}
    texts: dict[Name, list[str]] = {}
    every = len(entries) // _SAMPLED + 1
    for at, entry in enumerate(entries):
        for attribute, low, high in entry.ranges:
            where = numbers.setdefault(attribute, [])
            if at % every == 0:
                where += (end for end in (low, high) if -inf < end < inf)
        for name, claim in claims(entry).items() if entry.rest else ():
            if name.order is not Order.NUMBERS:
                texts.setdefault(name, []).extend(ends(claim))
                continue
            where = numbers.setdefault(name.attribute, [])
            if claim.hole is not None:
                where.append(float(claim.hole))  # as the columns have their ends
    found: dict[Name, list[Any]] = {Name(a, Order.NUMBERS): where for a, where in numbers.items()}
    found |= texts
    if len(found) > most:
        common = sorted(found, key=lambda name: len(found[name]), reverse=True)
        found = {name: found[name] for name in common[:most]}
    return found
