"""Bitmaps: for every bin of every attribute, which filters surely and maybe match.

A bitmap has two halves, *surely* and *maybe*, with one bit per filter; a filter without a predicate
on the attribute has both bits set in every bin. Each attribute has one more bitmap for publications
without it. And-ing the bitmaps of a publication's bins leaves the filters that surely, and maybe,
match.

The number of binned attributes is limited: filters on others are *undecided*, never surely
matching, so that many names cannot take more memory than many filters.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.content.matching.columns import Flags, Floats
from penstock.content.matching.entries import FilterEntry, PublicationView
from penstock.content.matching.kernel import array_address
from penstock.content.matching.substring_index import Bits, SubstringIndex, clear_bit
from penstock.content.messages import Operator, Variable, VariableType
from penstock.content.relations import ValueSet, allowed_by
from penstock.content.value_sets import ANY_NUMBER, ANY_STRING, NumberSet, StringSet
from penstock.content.value_sets import prefix_upper_bound as beyond_prefix

#: Filters whose range ends are sampled for bin edges.
_SAMPLED: Final = 4096


class ValueOrder(Enum):
    NUMBERS = 0
    TEXTS = 1
    ENDINGS = 2  #: reversed texts, for suffixes

    # Hashing by identity is faster than by name.
    __hash__ = object.__hash__


class BinKey(NamedTuple):
    attribute: str
    order: ValueOrder


class BinRange(NamedTuple):
    """A filter's predicate on a binned attribute: values from low to before high, None for no end.

    Number ranges are in columns; for numbers it has only the rest.
    """

    low: str = ""
    high: str | None = None
    hole: Any = None  #: an excluded value
    decided: bool = True  #: it describes the predicate completely

    def __and__(self, other: BinRange) -> BinRange:
        if self.high is None or other.high is None:
            high = other.high if self.high is None else self.high
        else:
            high = min(self.high, other.high)
        holes = [hole for hole in (self.hole, other.hole) if hole is not None]
        decided = self.decided and other.decided and len(holes) < 2
        return BinRange(max(self.low, other.low), high, holes[0] if holes else None, decided)


def bin_ranges(entry: FilterEntry) -> dict[BinKey, BinRange]:
    """The predicates of a filter on binned attributes, without its number ranges."""
    found: dict[BinKey, BinRange] = {}
    variables = Counter(p.operand.name for p in entry.rest if isinstance(p.operand, Variable))
    looked_for = Counter(p.attribute for p in entry.rest if p.operator is Operator.CONTAINS)
    for predicate in entry.rest:
        attribute, operator, operand = predicate
        order = ValueOrder.TEXTS
        claim = BinRange()
        if isinstance(operand, Variable):
            if operand.kind is not VariableType.STRING:
                order = ValueOrder.NUMBERS
            claim = BinRange(
                decided=variables[operand.name] == 1 and operand.kind is not VariableType.INTEGER
            )
        elif not isinstance(operand, str):
            order = ValueOrder.NUMBERS
            hole = operand if operator is Operator.UNEQUAL else None
            claim = BinRange(hole=hole, decided=hole is not None and not entry.strict)
        elif operator is Operator.NEQ:
            claim = BinRange(hole=operand)
        elif operator is Operator.POSTFIX:
            # The text order is asked, too: it knows which filters need a text at all.
            backwards = operand[::-1]
            ending = BinRange(backwards, beyond_prefix(backwards))
            _add(found, BinKey(attribute, ValueOrder.ENDINGS), ending)
        # `SubstringIndex` has one of them per attribute.
        elif operator is Operator.CONTAINS:
            claim = BinRange(decided=looked_for[attribute] == 1)
        else:
            allowed = allowed_by(predicate)
            assert isinstance(allowed, StringSet)
            claim = BinRange(allowed.low, allowed.high)
        _add(found, BinKey(attribute, order), claim)
    return found


def _add(found: dict[BinKey, BinRange], name: BinKey, claim: BinRange) -> None:
    found[name] = found[name] & claim if name in found else claim


class BinnedAttribute:
    """An attribute whose ordered values (numbers, texts or reversed texts) are cut into bins.

    Bin edges are values where filters begin and end.
    """

    __slots__ = ("attribute", "base", "cuts", "missing", "order")

    def __init__(self, name: BinKey, cuts: list[Any], base: int, buckets: int) -> None:
        self.attribute = name.attribute
        self.order = name.order
        self.cuts = cuts  #: bin i has the values from cuts[i - 1] to before cuts[i]
        self.base = base  #: the matrix row of its first bin
        self.missing = base + buckets  #: the matrix row for publications without the attribute

    def bucket(self, value: Any) -> int:
        return bisect_right(self.cuts, value)

    def span(self, claim: BinRange) -> tuple[int, int, int, int]:
        """The first and last bin where a text predicate may match; and where it surely does."""
        low, high, cuts = claim.low, claim.high, self.cuts
        first, first_sure = bisect_right(cuts, low), bisect_left(cuts, low) + 1 if low else 0
        if high is None:
            last = last_sure = len(cuts)
        else:
            last, last_sure = bisect_left(cuts, high), bisect_right(cuts, high) - 1
        return first, last, first_sure, last_sure if claim.decided else -1


def choose_bin_edges(ends: Iterable[Any], buckets: int) -> list[Any]:
    """Bin edges: ends of ranges, equally many per bin."""
    ordered = sorted(ends)
    step = max(1, -(-len(ordered) // (buckets - 1)))
    return sorted(set(ordered[step // 2 :: step]))


def range_edges(claim: BinRange) -> Iterator[Any]:
    if claim.low:
        yield claim.low
    if claim.high is not None:
        yield claim.high
    if claim.hole is not None:
        yield claim.hole


def collect_edges(entries: Sequence[FilterEntry], most: int) -> dict[BinKey, list[Any]]:
    """The binned attributes of entries, at most `most`, with some range ends of each."""
    numbers: dict[str, list[float]] = {}
    texts: dict[BinKey, list[str]] = {}
    every = len(entries) // _SAMPLED + 1
    for at, entry in enumerate(entries):
        for attribute, low, high in entry.ranges:
            where = numbers.setdefault(attribute, [])
            if at % every == 0:
                where += (end for end in (low, high) if -inf < end < inf)
        for name, claim in bin_ranges(entry).items() if entry.rest else ():
            if name.order is not ValueOrder.NUMBERS:
                texts.setdefault(name, []).extend(range_edges(claim))
                continue
            where = numbers.setdefault(name.attribute, [])
            if claim.hole is not None:
                where.append(float(claim.hole))  # as in columns
    found: dict[BinKey, list[Any]] = {
        BinKey(a, ValueOrder.NUMBERS): where for a, where in numbers.items()
    }
    found |= texts
    if len(found) > most:
        common = sorted(found, key=lambda name: len(found[name]), reverse=True)
        found = {name: found[name] for name in common[:most]}
    return found


BinRanges = dict[BinKey, BinRange]
#: Lower bounds, upper bounds and absence of ranges: by column and filter.
Ranges = tuple[Floats, Floats, Flags]

_NONE: Final[BinRanges] = {}
_NUMBERS: Final = ValueOrder.NUMBERS
_FEWEST_BUCKETS: Final = 8
_MOST_BUCKETS: Final = 128
#: The most binned attributes; predicates on others are undecided.
MAX_BINNED_ATTRIBUTES: Final = 256
#: The most bins of all attributes together, if each has its fewest.
_ALL_BUCKETS: Final = 2048


class BitmapIndex:
    __slots__ = (
        *("_buckets", "_columns", "_lower", "_matrix", "_numbers", "_occurrences", "_texts"),
        *("_picks", "_upper", "address", "complete", "width"),
    )

    def __init__(self, found: Mapping[BinKey, list[Any]], capacity: int) -> None:
        """Capacity, and the attributes with range ends."""
        self.width = capacity // 8
        self.complete = True  #: all attributes of its filters are binned
        self._occurrences = SubstringIndex(self.width)
        binned_attributes = len(found)
        most = min(_MOST_BUCKETS, capacity // 16, _ALL_BUCKETS // max(1, binned_attributes))
        self._buckets = max(_FEWEST_BUCKETS, most)
        self._cut(found)
        # The first bitmap has the existing filters. All others are set until filters are written.
        shape = (1 + binned_attributes * (self._buckets + 1), 2 * self.width)
        self._matrix: Bits = np.full(shape, 0xFF, np.uint8)
        self._matrix[0] = 0
        self.address = array_address(self._matrix)

    def _cut(self, found: Mapping[BinKey, list[Any]]) -> None:
        """Bin every attribute, with equally many range ends per bin."""
        step = self._buckets + 1
        # In the order of columns.
        numbers = sorted((n for n in found if n.order is _NUMBERS), key=lambda n: n.attribute)
        texts = [name for name in found if name.order is not _NUMBERS]
        binned_attributes = [
            BinnedAttribute(
                name, choose_bin_edges(found[name], self._buckets), 1 + place * step, self._buckets
            )
            for place, name in enumerate((*numbers, *texts))
        ]
        self._numbers = binned_attributes[: len(numbers)]
        self._texts = {
            BinKey(binned.attribute, binned.order): binned
            for binned in binned_attributes[len(numbers) :]
        }
        self._columns = {binned.attribute: at for at, binned in enumerate(self._numbers)}
        self._picks = [
            (binned.attribute, binned.cuts, binned.base, binned.missing) for binned in self._numbers
        ]
        # The ends of each bin; unused bins are empty.
        self._lower: Floats = np.full((len(numbers), self._buckets, 1), inf)
        self._upper: Floats = np.full((len(numbers), self._buckets, 1), inf)
        for at, binned in enumerate(self._numbers):
            self._lower[at, : len(binned.cuts) + 1, 0] = [-inf, *binned.cuts]
            self._upper[at, : len(binned.cuts), 0] = binned.cuts

    def have(self, entry: FilterEntry) -> bool:
        """Whether all attributes of a filter are binned."""
        columns, texts = self._columns, self._texts
        return all(attribute in columns for attribute, _, _ in entry.ranges) and all(
            name.attribute in columns if name.order is _NUMBERS else name in texts
            for name in (bin_ranges(entry) if entry.rest else ())
        )

    def write(
        self, start: int, entries: Sequence[FilterEntry], undecided: Sequence[bool], ranges: Ranges
    ) -> None:
        """Write filters in multiples of eight from a row on, over previous ones."""
        claimed = [bin_ranges(entry) if entry.rest else _NONE for entry in entries]
        rows = slice(start // 8, (start + len(entries)) // 8)
        halves = (rows, slice(self.width + rows.start, self.width + rows.stop))
        if self._numbers:
            self._write_numbers(ranges, claimed, halves)
        for name, binned in self._texts.items():
            self._write_texts(name, binned, claimed, halves)
        self._occurrences.write(start, entries)
        self.complete = self.complete and not any(undecided)
        self._matrix[0, halves[0]] = np.packbits(~np.array(undecided), bitorder="little")
        self._matrix[0, halves[1]] = 0xFF

    def _write_numbers(
        self, ranges: Ranges, claimed: Sequence[BinRanges], halves: tuple[slice, slice]
    ) -> None:
        begin, end, absent = (of_all[:, None, :] for of_all in ranges)
        maybe = np.concatenate([(begin < self._upper) & (end > self._lower), absent], axis=1)
        surely = np.concatenate([(begin <= self._lower) & (end >= self._upper), absent], axis=1)
        for row, others in enumerate(claimed):
            for name, claim in others.items():
                if name.order is not _NUMBERS or name.attribute not in self._columns:
                    continue
                column = self._columns[name.attribute]
                if claim.hole is not None:
                    surely[column, self._numbers[column].bucket(claim.hole), row] = False
                if not claim.decided:
                    surely[column, :, row] = False
                surely[column, -1, row] = maybe[column, -1, row] = False
        bitmaps = self._matrix[1 : 1 + len(self._numbers) * (self._buckets + 1)]
        bitmaps = bitmaps.reshape(len(self._numbers), self._buckets + 1, -1)
        bitmaps[:, :, halves[0]] = np.packbits(surely, axis=2, bitorder="little")
        bitmaps[:, :, halves[1]] = np.packbits(maybe, axis=2, bitorder="little")

    def _write_texts(
        self,
        name: BinKey,
        binned: BinnedAttribute,
        claimed: Sequence[BinRanges],
        halves: tuple[slice, slice],
    ) -> None:
        asking = [(row, others[name]) for row, others in enumerate(claimed) if name in others]
        spans = np.array([(0, self._buckets, 0, self._buckets)] * len(claimed)).T
        for row, claim in asking:
            spans[:, row] = binned.span(claim)
        numbered = np.arange(self._buckets + 1)[:, None]
        maybe = (spans[0] <= numbered) & (numbered <= spans[1])
        surely = (spans[2] <= numbered) & (numbered <= spans[3])
        for row, claim in asking:
            if claim.hole is not None:
                surely[binned.bucket(claim.hole), row] = False
            surely[self._buckets, row] = maybe[self._buckets, row] = False
        bitmaps = self._matrix[binned.base : binned.missing + 1]
        bitmaps[:, halves[0]] = np.packbits(surely, axis=1, bitorder="little")
        bitmaps[:, halves[1]] = np.packbits(maybe, axis=1, bitorder="little")

    def erase(self, row: int, entry: FilterEntry) -> None:
        clear_bit(self._matrix[0], row)
        self._occurrences.erase(row, entry)

    @property
    def settled(self) -> bool:
        """Whether the picked bitmaps are complete: there are no substring predicates."""
        return not self._occurrences

    def of(self, event: PublicationView) -> tuple[Bits, Bits]:
        """The filters that surely match, and those that may."""
        bitmaps = self._matrix.take(self.picked(event), axis=0)
        left: Bits = np.bitwise_and.reduce(bitmaps, axis=0)
        self._occurrences.narrow(left, event.texts)
        return left[: self.width], left[self.width :]

    def picked(self, event: PublicationView) -> list[int]:
        """The bitmaps of an event's bins."""
        picked = [0]
        numbers, texts = event.numbers, event.texts
        for attribute, cuts, base, missing in self._picks:
            number = numbers.get(attribute)
            picked.append(missing if number is None else base + bisect_right(cuts, number))
        for binned in self._texts.values():
            text = texts.get(binned.attribute)
            if text is None:
                picked.append(binned.missing)
            else:
                if binned.order is ValueOrder.ENDINGS:
                    text = text[::-1]
                picked.append(binned.base + bisect_right(binned.cuts, text))
        return picked

    # Queries by a filter: which others may have values in common.

    def overlapping(self, attribute: str, values: ValueSet) -> Bits | None:
        """Filters that may allow some of these values; None if the attribute is not binned."""
        binned = self._binned(attribute, values)
        if binned is None or values is None:
            return None
        if isinstance(values, NumberSet):
            first, last = binned.bucket(values.low), binned.bucket(values.high)
        else:
            first, last, _, _ = binned.span(BinRange(values.low, values.high))
        bitmaps = self._matrix[binned.base + first : binned.base + last + 1, self.width :]
        found: Bits = np.bitwise_or.reduce(bitmaps, axis=0)
        return found

    def absent(self, attribute: str, values: ValueSet) -> Bits | None:
        """Filters without a predicate of this type on the attribute; None if it is not binned."""
        binned = self._binned(attribute, values)
        return None if binned is None else self._matrix[binned.missing, self.width :]

    def _binned(self, attribute: str, values: ValueSet) -> BinnedAttribute | None:
        if isinstance(values, NumberSet):
            column = self._columns.get(attribute)
            return None if column is None else self._numbers[column]
        return self._texts.get(BinKey(attribute, ValueOrder.TEXTS))

    def binned_attributes(self) -> Iterator[tuple[str, ValueSet]]:
        """Binned attributes, each with all values of its type."""
        for binned in self._numbers:
            yield binned.attribute, ANY_NUMBER
        for name in self._texts:
            if name.order is ValueOrder.TEXTS:
                yield name.attribute, ANY_STRING

    def present(self) -> Bits:
        return self._matrix[0, self.width :].copy()
