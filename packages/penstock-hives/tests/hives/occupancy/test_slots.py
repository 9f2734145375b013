"""Occupancy by slot is what the obvious way of counting gives, one hive and one slot at a time."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from math import floor

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock_hives.occupancy.slots import (
    SLOT_MICROS,
    Anchors,
    OccupancyLevels,
    SlotCounts,
    SlotOccupancy,
    anchor_slots,
    compute_occupancy,
    merge_counts,
)

Row = tuple[int, int, int, int]
Anchor = tuple[int, int, int]
EMPTY = OccupancyLevels(np.zeros(0, np.int64), np.zeros(0, np.int64))


def counts_of(rows: list[Row]) -> SlotCounts:
    return SlotCounts(*np.array(rows, np.int64).reshape(-1, 4).T)


def anchors_of(anchors: list[Anchor]) -> Anchors:
    """One a moment, in order."""
    last = {(hive, at): counted for hive, at, counted in anchors}
    rows = [(*key, counted) for key, counted in sorted(last.items())]
    return Anchors(*np.array(rows, np.int64).reshape(-1, 3).T)


def reckoned(
    rows: list[Row], anchors: list[Anchor], before: OccupancyLevels = EMPTY
) -> SlotOccupancy:
    made = anchors_of(anchors)
    return compute_occupancy(merge_counts([counts_of(rows), anchor_slots(made)]), made, before)


def ends(rows: list[Row], anchors: list[Anchor] | None = None) -> list[int]:
    return list(map(int, reckoned(rows, anchors or []).end))


def slowly(rows: list[Row], anchors: list[Anchor]) -> dict[tuple[int, int], int]:
    """By hive and slot: who is inside at its end, before it is kept from going below zero."""
    net: dict[tuple[int, int], int] = defaultdict(int)
    for hive, slot, entries, exits in rows:
        net[hive, slot] += entries - exits
    last = {(hive, at): counted for hive, at, counted in anchors}
    for hive, at in last:
        net[hive, at // SLOT_MICROS] += 0
    found, inside = {}, 0
    before = None
    for hive, slot in sorted(net):
        inside = inside if hive == before else 0
        before = hive
        passing = net[hive, slot]
        inside += passing
        for (whose, at), counted in sorted(last.items()):
            if (whose, at // SLOT_MICROS) == (hive, slot):
                share = Fraction(at % SLOT_MICROS, SLOT_MICROS)
                inside = counted + passing - floor(passing * share + Fraction(1, 2))
        found[hive, slot] = inside
    return found


def test_people_add_up_by_hive() -> None:
    assert ends([(1, 10, 3, 0), (1, 11, 2, 1), (2, 10, 7, 0), (2, 12, 0, 2)]) == [3, 4, 7, 5]


def test_occupancy_is_never_negative_but_what_was_counted_is_kept() -> None:
    occupancy = reckoned([(1, 10, 1, 4), (1, 11, 2, 0), (1, 12, 2, 0)], [])
    assert occupancy.end.tolist() == [0, 0, 1]
    assert occupancy.raw.tolist() == [-3, -1, 1]


def test_a_door_more_people_leave_by_than_enter_makes_no_hive_negative() -> None:
    front, back = (1, 10, 6, 0), (1, 10, 0, 4)
    assert ends([front, back]) == [2]


def test_a_reset_empties_a_hive_at_the_beginning_of_its_slot() -> None:
    occupancy = reckoned([(1, 10, 5, 0), (1, 12, 2, 0)], [(1, 12 * SLOT_MICROS, 0)])
    assert occupancy.end.tolist() == [5, 2]
    assert occupancy.peak.tolist() == [5, 2]
    assert occupancy.correction.tolist() == [-5]


def test_an_anchor_holds_in_a_slot_in_which_nobody_passed() -> None:
    assert ends([(1, 10, 5, 0)], [(1, 20 * SLOT_MICROS, 0)]) == [5, 0]


def test_a_count_of_heads_is_what_counts_from_then_on() -> None:
    half = 11 * SLOT_MICROS + SLOT_MICROS // 2
    occupancy = reckoned([(1, 10, 5, 0), (1, 11, 4, 0), (1, 12, 0, 1)], [(1, half, 20)])
    assert occupancy.end.tolist() == [5, 22, 21]
    assert occupancy.correction.tolist() == [20 - 7]


def test_of_two_counts_in_five_minutes_the_later_one_holds() -> None:
    occupancy = reckoned(
        [(1, 10, 5, 0)], [(1, 10 * SLOT_MICROS + 1, 9), (1, 10 * SLOT_MICROS + 2, 30)]
    )
    assert occupancy.end.tolist() == [35]
    assert occupancy.correction.tolist() == [0, 30]


def test_a_slot_goes_on_from_what_was_inside_before() -> None:
    before = OccupancyLevels(np.array([1, 3]), np.array([-2, 50]))
    occupancy = reckoned([(1, 10, 5, 0), (2, 10, 1, 0), (3, 10, 0, 1)], [], before)
    assert occupancy.end.tolist() == [3, 1, 49]
    assert occupancy.peak.tolist() == [3, 1, 50]


ROWS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 8), st.integers(0, 9), st.integers(0, 9)),
    max_size=30,
)
ANCHORS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 9 * SLOT_MICROS), st.integers(0, 20)), max_size=6
)


@given(ROWS, ANCHORS)
def test_all_at_once_is_the_same_as_one_by_one(rows: list[Row], anchors: list[Anchor]) -> None:
    occupancy = reckoned(rows, anchors)
    keys = zip(occupancy.counts.hive.tolist(), occupancy.counts.slot.tolist(), strict=True)
    assert dict(zip(keys, occupancy.raw.tolist(), strict=True)) == slowly(rows, anchors)


@given(ROWS, ANCHORS, st.integers(0, 9))
def test_reckoning_goes_on_from_any_slot(rows: list[Row], anchors: list[Anchor], cut: int) -> None:
    whole = slowly(rows, anchors)
    before: dict[int, int] = {}
    for (hive, slot), raw in whole.items():
        if slot < cut:
            before[hive] = raw
    levels = OccupancyLevels(
        np.array(sorted(before), np.int64), np.array([before[h] for h in sorted(before)], np.int64)
    )
    later = reckoned(
        [row for row in rows if row[1] >= cut],
        [anchor for anchor in anchors if anchor[1] // SLOT_MICROS >= cut],
        levels,
    )
    assert later.raw.tolist() == [raw for (_, slot), raw in whole.items() if slot >= cut]


@given(ROWS, ANCHORS)
def test_corrections_make_up_for_what_was_not_counted(
    rows: list[Row], anchors: list[Anchor]
) -> None:
    occupancy = reckoned(rows, anchors)
    made = anchors_of(anchors)
    for hive in (1, 2, 3):
        of_hive = occupancy.counts.hive == hive
        if of_hive.any():
            counted = int((occupancy.counts.entries - occupancy.counts.exits)[of_hive].sum())
            corrected = int(occupancy.correction[made.hive == hive].sum())
            assert occupancy.raw[of_hive][-1] == counted + corrected
