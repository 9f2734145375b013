"""Occupancy of hives in slots of five minutes: from counts at the doors to people inside.

Counts add up. An *anchor* (a nightly reset, a manual count) sets occupancy at its time; later
counts are added to it. A slot depends on the slots back to its anchor only, so the same counts and
anchors give the same occupancy, in whatever order they arrive.

Occupancy of a hive is not below zero; a single door may be, because people leave by another one.
`raw` is the value before that limit. Events in the slot of an anchor are taken to be spread evenly
over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock_hives.arrays import Flags, Numbers, is_run_start
from penstock_hives.dates import SLOT_SECONDS

#: Slots are numbered from 1970 on.
SLOT_MICROS: Final = SLOT_SECONDS * 1_000_000
EMPTY: Final[Numbers] = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class SlotCounts:
    """Slots of hives, by hive and then in order of time; each slot once."""

    hive: Numbers
    slot: Numbers
    entries: Numbers
    exits: Numbers

    def __len__(self) -> int:
        return len(self.hive)

    def take(self, rows: Numbers) -> SlotCounts:
        return SlotCounts(self.hive[rows], self.slot[rows], self.entries[rows], self.exits[rows])

    @property
    def firsts(self) -> Flags:
        return is_run_start(self.hive)


@dataclass(frozen=True, slots=True)
class Anchors:
    """By hive and then in order of time; one at a time."""

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
    """Raw occupancy of hives at some time."""

    hive: Numbers  #: in order
    raw: Numbers

    def of(self, hives: Numbers) -> Numbers:
        """0 for hives without a row."""
        if not len(self.hive):
            return np.zeros(len(hives), np.int64)
        row = np.minimum(np.searchsorted(self.hive, hives), len(self.hive) - 1)
        return np.where(self.hive[row] == hives, self.raw[row], 0)


NO_LEVELS: Final = OccupancyLevels(EMPTY, EMPTY)


@dataclass(frozen=True, slots=True)
class SlotOccupancy:
    """Slots, with occupancy at their ends."""

    counts: SlotCounts
    raw: Numbers
    peak: Numbers
    #: By anchor: the difference between its count and the computed occupancy.
    correction: Numbers

    @property
    def end(self) -> Numbers:
        return np.maximum(self.raw, 0)


def merge_counts(parts: Sequence[SlotCounts]) -> SlotCounts:
    """Counts of the same slot are added."""
    hive, slot, entries, exits = (
        np.concatenate([EMPTY, *(getattr(each, name) for each in parts)])
        for name in ("hive", "slot", "entries", "exits")
    )
    order = np.lexsort((slot, hive))
    hive, slot = hive[order], slot[order]
    first = np.flatnonzero(is_run_start(hive) | is_run_start(slot))
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
    """Occupancy of slots; `before` is the level at the start of each hive's first slot.

    Every anchor needs a row of its slot in the counts (`anchor_slots`).
    """
    net = counts.entries - counts.exits
    row, passed = _passed(counts, net, anchors)
    started = before.of(counts.hive)
    firsts = counts.firsts
    opening = np.where(firsts, started, 0)
    # The last of several anchors in a slot wins.
    anchored = np.zeros(len(counts), bool)
    anchored[row] = True
    opening[row] = anchors.counted
    early = np.zeros(len(counts), np.int64)
    early[row] = passed

    begin = np.flatnonzero(firsts | anchored)
    period = np.cumsum(firsts | anchored) - 1
    so_far = np.cumsum(net - early)
    ahead = so_far - (net - early)
    raw = so_far - ahead[begin][period] + opening[begin][period]
    reached = np.where(firsts, started, np.roll(raw, 1))
    peak = np.maximum.reduce([raw, np.zeros_like(raw), _seen_first(counts, anchors, row, reached)])
    if len(row):
        np.maximum.at(peak, row, anchors.counted)
    return SlotOccupancy(counts, raw, peak, _corrections(anchors, row, reached, passed))


def anchor_slots(anchors: Anchors) -> SlotCounts:
    """Slots without counts, for anchors."""
    zeros = np.zeros(len(anchors), np.int64)
    return SlotCounts(anchors.hive, anchors.slot, zeros, zeros)


def _passed(counts: SlotCounts, net: Numbers, anchors: Anchors) -> tuple[Numbers, Numbers]:
    """Each anchor's row, and the net count of its slot until its time."""
    row = find_slots(counts, anchors.hive, anchors.slot)
    since = anchors.at - anchors.slot * SLOT_MICROS
    return row, (2 * net[row] * since + SLOT_MICROS) // (2 * SLOT_MICROS)


def find_slots(counts: SlotCounts, hives: Numbers, slots: Numbers) -> Numbers:
    """The rows of these slots, which must exist."""
    least = counts.slot.min(initial=0)
    span = counts.slot.max(initial=0) - least + 1
    unique = np.unique(counts.hive)
    keys = np.searchsorted(unique, counts.hive) * span + counts.slot - least
    rows: Numbers = np.searchsorted(keys, np.searchsorted(unique, hives) * span + slots - least)
    return rows


def _seen_first(counts: SlotCounts, anchors: Anchors, row: Numbers, reached: Numbers) -> Numbers:
    """Occupancy at the start of each slot; an anchor at that time replaces it."""
    seen = reached.copy()
    at_once = anchors.at == counts.slot[row] * SLOT_MICROS
    seen[row[at_once]] = anchors.counted[at_once]
    return seen


def _corrections(anchors: Anchors, row: Numbers, reached: Numbers, passed: Numbers) -> Numbers:
    """0 for an anchor that is followed by another one in its slot."""
    last = np.ones(len(row), bool)
    last[:-1] = row[1:] != row[:-1]
    return np.where(last, anchors.counted - reached[row] - passed, 0)
