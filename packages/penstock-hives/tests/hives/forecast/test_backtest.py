"""Forecasts of days that have passed; and the open data sets they are measured on."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pytest

from penstock.core.errors import ConfigurationError, PreconditionFailed
from penstock_hives.forecast.backtest import (
    GLOBAL_METHOD,
    Backtest,
    BacktestSpan,
    run_backtest,
)
from penstock_hives.forecast.baseline import MEDIAN_METHOD
from penstock_hives.forecast.grid import HourlyGrid, PublicHolidays
from penstock_hives.forecast.venues import Venue, read_count_file
from tests.hives.forecast.given import COUNTS, FIRST, SMALL, venues

START = FIRST + timedelta(days=150)
AUCKLAND = COUNTS / "auckland_hourly_2023_2024.csv"


@pytest.fixture(scope="module")
def found() -> Backtest:
    return run_backtest(
        venues(), BacktestSpan(START, FIRST + timedelta(days=200), 25), growth=SMALL
    )


def test_a_span_is_cut_where_models_are_fitted_again() -> None:
    span = BacktestSpan(date(2024, 7, 1), date(2024, 7, 11), 4)
    assert [stop - start for start, stop in span.periods()] == [
        timedelta(days=days) for days in (4, 4, 2)
    ]


def test_all_methods_are_scored_on_all_venues(found: Backtest) -> None:
    for tallies in found.tallies.values():
        assert len(tallies) == 4
        assert all(each.wape < 1 for each in tallies.values())


def test_a_model_learns_what_medians_do_not_know(found: Backtest) -> None:
    assert found.total(GLOBAL_METHOD).wape < 0.95 * found.total(MEDIAN_METHOD).wape
    assert found.total(GLOBAL_METHOD).holiday_wape < found.total(MEDIAN_METHOD).holiday_wape
    assert found.verdict.accepted


def test_what_a_model_says_of_a_day_does_not_depend_on_that_day_or_later(found: Backtest) -> None:
    told = venues()
    place = told[0].grid.index(START) + 10
    for each in told:
        each.grid.counts[place:] = 5_000
    changed = run_backtest(told, BacktestSpan(START, FIRST + timedelta(days=200), 25), growth=SMALL)
    for name, said in found.forecasts.items():
        other = changed.forecasts[name]
        assert np.array_equal(said.p50[:11], other.p50[:11])
        assert np.array_equal(said.p90[:11], other.p90[:11])
        assert not np.array_equal(said.p50[11:], other.p50[11:])


def test_venues_without_anybody_or_with_little_past_do_no_harm() -> None:
    odd = [
        Venue("empty", HourlyGrid(FIRST, np.zeros((200, 24)))),
        Venue("new", HourlyGrid(FIRST + timedelta(days=190), np.ones((10, 24)))),
        Venue("ended", HourlyGrid(FIRST, np.ones((100, 24)))),
    ]
    span = BacktestSpan(START, FIRST + timedelta(days=200), 50)
    result = run_backtest([*venues(), *odd], span, growth=SMALL)
    assert result.verdict.accepted
    assert result.tallies[GLOBAL_METHOD]["ended"].actual == 0


def test_without_a_past_there_is_nothing_to_learn_from() -> None:
    with pytest.raises(PreconditionFailed, match="no training data"):
        run_backtest(
            venues(1, 40), BacktestSpan(FIRST + timedelta(days=30), FIRST + timedelta(days=40))
        )


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="should end with"):
        read_count_file(COUNTS / "PROVENANCE.md", PublicHolidays())


def test_the_auckland_set_is_21_places_for_two_years() -> None:
    places = read_count_file(AUCKLAND, PublicHolidays("NZ", "AUK"))
    assert len(places) == 21
    assert {(each.grid.first, each.grid.end) for each in places} == {
        (date(2023, 1, 1), date(2025, 1, 1))
    }
    spring = places[0].grid.counts[places[0].grid.index(date(2024, 9, 29))]
    assert np.flatnonzero(np.isnan(spring)).tolist() == [2]


def test_the_door_of_calit2_is_those_who_enter() -> None:
    (door,) = read_count_file(COUNTS / "calit2.data", PublicHolidays("US", "CA"))
    assert (door.name, len(door.grid.counts)) == ("calit2", 105)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_on_auckland_the_model_is_worth_publishing() -> None:
    places = read_count_file(AUCKLAND, PublicHolidays("NZ", "AUK"))
    result = run_backtest(places, BacktestSpan(date(2024, 7, 1), date(2025, 1, 1), 92))
    usual, model = result.total(MEDIAN_METHOD), result.total(GLOBAL_METHOD)
    assert (round(usual.wape, 3), round(usual.holiday_wape, 3)) == (0.180, 0.723)
    assert model.wape <= 0.158
    assert model.holiday_wape <= 0.41
    assert model.peak >= 0.66
    assert 0.85 < model.coverage < 0.95
    assert result.verdict.accepted


def test_on_one_door_with_a_short_past_it_is_not() -> None:
    places = read_count_file(COUNTS / "calit2.data", PublicHolidays("US", "CA"))
    result = run_backtest(places, BacktestSpan(date(2005, 10, 9), date(2005, 11, 6), 28))
    assert result.total(MEDIAN_METHOD).wape < result.total(GLOBAL_METHOD).wape
    assert not result.verdict.accepted
