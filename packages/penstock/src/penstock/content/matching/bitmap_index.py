"""Lines of bits: for every bucket of every lane, which filters are surely and maybe true there.

A line has two halves, *surely* and *maybe*, with one bit a filter in each; a filter that does not
ask for a lane has its bit set in both, in every bucket. Each lane has one line more, for those who
have no such value: there the bits of all who ask are clear. And-ing the lines of the buckets that a
publication falls into leaves the filters that are surely, and maybe, true of it.

There are so many lanes and no more: who asks for others is *undecided*, never surely true, so that
a flood of names cannot take more memory than a flood of filters.
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

# Lanes: how a block tells the values of an attribute apart.
#
# A lane cuts an ordered kind of values (numbers; texts; texts read backwards, for endings) into
# buckets, at values where filters begin and end. For each filter it is known in which buckets it
# may be true and in which it surely is; only where the two differ does anything have to be looked
# at more closely.

#: Of how many filters the ends of ranges are looked at when buckets are cut.
_SAMPLED: Final = 4096


class ValueOrder(Enum):
    NUMBERS = 0
    TEXTS = 1
    ENDINGS = 2  #: texts read backwards

    # Members are alone of their kind: hashing by identity is quicker than by name.
    __hash__ = object.__hash__


class BinKey(NamedTuple):
    attribute: str
    order: ValueOrder


class BinRange(NamedTuple):
    """What a filter asks of a lane: values from low up to before high, None for no end.

    Of numbers it says no range, which the block has in columns; only what there is beside.
    """

    low: str = ""
    high: str | None = None
    hole: Any = None  #: a value that is not wanted
    decided: bool = True  #: whether this is all it asks

    def __and__(self, other: BinRange) -> BinRange:
        if self.high is None or other.high is None:
            high = other.high if self.high is None else self.high
        else:
            high = min(self.high, other.high)
        holes = [hole for hole in (self.hole, other.hole) if hole is not None]
        decided = self.decided and other.decided and len(holes) < 2
        return BinRange(max(self.low, other.low), high, holes[0] if holes else None, decided)


def bin_ranges(entry: FilterEntry) -> dict[BinKey, BinRange]:
    """What a filter asks of lanes beside its ranges of numbers."""
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
            # The lane of texts hears of it too: it knows who asks for a text at all.
            backwards = operand[::-1]
            ending = BinRange(backwards, beyond_prefix(backwards))
            _add(found, BinKey(attribute, ValueOrder.ENDINGS), ending)
        # `substring_index.py` has one of them for each attribute
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
    __slots__ = ("attribute", "base", "cuts", "missing", "order")

    def __init__(self, name: BinKey, cuts: list[Any], base: int, buckets: int) -> None:
        self.attribute = name.attribute
        self.order = name.order
        self.cuts = cuts  #: bucket i has the values from cuts[i - 1] up to before cuts[i]
        self.base = base  #: the row of the block's matrix that has its first bucket
        self.missing = base + buckets  #: the row for those who have no such value

    def bucket(self, value: Any) -> int:
        return bisect_right(self.cuts, value)

    def span(self, claim: BinRange) -> tuple[int, int, int, int]:
        """The buckets where a claim on texts may be true, first and last; and where surely."""
        low, high, cuts = claim.low, claim.high, self.cuts
        first, first_sure = bisect_right(cuts, low), bisect_left(cuts, low) + 1 if low else 0
        if high is None:
            last = last_sure = len(cuts)
        else:
            last, last_sure = bisect_left(cuts, high), bisect_right(cuts, high) - 1
        return first, last, first_sure, last_sure if claim.decided else -1


def choose_bin_edges(ends: Iterable[Any], buckets: int) -> list[Any]:
    """Where to cut into so many buckets: at ends of ranges, each with its share of them."""
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
    """The lanes that entries ask for, at most so many: for each some ends of what they ask."""
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
                where.append(float(claim.hole))  # as the columns have their ends
    found: dict[BinKey, list[Any]] = {
        BinKey(a, ValueOrder.NUMBERS): where for a, where in numbers.items()
    }
    found |= texts
    if len(found) > most:
        common = sorted(found, key=lambda name: len(found[name]), reverse=True)
        found = {name: found[name] for name in common[:most]}
    return found


BinRanges = dict[BinKey, BinRange]
#: Where ranges begin and end, and who asks for none: by column and filter.
Ranges = tuple[Floats, Floats, Flags]

_NONE: Final[BinRanges] = {}
_NUMBERS: Final = ValueOrder.NUMBERS
_FEWEST_BUCKETS: Final = 8
_MOST_BUCKETS: Final = 128
#: More are not cut, and what is asked of them is undecided.
MAX_BINNED_ATTRIBUTES: Final = 256
#: Of all lanes together, as far as each has its fewest.
_ALL_BUCKETS: Final = 2048


class BitmapIndex:
    __slots__ = (
        *("_buckets", "_columns", "_lower", "_matrix", "_numbers", "_occurrences", "_texts"),
        *("_picks", "_upper", "address", "complete", "width"),
    )

    def __init__(self, found: Mapping[BinKey, list[Any]], capacity: int) -> None:
        """Room for so many filters, and a lane for each name, cut at some of these ends."""
        self.width = capacity // 8
        self.complete = True  #: there is a lane for all that is asked
        self._occurrences = SubstringIndex(self.width)
        binned_attributes = len(found)
        most = min(_MOST_BUCKETS, capacity // 16, _ALL_BUCKETS // max(1, binned_attributes))
        self._buckets = max(_FEWEST_BUCKETS, most)
        self._cut(found)
        # The first line says which filters there are. All others are set until somebody asks.
        shape = (1 + binned_attributes * (self._buckets + 1), 2 * self.width)
        self._matrix: Bits = np.full(shape, 0xFF, np.uint8)
        self._matrix[0] = 0
        self.address = array_address(self._matrix)

    def _cut(self, found: Mapping[BinKey, list[Any]]) -> None:
        """Make a lane for everything that is asked, in buckets of like numbers of ends."""
        step = self._buckets + 1
        # In the order that columns have.
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
        # The ends of each bucket; beyond the last, buckets that nothing falls into.
        self._lower: Floats = np.full((len(numbers), self._buckets, 1), inf)
        self._upper: Floats = np.full((len(numbers), self._buckets, 1), inf)
        for at, binned in enumerate(self._numbers):
            self._lower[at, : len(binned.cuts) + 1, 0] = [-inf, *binned.cuts]
            self._upper[at, : len(binned.cuts), 0] = binned.cuts

    def have(self, entry: FilterEntry) -> bool:
        """Whether there are lanes for all it asks."""
        columns, texts = self._columns, self._texts
        return all(attribute in columns for attribute, _, _ in entry.ranges) and all(
            name.attribute in columns if name.order is _NUMBERS else name in texts
            for name in (bin_ranges(entry) if entry.rest else ())
        )

    # Writing.

    def write(
        self, start: int, entries: Sequence[FilterEntry], undecided: Sequence[bool], ranges: Ranges
    ) -> None:
        """Write whole bytes of filters, from a row on; rows that were there are overwritten."""
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
        begin, end, silent = (of_all[:, None, :] for of_all in ranges)
        maybe = np.concatenate([(begin < self._upper) & (end > self._lower), silent], axis=1)
        surely = np.concatenate([(begin <= self._lower) & (end >= self._upper), silent], axis=1)
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

    # Asking.

    @property
    def settled(self) -> bool:
        """Whether picked lines say all that lines can."""
        return not self._occurrences

    def of(self, event: PublicationView) -> tuple[Bits, Bits]:
        """The filters that are surely true of an event, and those that may be."""
        bitmaps = self._matrix.take(self.picked(event), axis=0)
        left: Bits = np.bitwise_and.reduce(bitmaps, axis=0)
        self._occurrences.narrow(left, event.texts)
        return left[: self.width], left[self.width :]

    def picked(self, event: PublicationView) -> list[int]:
        """The lines of the buckets that an event falls into."""
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

    # Asking with a filter: which others may have something in common with it.

    def overlapping(self, attribute: str, values: ValueSet) -> Bits | None:
        """Those that may take some of these values; None when nobody asks for any such."""
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

    def silent(self, attribute: str, values: ValueSet) -> Bits | None:
        """Those that do not ask for values of this kind; None when nobody does."""
        binned = self._binned(attribute, values)
        return None if binned is None else self._matrix[binned.missing, self.width :]

    def _binned(self, attribute: str, values: ValueSet) -> BinnedAttribute | None:
        if isinstance(values, NumberSet):
            column = self._columns.get(attribute)
            return None if column is None else self._numbers[column]
        return self._texts.get(BinKey(attribute, ValueOrder.TEXTS))

    def asked(self) -> Iterator[tuple[str, ValueSet]]:
        """What there are lanes for: an attribute and all values of a kind."""
        for binned in self._numbers:
            yield binned.attribute, ANY_NUMBER
        for name in self._texts:
            if name.order is ValueOrder.TEXTS:
                yield name.attribute, ANY_STRING

    def present(self) -> Bits:
        return self._matrix[0, self.width :].copy()
