"""What is said of a venue by its own weeks, however few."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pytest

from penstock_hives.forecast.baseline import MEDIAN_METHOD, TYPICAL_METHOD, baseline_forecast
from penstock_hives.forecast.grid import HOURS, HourlyGrid, PublicHolidays
from tests.hives.forecast.given import FIRST, counts

NOWHERE = PublicHolidays()


def after(grid: HourlyGrid, days: int = 0) -> date:
    return grid.end + timedelta(days=days)


def test_the_baseline_is_the_median_of_the_same_hour_in_four_weeks() -> None:
    rows = np.zeros((35, HOURS))
    rows[[0, 7, 14, 21, 28], 9] = [1000, 10, 20, 40, 80]
    found = baseline_forecast(HourlyGrid(FIRST, rows), FIRST + timedelta(days=35), NOWHERE)
    assert found is not None
    assert (found.method, found.p50[9]) == (MEDIAN_METHOD, 30.0)


def test_weeks_that_are_missing_are_left_out() -> None:
    grid = HourlyGrid(FIRST, counts(60))
    holed = grid.counts.copy()
    holed[60 - 7, 12] = np.nan
    found = baseline_forecast(HourlyGrid(FIRST, holed), after(grid), NOWHERE)
    assert found is not None
    assert found.p50[12] == np.median(grid.counts[[60 - 14, 60 - 21, 60 - 28], 12])


def test_a_venue_with_three_days_shows_a_typical_week() -> None:
    grid = HourlyGrid(date(2024, 5, 6), counts(3))
    friday = baseline_forecast(grid, date(2024, 5, 10), NOWHERE)
    assert friday is not None
    assert friday.method == TYPICAL_METHOD
    assert np.array_equal(friday.p50, np.median(grid.counts, axis=0))
    assert (friday.p90 >= friday.p50).all()
    assert friday.p90[12] > friday.p50[12]


def test_a_typical_week_prefers_days_of_the_same_kind() -> None:
    rows = np.ones((7, HOURS)) * np.array([10, 10, 10, 10, 10, 3, 4])[:, None]
    found = baseline_forecast(HourlyGrid(FIRST, rows), FIRST + timedelta(days=12), NOWHERE)
    assert found is not None
    assert (found.p50 == 3).all()


@pytest.mark.parametrize(("days", "method"), [(13, TYPICAL_METHOD), (14, MEDIAN_METHOD)])
def test_fourteen_days_are_enough_for_the_median(days: int, method: str) -> None:
    grid = HourlyGrid(FIRST, counts(days))
    found = baseline_forecast(grid, after(grid), NOWHERE)
    assert found is not None
    assert found.method == method


def test_a_venue_nobody_comes_to_is_expected_to_be_empty() -> None:
    grid = HourlyGrid(FIRST, np.zeros((60, HOURS)))
    found = baseline_forecast(grid, after(grid), NOWHERE)
    assert found is not None
    assert not found.p50.any()
    assert not found.p90.any()


def test_a_weekday_without_rows_for_four_weeks_is_one_it_is_closed_on() -> None:
    rows = counts(63)
    rows[6::7] = np.nan
    sunday = baseline_forecast(HourlyGrid(FIRST, rows), FIRST + timedelta(days=69), NOWHERE)
    assert sunday is not None
    assert not sunday.p50.any()


def test_nothing_is_said_of_a_venue_that_has_been_silent_for_four_weeks() -> None:
    grid = HourlyGrid(FIRST, counts(60))
    assert baseline_forecast(grid, after(grid, 27), NOWHERE) is not None
    assert baseline_forecast(grid, after(grid, 29), NOWHERE) is None


def test_nine_hours_in_ten_stay_under_p90() -> None:
    rows = counts(300)
    grid = HourlyGrid(FIRST, rows)
    under = []
    for place in range(150, 300):
        found = baseline_forecast(grid, FIRST + timedelta(days=place), PublicHolidays("NZ"))
        assert found is not None
        under.append(rows[place] <= found.p90)
    assert 0.86 < np.mean(under) < 0.95


def test_what_comes_later_changes_nothing() -> None:
    grid = HourlyGrid(FIRST, counts(100))
    day = FIRST + timedelta(days=70)
    later = grid.counts.copy()
    later[70:] = 10_000
    known, other = (
        baseline_forecast(each, day, NOWHERE) for each in (grid, HourlyGrid(FIRST, later))
    )
    assert known is not None
    assert other is not None
    assert np.array_equal(known.p50, other.p50)
    assert np.array_equal(known.p90, other.p90)
