"""Hours and days by a hive's own clock, against one slot after the other."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_hives.dates import SLOT_SECONDS, date_of, day_number
from penstock_hives.occupancy.calendars import SLOTS_PER_HOUR, HiveCalendars
from penstock_hives.occupancy.rollups import OccupancyRollup, roll_up_days, roll_up_hours
from penstock_hives.occupancy.slots import Anchors, OccupancyLevels, SlotCounts, compute_occupancy

NOBODY = OccupancyLevels(np.zeros(0, np.int64), np.zeros(0, np.int64))
NO_ANCHORS = Anchors(*(np.zeros(0, np.int64) for _ in range(3)))
#: A zone, the day its clocks go forward, and the day they go back; the last one's never do.
ZONES = {
    "Europe/Madrid": (date(2026, 3, 29), date(2026, 10, 25)),
    "America/New_York": (date(2026, 3, 8), date(2026, 11, 1)),
    "Pacific/Auckland": (date(2026, 9, 27), date(2026, 4, 5)),
}


def slot_of(moment: datetime) -> int:
    return int(moment.timestamp()) // SLOT_SECONDS


def moment(slot: int) -> datetime:
    return datetime.fromtimestamp(slot * SLOT_SECONDS, UTC)


def rolled(
    rows: list[tuple[int, int, int]], zone: str, before: OccupancyLevels = NOBODY
) -> tuple[OccupancyRollup, OccupancyRollup]:
    """Hours and days of one hive, of slots with their entries and exits."""
    slot, entries, exits = np.array(rows, np.int64).reshape(-1, 3).T
    counts = SlotCounts(np.ones(len(rows), np.int64), slot, entries, exits)
    calendars = HiveCalendars({1: zone})
    by_hour = roll_up_hours(compute_occupancy(counts, NO_ANCHORS, before), before, calendars)
    return by_hour, roll_up_days(by_hour, before, calendars)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(("which", "length"), [(0, 23), (1, 25)])
def test_a_day_is_as_long_as_its_clock_makes_it(zone: str, which: int, length: int) -> None:
    day = ZONES[zone][which]
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=ZoneInfo(zone))
    _, by_day = rolled([(slot_of(noon), 1, 0)], zone)
    assert [date_of(number) for number in by_day.name.tolist()] == [day]
    assert by_day.slots.tolist() == [length * SLOTS_PER_HOUR]


def test_hours_of_kolkata_begin_at_half_past() -> None:
    at = slot_of(datetime(2026, 3, 2, 6, 40, tzinfo=UTC))
    by_hour, by_day = rolled([(at, 1, 0)], "Asia/Kolkata")
    assert moment(by_hour.name[0]) == datetime(2026, 3, 2, 6, 30, tzinfo=UTC)
    midnight = HiveCalendars({1: "Asia/Kolkata"}).midnight(by_day.hive, by_day.name)
    assert moment(midnight[0]) == datetime(2026, 3, 1, 18, 30, tzinfo=UTC)


def test_the_hour_that_comes_twice_is_two_hours() -> None:
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # 02:30 in Madrid, and again an hour later
    by_hour, by_day = rolled(
        [(slot_of(first), 5, 0), (slot_of(first + timedelta(hours=1)), 2, 0)], "Europe/Madrid"
    )
    assert by_hour.entries.tolist() == [5, 2]
    assert by_day.entries.tolist() == [7]


def test_a_day_whose_midnight_is_skipped_begins_when_its_date_is_shown() -> None:
    day = date(2026, 4, 24)  # Cairo's clocks go from midnight to one
    calendars = HiveCalendars({1: "Africa/Cairo"})
    one = np.ones(1, np.int64)
    midnight = calendars.midnight(one, np.array([day_number(day)]))
    local = moment(midnight[0]).astimezone(ZoneInfo("Africa/Cairo"))
    assert (local.date(), local.hour) == (day, 1)


def test_a_figure_stands_until_the_next_one() -> None:
    start = slot_of(datetime(2026, 3, 2, 12, tzinfo=UTC))
    by_hour, by_day = rolled([(start + 6, 10, 0), (start + 24, 0, 4)], "UTC")
    assert by_hour.mean.tolist() == [5.0, 6.0]
    # Ten for one hour and a half, six for the ten hours that are left of the day.
    assert by_day.mean.tolist() == [(10 * 1.5 + 6 * 10) / 24]
    assert by_day.peak.tolist() == [10]
    assert moment(by_day.peak_at[0]) == datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_who_was_inside_before_counts_until_the_first_slot() -> None:
    start = slot_of(datetime(2026, 3, 2, 12, tzinfo=UTC))
    inside = OccupancyLevels(np.array([1]), np.array([8]))
    by_hour, by_day = rolled([(start + 6, 0, 8)], "UTC", inside)
    assert by_hour.mean.tolist() == [4.0]
    assert by_hour.peak.tolist() == [8]
    assert by_day.mean.tolist() == [8 * 12.5 / 24]


SLOTS = st.dictionaries(st.integers(0, 5 * 288), st.tuples(*(st.integers(0, 9),) * 2), min_size=1)


@settings(max_examples=60)
@given(SLOTS, st.sampled_from([*ZONES, "Asia/Kolkata"]), st.integers(0, 1), st.integers(-5, 9))
def test_rollups_are_what_slot_by_slot_gives(
    some: dict[int, tuple[int, int]], zone: str, season: int, inside: int
) -> None:
    change = ZONES.get(zone, ZONES["Europe/Madrid"])[season]
    local = datetime(change.year, change.month, change.day, tzinfo=ZoneInfo(zone))
    begin = slot_of(local - timedelta(days=2))
    rows = [(begin + slot, *passed) for slot, passed in sorted(some.items())]
    by_hour, by_day = rolled(rows, zone, OccupancyLevels(np.array([1]), np.array([inside])))
    for made, length in ((by_hour, "hour"), (by_day, "day")):
        assert dict(zip(made.name.tolist(), made.mean.tolist(), strict=True)) == pytest.approx(
            slowly(rows, zone, inside, length)
        )
    assert by_hour.entries.sum() == by_day.entries.sum() == sum(row[1] for row in rows)
    assert by_hour.exits.sum() == by_day.exits.sum() == sum(row[2] for row in rows)


def slowly(
    rows: list[tuple[int, int, int]], zone: str, inside: int, length: str
) -> dict[int, float]:
    """Means of the hours or days that have rows, from every slot of them."""
    passed = {slot: entries - exits for slot, entries, exits in rows}
    figures: dict[int, list[int]] = defaultdict(list)
    named: dict[int, int] = {}
    begin = min(passed) - 2 * 288
    for slot in range(begin, max(passed) + 2 * 288):
        inside += passed.get(slot, 0)
        local = moment(slot).astimezone(ZoneInfo(zone))
        name = day_number(local.date()) if length == "day" else slot - local.minute // 5
        named[slot] = name
        figures[name].append(max(0, inside))
    return {
        name: sum(figures[name]) / len(figures[name]) for name in {named[slot] for slot in passed}
    }
