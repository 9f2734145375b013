"""Scores, peak windows and the gate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from penstock_hives.arrays import Floats
from penstock_hives.forecast.accuracy import AccuracyTally, judge_model, peak_window, tally_accuracy
from penstock_hives.forecast.grid import HOURS


def day(**hours: float) -> Floats:
    row = np.ones(HOURS)
    for name, count in hours.items():
        row[int(name.removeprefix("h"))] = count
    return row


def no(days: int = 1) -> np.ndarray:
    return np.zeros(days, dtype=np.bool_)


def test_wape_is_misses_as_a_share_of_what_came() -> None:
    actual, said = np.full((1, HOURS), 10.0), np.full((1, HOURS), 8.0)
    assert tally_accuracy(actual, said, no()).wape == pytest.approx(0.2)


def test_holidays_are_counted_apart_as_well() -> None:
    actual = np.full((2, HOURS), 10.0)
    said = np.stack([np.full(HOURS, 10.0), np.full(HOURS, 5.0)])
    found = tally_accuracy(actual, said, np.array([False, True]))
    assert found.wape == pytest.approx(0.25)
    assert found.holiday_wape == pytest.approx(0.5)


def test_hours_unknown_on_either_side_do_not_count() -> None:
    actual, said = np.full((1, HOURS), 10.0), np.full((1, HOURS), 10.0)
    actual[0, 0], said[0, 1] = np.nan, np.nan
    found = tally_accuracy(actual, said, no())
    assert (found.wape, found.actual, found.days) == (0.0, 220.0, 0.0)


def test_a_peak_an_hour_off_is_good_enough() -> None:
    actual = np.stack([day(h12=9), day(h12=9)])
    said = np.stack([day(h13=9), day(h14=9)])
    assert tally_accuracy(actual, said, no(2)).peak == 0.5


def test_top_three_is_how_many_of_the_busiest_hours_were_named() -> None:
    actual, said = day(h10=5, h11=6, h12=7)[None], day(h11=5, h12=6, h13=7)[None]
    assert tally_accuracy(actual, said, no()).top3 == pytest.approx(2 / 3)


def test_coverage_is_how_many_hours_stayed_under_p90() -> None:
    actual = np.arange(HOURS, dtype=np.float64)[None]
    found = tally_accuracy(actual, actual, no(), np.full((1, HOURS), 11.0))
    assert found.coverage == 0.5
    assert math.isnan(tally_accuracy(actual, actual, no()).coverage)


def test_a_venue_nobody_came_to_has_no_score() -> None:
    empty = np.zeros((3, HOURS))
    found = tally_accuracy(empty, empty, no(3))
    assert math.isnan(found.wape)
    assert math.isnan(found.peak)


def test_tallies_of_venues_add_up() -> None:
    assert (AccuracyTally(error=1, actual=10) + AccuracyTally(error=3, actual=10)).wape == 0.2


def test_a_window_has_an_hour_on_either_side_of_a_lone_peak() -> None:
    assert peak_window(day(h11=3, h12=9, h13=2)) == (11, 14)


def test_a_window_takes_in_hours_that_come_near_the_busiest() -> None:
    assert peak_window(day(h11=95, h12=96, h13=100, h14=92)) == (11, 15)


def test_a_window_is_never_longer_than_five_hours() -> None:
    found = peak_window(np.full(HOURS, 5.0))
    assert found is not None
    assert found[1] - found[0] == 5


def test_a_peak_at_midnight_has_its_window_inside_the_day() -> None:
    assert peak_window(day(h0=9)) == (0, 3)
    assert peak_window(day(h23=9)) == (21, 24)


def test_a_day_on_which_nobody_is_expected_has_no_window() -> None:
    assert peak_window(np.zeros(HOURS)) is None
    assert peak_window(np.full(HOURS, np.nan)) is None


@given(arrays(np.float64, st.integers(1, 25), elements=st.floats(0, 1000)))
def test_a_window_holds_the_busiest_hour(hours: Floats) -> None:
    found = peak_window(hours)
    if found is not None:
        assert found[0] <= int(hours.argmax()) < found[1]
        assert found[0] >= 0
        assert found[1] <= len(hours)
        assert min(3, len(hours)) <= found[1] - found[0] <= 5


def tallies(*missed: float) -> dict[str, AccuracyTally]:
    return {str(venue): AccuracyTally(error=each, actual=100) for venue, each in enumerate(missed)}


def test_a_model_better_on_most_and_on_the_whole_is_accepted() -> None:
    found = judge_model(tallies(15, 15, 15, 21, 21), tallies(20, 20, 20, 20, 20))
    assert found.accepted
    assert (found.share_better, found.wape, found.baseline_wape) == (0.6, 0.174, 0.2)


def test_a_model_worse_on_too_many_is_refused_however_good_it_is_on_others() -> None:
    found = judge_model(tallies(1, 1, 21, 21, 21), tallies(20, 20, 20, 20, 20))
    assert not found.accepted
    assert "2 of 5" in found.reason


def test_a_model_a_hair_better_everywhere_is_refused() -> None:
    found = judge_model(tallies(19.5, 19.5), tallies(20, 20))
    assert not found.accepted
    assert "+2.5%" in found.reason


def test_venues_nobody_came_to_have_no_say() -> None:
    ours, usual = tallies(15), tallies(20)
    ours["empty"] = usual["empty"] = AccuracyTally()
    assert judge_model(ours, usual).share_better == 1.0
    assert not judge_model({"empty": AccuracyTally()}, {"empty": AccuracyTally()}).accepted
