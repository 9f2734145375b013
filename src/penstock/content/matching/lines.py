"""Lines of bits: for every bucket of every lane, which filters are surely and maybe true there.

A line has two halves, *surely* and *maybe*, with one bit a filter in each; a filter that does not
ask for a lane has its bit set in both, in every bucket. Each lane has one line more, for those who
have no such value: there the bits of all who ask are clear. And-ing the lines of the buckets that a
publication falls into leaves the filters that are surely, and maybe, true of it.

There are so many lanes and no more: who asks for others is *undecided*, never surely true, so that
a flood of names cannot take more memory than a flood of filters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final

import numpy as np

from penstock.content.extents import Values
from penstock.content.matching.columns import Flags, Floats
from penstock.content.matching.entries import Entry
from penstock.content.matching.event import Event
from penstock.content.matching.kernel import address
from penstock.content.matching.lanes import Claim, Lane, Name, Order, claims, cut
from penstock.content.matching.occurrences import Bits, Occurrences, clear
from penstock.content.number_sets import ANY_NUMBER, NumberSet
from penstock.content.string_sets import ANY_STRING

Claims = dict[Name, Claim]
#: Where ranges begin and end, and who asks for none: by column and filter.
Ranges = tuple[Floats, Floats, Flags]

_NONE: Final[Claims] = {}
_NUMBERS: Final = Order.NUMBERS
_FEWEST_BUCKETS: Final = 8
_MOST_BUCKETS: Final = 128
#: More are not cut, and what is asked of them is undecided.
MOST_LANES: Final = 256
#: Of all lanes together, as far as each has its fewest.
_ALL_BUCKETS: Final = 2048


class Lines:
    __slots__ = (
        *("_buckets", "_columns", "_lower", "_matrix", "_numbers", "_occurrences", "_texts"),
        *("_picks", "_upper", "address", "complete", "width"),
    )

    def __init__(self, found: Mapping[Name, list[Any]], capacity: int) -> None:
        """Room for so many filters, and a lane for each name, cut at some of these ends."""
        self.width = capacity // 8
        self.complete = True  #: there is a lane for all that is asked
        self._occurrences = Occurrences(self.width)
        lanes = len(found)
        most = min(_MOST_BUCKETS, capacity // 16, _ALL_BUCKETS // max(1, lanes))
        self._buckets = max(_FEWEST_BUCKETS, most)
        self._cut(found)
        # The first line says which filters there are. All others are set until somebody asks.
        shape = (1 + lanes * (self._buckets + 1), 2 * self.width)
        self._matrix: Bits = np.full(shape, 0xFF, np.uint8)
        self._matrix[0] = 0
        self.address = address(self._matrix)

    def _cut(self, found: Mapping[Name, list[Any]]) -> None:
        """Make a lane for everything that is asked, in buckets of like numbers of ends."""
        step = self._buckets + 1
        # In the order that columns have.
        numbers = sorted((n for n in found if n.order is _NUMBERS), key=lambda n: n.attribute)
        texts = [name for name in found if name.order is not _NUMBERS]
        lanes = [
            Lane(name, cut(found[name], self._buckets), 1 + place * step, self._buckets)
            for place, name in enumerate((*numbers, *texts))
        ]
        self._numbers = lanes[: len(numbers)]
        self._texts = {Name(lane.attribute, lane.order): lane for lane in lanes[len(numbers) :]}
        self._columns = {lane.attribute: at for at, lane in enumerate(self._numbers)}
        self._picks = [
            (lane.attribute, lane.cuts, lane.base, lane.missing) for lane in self._numbers
        ]
        # The ends of each bucket; beyond the last, buckets that nothing falls into.
        self._lower: Floats = np.full((len(numbers), self._buckets, 1), inf)
        self._upper: Floats = np.full((len(numbers), self._buckets, 1), inf)
        for at, lane in enumerate(self._numbers):
            self._lower[at, : len(lane.cuts) + 1, 0] = [-inf, *lane.cuts]
            self._upper[at, : len(lane.cuts), 0] = lane.cuts

    def have(self, entry: Entry) -> bool:
        """Whether there are lanes for all it asks."""
        columns, texts = self._columns, self._texts
        return all(attribute in columns for attribute, _, _ in entry.ranges) and all(
            name.attribute in columns if name.order is _NUMBERS else name in texts
            for name in (claims(entry) if entry.rest else ())
        )

    # Writing.

    def write(
        self, start: int, entries: Sequence[Entry], undecided: Sequence[bool], ranges: Ranges
    ) -> None:
        """Write whole bytes of filters, from a row on; rows that were there are overwritten."""
        claimed = [claims(entry) if entry.rest else _NONE for entry in entries]
        rows = slice(start // 8, (start + len(entries)) // 8)
        halves = (rows, slice(self.width + rows.start, self.width + rows.stop))
        if self._numbers:
            self._write_numbers(ranges, claimed, halves)
        for name, lane in self._texts.items():
            self._write_texts(name, lane, claimed, halves)
        self._occurrences.write(start, entries)
        self.complete = self.complete and not any(undecided)
        self._matrix[0, halves[0]] = np.packbits(~np.array(undecided), bitorder="little")
        self._matrix[0, halves[1]] = 0xFF

    def _write_numbers(
        self, ranges: Ranges, claimed: Sequence[Claims], halves: tuple[slice, slice]
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
        lines = self._matrix[1 : 1 + len(self._numbers) * (self._buckets + 1)]
        lines = lines.reshape(len(self._numbers), self._buckets + 1, -1)
        lines[:, :, halves[0]] = np.packbits(surely, axis=2, bitorder="little")
        lines[:, :, halves[1]] = np.packbits(maybe, axis=2, bitorder="little")

    def _write_texts(
        self, name: Name, lane: Lane, claimed: Sequence[Claims], halves: tuple[slice, slice]
    ) -> None:
        asking = [(row, others[name]) for row, others in enumerate(claimed) if name in others]
        spans = np.array([(0, self._buckets, 0, self._buckets)] * len(claimed)).T
        for row, claim in asking:
            spans[:, row] = lane.span(claim)
        numbered = np.arange(self._buckets + 1)[:, None]
        maybe = (spans[0] <= numbered) & (numbered <= spans[1])
        surely = (spans[2] <= numbered) & (numbered <= spans[3])
        for row, claim in asking:
            if claim.hole is not None:
                surely[lane.bucket(claim.hole), row] = False
            surely[self._buckets, row] = maybe[self._buckets, row] = False
        lines = self._matrix[lane.base : lane.missing + 1]
        lines[:, halves[0]] = np.packbits(surely, axis=1, bitorder="little")
        lines[:, halves[1]] = np.packbits(maybe, axis=1, bitorder="little")

    def erase(self, row: int, entry: Entry) -> None:
        clear(self._matrix[0], row)
        self._occurrences.erase(row, entry)

    # Asking.

    @property
    def settled(self) -> bool:
        """Whether picked lines say all that lines can."""
        return not self._occurrences

    def of(self, event: Event) -> tuple[Bits, Bits]:
        """The filters that are surely true of an event, and those that may be."""
        lines = self._matrix.take(self.picked(event), axis=0)
        left: Bits = np.bitwise_and.reduce(lines, axis=0)
        self._occurrences.narrow(left, event.texts)
        return left[: self.width], left[self.width :]

    def picked(self, event: Event) -> list[int]:
        """The lines of the buckets that an event falls into."""
        picked = [0]
        numbers, texts = event.numbers, event.texts
        for attribute, cuts, base, missing in self._picks:
            number = numbers.get(attribute)
            picked.append(missing if number is None else base + bisect_right(cuts, number))
        for lane in self._texts.values():
            text = texts.get(lane.attribute)
            if text is None:
                picked.append(lane.missing)
            else:
                if lane.order is Order.ENDINGS:
                    text = text[::-1]
                picked.append(lane.base + bisect_right(lane.cuts, text))
        return picked

    # Asking with a filter: which others may have something in common with it.

    def overlapping(self, attribute: str, values: Values) -> Bits | None:
        """Those that may take some of these values; None when nobody asks for any such."""
        lane = self._lane(attribute, values)
        if lane is None or values is None:
            return None
        if isinstance(values, NumberSet):
            first, last = lane.bucket(values.low), lane.bucket(values.high)
        else:
            first, last, _, _ = lane.span(Claim(values.low, values.high))
        lines = self._matrix[lane.base + first : lane.base + last + 1, self.width :]
        found: Bits = np.bitwise_or.reduce(lines, axis=0)
        return found

    def silent(self, attribute: str, values: Values) -> Bits | None:
        """Those that do not ask for values of this kind; None when nobody does."""
        lane = self._lane(attribute, values)
        return None if lane is None else self._matrix[lane.missing, self.width :]

    def _lane(self, attribute: str, values: Values) -> Lane | None:
        if isinstance(values, NumberSet):
            column = self._columns.get(attribute)
            return None if column is None else self._numbers[column]
        return self._texts.get(Name(attribute, Order.TEXTS))

    def asked(self) -> Iterator[tuple[str, Values]]:
        """What there are lanes for: an attribute and all values of a kind."""
        for lane in self._numbers:
            yield lane.attribute, ANY_NUMBER
        for name in self._texts:
            if name.order is Order.TEXTS:
                yield name.attribute, ANY_STRING

    def present(self) -> Bits:
        return self._matrix[0, self.width :].copy()
