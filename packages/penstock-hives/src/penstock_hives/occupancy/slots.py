"""How full hives are, five minutes at a time: from counts at the doors to people inside.

What was counted adds up. What is known otherwise, that nobody is inside at night, that somebody has
counted heads, is an *anchor*: from its moment on, occupancy is what it says and what was counted
since. So a slot depends on the slots back to its anchor and on nothing else, and the same counts
and anchors give the same occupancy, in whatever order they came to be known.

Occupancy is not below zero, of a hive, never of a door: who came in by one may leave by another.
`raw` is the figure before that. People who pass in the five minutes of an anchor are taken to be
spread evenly over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock_hives.arrays import Flags, Numbers

SLOT_SECONDS: Final = 300
#: Microseconds, as Arrow and the clocks have time. Slots are numbered by it, from 1970 on.
SLOT_MICROS: Final = SLOT_SECONDS * 1_000_000
EMPTY: Final[Numbers] = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class SlotCounts:
    """Slots of hives, by hive and then in order of time, each once."""

    hive: Numbers
    slot: Numbers
    entries: Numbers
    exits: Numbers

    def __len__(self) -> int:
        return len(self.hive)

    def only(self, rows: Flags) -> SlotCounts:
        return SlotCounts(self.hive[rows], self.slot[rows], self.entries[rows], self.exits[rows])

    @property
    def firsts(self) -> Flags:
        """Which rows are the first of their hive."""
        return starts_run(self.hive)


@dataclass(frozen=True, slots=True)
class Anchors:
    """By hive and then in order of time; of several at one moment there is one."""

    hive: Numbers
    at: Numbers  #: microseconds
    counted: Numbers

    def __len__(self) -> int:
        return len(self.hive)

    def only(self, rows: Flags | Numbers) -> Anchors:
        return Anchors(self.hive[rows], self.at[rows], self.counted[rows])

    @property
    def slot(self) -> Numbers:
        return self.at // SLOT_MICROS


@dataclass(frozen=True, slots=True)
class OccupancyLevels:
    """What is inside hives at some moment, before it is kept from going below zero."""

    hive: Numbers  #: in order
    raw: Numbers

    def of(self, hives: Numbers) -> Numbers:
        """Hives that are not here have nobody inside."""
        if not len(self.hive):
            return np.zeros(len(hives), np.int64)
        place = np.minimum(np.searchsorted(self.hive, hives), len(self.hive) - 1)
        return np.where(self.hive[place] == hives, self.raw[place], 0)


NO_LEVELS: Final = OccupancyLevels(EMPTY, EMPTY)


@dataclass(frozen=True, slots=True)
class SlotOccupancy:
    """Slots, with who was inside at their ends."""

    counts: SlotCounts
    raw: Numbers
    peak: Numbers
    #: By anchor: what it adds to what was reckoned until then.
    correction: Numbers

    @property
    def end(self) -> Numbers:
        return np.maximum(self.raw, 0)


def merge_counts(parts: Sequence[SlotCounts]) -> SlotCounts:
    """Counts of the same slots put together."""
    hive, slot, entries, exits = (
        np.concatenate([EMPTY, *(getattr(each, name) for each in parts)])
        for name in ("hive", "slot", "entries", "exits")
    )
    order = np.lexsort((slot, hive))
    hive, slot = hive[order], slot[order]
    first = np.flatnonzero(starts_run(hive) | starts_run(slot))
    if not len(first):
        return SlotCounts(hive, slot, entries, exits)
    return SlotCounts(
        hive[first],
        slot[first],
        np.add.reduceat(entries[order], first),
        np.add.reduceat(exits[order], first),
    )


def compute_occupancy(
    counts: SlotCounts, anchors: Anchors, before: OccupancyLevels
) -> SlotOccupancy:
    """Occupancy of slots; `before` is what was inside when each hive's first one began.

    Every anchor needs its slot among the counts (`anchor_slots`), or it holds nowhere.
    """
    net = counts.entries - counts.exits
    row, passed = _passed(counts, net, anchors)
    started = before.of(counts.hive)
    firsts = counts.firsts
    opening = np.where(firsts, started, 0)
    # Of several anchors in a slot the last holds.
    anchored = np.zeros(len(counts), bool)
    anchored[row] = True
    opening[row] = anchors.counted
    early = np.zeros(len(counts), np.int64)
    early[row] = passed

    begin = np.flatnonzero(firsts | anchored)
    stretch = np.cumsum(firsts | anchored) - 1
    so_far = np.cumsum(net - early)
    ahead = so_far - (net - early)
    raw = so_far - ahead[begin][stretch] + opening[begin][stretch]
    reached = np.where(firsts, started, np.roll(raw, 1))
    peak = np.maximum.reduce([raw, np.zeros_like(raw), _seen_first(counts, anchors, row, reached)])
    if len(row):
        np.maximum.at(peak, row, anchors.counted)
    return SlotOccupancy(counts, raw, peak, _corrections(anchors, row, reached, passed))


def anchor_slots(anchors: Anchors) -> SlotCounts:
    """Slots in which nobody need have passed, for anchors to hold in."""
    nobody = np.zeros(len(anchors), np.int64)
    return SlotCounts(anchors.hive, anchors.slot, nobody, nobody)


def starts_run(column: Numbers) -> Flags:
    """Where a column has another value than the row before; the first row always."""
    found = np.ones(len(column), bool)
    found[1:] = column[1:] != column[:-1]
    return found


def _passed(counts: SlotCounts, net: Numbers, anchors: Anchors) -> tuple[Numbers, Numbers]:
    """Each anchor's row, and how many of its slot had come, less those gone, when it was made."""
    row = find_slots(counts, anchors.hive, anchors.slot)
    since = anchors.at - anchors.slot * SLOT_MICROS
    return row, (2 * net[row] * since + SLOT_MICROS) // (2 * SLOT_MICROS)


def find_slots(counts: SlotCounts, hives: Numbers, slots: Numbers) -> Numbers:
    """The rows of slots that are there."""
    least = counts.slot.min(initial=0)
    span = counts.slot.max(initial=0) - least + 1
    known = np.unique(counts.hive)
    keys = np.searchsorted(known, counts.hive) * span + counts.slot - least
    rows: Numbers = np.searchsorted(keys, np.searchsorted(known, hives) * span + slots - least)
    return rows


def _seen_first(counts: SlotCounts, anchors: Anchors, row: Numbers, reached: Numbers) -> Numbers:
    """What was inside when each slot began: an anchor at that very moment knows better."""
    seen = reached.copy()
    at_once = anchors.at == counts.slot[row] * SLOT_MICROS
    seen[row[at_once]] = anchors.counted[at_once]
    return seen


def _corrections(anchors: Anchors, row: Numbers, reached: Numbers, passed: Numbers) -> Numbers:
    """An anchor that another follows in the same five minutes corrects nothing."""
    last = np.ones(len(row), bool)
    last[:-1] = row[1:] != row[:-1]
    return np.where(last, anchors.counted - reached[row] - passed, 0)
