"""Local days by 24 hours, whatever the clocks do."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_hives.dates import day_number
from penstock_hives.forecast.grid import HourlyGrid, hours_of_day, skipped_hours

ZONES = ["UTC", "Pacific/Auckland", "Europe/Paris", "America/New_York", "Asia/Kolkata"]


def grid_of(*rows: tuple[date, int, float], absent: float = float("nan")) -> HourlyGrid:
    days, hours, counts = zip(*rows, strict=True)
    numbers = np.array([day_number(day) for day in days])
    return HourlyGrid.of(numbers, np.array(hours), np.array(counts, np.float64), absent)


def test_rows_in_any_order_become_days_by_hours() -> None:
    grid = grid_of((date(2024, 5, 2), 23, 7.0), (date(2024, 5, 1), 0, 3.0))
    assert (grid.first, grid.end) == (date(2024, 5, 1), date(2024, 5, 3))
    assert (grid.counts[0, 0], grid.counts[1, 23]) == (3.0, 7.0)


def test_hours_without_a_row_are_unknown() -> None:
    grid = grid_of((date(2024, 5, 1), 8, 3.0), (date(2024, 5, 1), 10, 3.0))
    assert np.isnan(grid.counts[0, 9])


def test_a_rollup_has_no_rows_for_hours_in_which_nobody_came() -> None:
    rows = [(date(2024, 5, 1), 8, 3.0), (date(2024, 5, 1), 10, 3.0), (date(2024, 5, 3), 9, 1.0)]
    grid = grid_of(*rows, absent=0.0)
    assert grid.counts[0, 9] == 0
    assert np.isnan(grid.counts[0, 7]), "nothing is known before the first row"
    assert np.isnan(grid.counts[1]).all(), "nothing is known of a day without any"
    assert grid.counts[2, 8] == 0


def test_a_count_known_to_be_unknown_stays_so() -> None:
    rows = [(date(2024, 5, 1), 8, 3.0), (date(2024, 5, 1), 9, float("nan"))]
    assert np.isnan(grid_of(*rows, absent=0.0).counts[0, 9])


def test_the_hour_an_autumn_day_has_twice_is_the_mean_of_both() -> None:
    grid = grid_of((date(2024, 4, 7), 2, 10.0), (date(2024, 4, 7), 2, 20.0))
    assert grid.counts[0, 2] == 15.0


@pytest.mark.parametrize(
    ("day", "hours"), [(date(2024, 4, 7), 25), (date(2024, 9, 29), 23), (date(2024, 6, 1), 24)]
)
def test_a_day_has_as_many_slots_as_its_clock_has_hours(day: date, hours: int) -> None:
    assert len(hours_of_day(day, "Pacific/Auckland")) == hours


def test_the_slots_of_an_autumn_day_have_an_hour_twice() -> None:
    assert [hour for _, hour in hours_of_day(date(2024, 4, 7), "Pacific/Auckland")][:5] == [
        0,
        1,
        2,
        2,
        3,
    ]


def test_the_hour_a_spring_day_lacks_is_the_only_one_skipped() -> None:
    found = skipped_hours(date(2024, 9, 28), 3, "Pacific/Auckland")
    assert np.argwhere(found).tolist() == [[1, 2]]


@given(st.dates(date(2015, 1, 1), date(2035, 1, 1)), st.sampled_from(ZONES))
def test_slots_of_days_follow_one_another_without_gap(day: date, zone: str) -> None:
    here, then = hours_of_day(day, zone), hours_of_day(day + timedelta(days=1), zone)
    moments = [moment for moment, _ in here + then]
    steps = {after - before for before, after in pairwise(moments)}
    assert steps == {timedelta(hours=1)}
    assert all(moment.tzinfo is UTC for moment in moments)


def test_slots_are_moments_of_the_hives_own_day() -> None:
    first, hour = hours_of_day(date(2024, 7, 1), "Pacific/Auckland")[0]
    assert (first, hour) == (datetime(2024, 6, 30, 12, tzinfo=UTC), 0)
