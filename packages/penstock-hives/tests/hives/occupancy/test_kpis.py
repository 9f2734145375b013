"""A hive's day in figures."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from penstock_hives.dates import SLOT_SECONDS, day_number
from penstock_hives.occupancy.calendars import SLOTS_PER_HOUR, HiveCalendars, OpeningTimes
from penstock_hives.occupancy.rollups import DailyKpis, OccupancyRollup, OpeningShares, compute_kpis
from penstock_hives.occupancy.slots import NO_LEVELS, OccupancyLevels

DAY = date(2026, 3, 2)


def hour(clock: int, zone: str = "UTC", day: date = DAY) -> int:
    local = datetime(day.year, day.month, day.day, clock, tzinfo=ZoneInfo(zone))
    return int(local.timestamp()) // SLOT_SECONDS


def made(
    hours: list[tuple[int, int, int, float]],
    opening: OpeningTimes | None = None,
    zone: str = "UTC",
    before: OccupancyLevels = NO_LEVELS,
) -> DailyKpis:
    """Of hours with their entries, people at the end, and the mean."""
    names, entries, end = (np.array([row[i] for row in hours], np.int64) for i in range(3))
    area = np.array([round(row[3] * SLOTS_PER_HOUR) for row in hours], np.int64)
    one = np.ones(len(hours), np.int64)
    stretches = OccupancyRollup(
        one, names, entries, 0 * one, end, end, names, area, one * SLOTS_PER_HOUR
    )
    return compute_kpis(
        stretches, before, HiveCalendars({1: zone}), OpeningShares({1: opening or {}})
    )


def test_visits_are_entries() -> None:
    day = made([(hour(9), 10, 8, 5), (hour(12), 30, 20, 15)])
    assert day.visits.tolist() == [40]
    assert day.day.tolist() == [day_number(DAY)]


def test_the_mean_is_of_the_hours_it_is_open() -> None:
    opening = {"mon": [["09:00", "12:30"]]}
    day = made([(hour(9), 10, 8, 4), (hour(12), 0, 0, 2), (hour(20), 9, 9, 9)], opening)
    # Eight people from ten to twelve, which nobody reported of.
    assert day.mean.tolist() == [(4 + 8 + 8 + 2 * 0.5) / 3.5]


def test_without_opening_hours_the_mean_is_of_the_whole_day() -> None:
    inside = OccupancyLevels(np.array([1]), np.array([6]))
    day = made([(hour(12), 0, 0, 3)], before=inside)
    assert day.mean.tolist() == [(6 * 12 + 3) / 24]


def test_a_day_on_which_it_was_closed_has_no_mean() -> None:
    assert np.isnan(made([(hour(12), 1, 0, 1)], {"tue": [["09:00", "17:00"]]}).mean[0])


def test_the_busiest_hour_is_told_by_the_hives_clock() -> None:
    day = made(
        [(hour(h, "Asia/Kolkata"), 0, h % 17, h % 17) for h in range(24)], None, "Asia/Kolkata"
    )
    assert day.peak_hour.tolist() == [16]


@pytest.mark.parametrize(("day", "length"), [(date(2026, 3, 29), 23), (date(2026, 10, 25), 25)])
def test_a_day_is_as_long_as_its_clock_makes_it(day: date, length: int) -> None:
    found = made([(hour(12, "Europe/Madrid", day), 1, 1, 1)], None, "Europe/Madrid")
    assert found.mean.tolist() == [pytest.approx((1 + 11) / length)]


def test_an_exception_replaces_the_hours_of_its_weekday() -> None:
    usual = {"mon": [["09:00", "12:00"]], "tue": [["09:00", "12:00"]]}
    hours = [(hour(9), 1, 4, 4.0), (hour(1, day=date(2026, 3, 3)), 0, 2, 2.0)]
    assert np.isnan(made(hours, {**usual, "2026-03-02": []}).mean[0])
    late = made(hours, {**usual, "2026-03-02": [["23:00", "02:00"]], "2026-03-03": []})
    # Four people until one, then two.
    assert late.mean.tolist() == [4.0, 3.0]


def test_hours_of_a_night_out_belong_to_both_days() -> None:
    opening = {"mon": [["22:00", "02:00"]]}
    tuesday = date(2026, 3, 3)
    found = made([(hour(22), 5, 5, 5), (hour(0, day=tuesday), 0, 3, 3)], opening)
    assert found.mean.tolist() == [5.0, 3.0]
    assert datetime.fromtimestamp(hour(22) * SLOT_SECONDS, UTC).weekday() == 0


def test_coverage_is_the_share_of_opening_hours_that_were_heard_of() -> None:
    opening = {"mon": [["09:00", "12:30"]]}
    day = made([(hour(9), 10, 8, 4), (hour(12), 0, 0, 2), (hour(20), 9, 9, 9)], opening)
    assert day.coverage.tolist() == [1.5 / 3.5]


def test_a_day_on_which_it_was_closed_has_no_coverage() -> None:
    assert np.isnan(made([(hour(12), 1, 0, 1)], {"tue": [["09:00", "17:00"]]}).coverage[0])
