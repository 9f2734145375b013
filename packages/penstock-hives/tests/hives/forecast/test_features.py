"""What the model looks at: ratios, and nothing that was not known the evening before."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_hives.arrays import Floats
from penstock_hives.forecast.backtest import SIMPLE_METHODS
from penstock_hives.forecast.features import FEATURE_NAMES, make_features
from penstock_hives.forecast.grid import HOURS, HourlyGrid, PublicHolidays
from penstock_hives.forecast.venues import Venue
from tests.hives.forecast.given import FIRST, counts

DAYS = 120
NZ = PublicHolidays("NZ")


def column(name: str, rows: Floats, first: int = 0) -> Floats:
    return make_features(HourlyGrid(FIRST + timedelta(days=first), rows), NZ).values[
        ..., FEATURE_NAMES.index(name)
    ]


@settings(max_examples=25, deadline=None)
@given(day=st.integers(0, DAYS - 1), seed=st.integers(0, 1000), unknown=st.booleans())
def test_the_features_of_a_day_are_made_from_the_days_before_it(
    day: int, seed: int, unknown: bool
) -> None:
    rows = counts(DAYS)
    later = rows.copy()
    later[day:] = np.nan if unknown else np.random.default_rng(seed).random((DAYS - day, 24)) * 999
    known, other = (make_features(HourlyGrid(FIRST, each), NZ) for each in (rows, later))
    assert np.array_equal(known.values[: day + 1], other.values[: day + 1], equal_nan=True)
    assert np.array_equal(known.scale[: day + 1], other.scale[: day + 1], equal_nan=True)


@settings(max_examples=10, deadline=None)
@given(day=st.integers(0, DAYS - 1))
def test_so_is_what_the_simple_methods_say(day: int) -> None:
    rows = counts(DAYS)
    later = rows.copy()
    later[day:] = 12345.0
    for method in SIMPLE_METHODS.values():
        known, other = (method(Venue("", HourlyGrid(FIRST, each), NZ)) for each in (rows, later))
        assert np.array_equal(known[: day + 1], other[: day + 1], equal_nan=True)


def test_a_venue_ten_times_as_large_looks_the_same() -> None:
    rows = np.maximum(counts(DAYS, level=1000.0), 200)
    small, large = (
        make_features(HourlyGrid(FIRST, rows), NZ),
        make_features(HourlyGrid(FIRST, rows * 10), NZ),
    )
    assert np.allclose(small.values[60:], large.values[60:], equal_nan=True)


def test_a_holiday_is_left_out_of_the_cleaned_medians() -> None:
    rows = np.full((DAYS, HOURS), 100.0)
    waitangi = 35
    rows[waitangi] = 0
    after = waitangi + 7
    assert column("cleaned_4", rows)[after, 12] == 1.0
    assert column("week_ago", rows)[after, 12] == 0.0


def test_sundays_are_the_last_four_before_the_day() -> None:
    rows = np.repeat(np.arange(DAYS, dtype=np.float64)[:, None], HOURS, axis=1)
    found = make_features(HourlyGrid(FIRST, rows), PublicHolidays())
    sundays = found.values[..., FEATURE_NAMES.index("sundays")] * found.scale
    monday, sunday = 70, 69
    assert sundays[monday, 0] == np.median([69, 62, 55, 48])
    assert sundays[sunday, 0] == np.median([62, 55, 48, 41])


def test_levels_tell_how_the_last_days_were_against_their_own_medians() -> None:
    rows = np.full((DAYS, HOURS), 100.0)
    rows[80] = 150.0
    assert column("level_1", rows)[81, 0] == 1.5
    assert np.isclose(column("level_7", rows)[81, 0], 1 + 0.5 / 7)
    assert column("level_1", rows)[80, 0] == 1.0


def test_missing_hours_leave_gaps_and_spoil_nothing_else() -> None:
    rows = counts(DAYS)
    holed = rows.copy()
    holed[90, 5:9] = np.nan
    found = make_features(HourlyGrid(FIRST, holed), NZ)
    assert np.isnan(found.values[97, 5:9, FEATURE_NAMES.index("week_ago")]).all()
    assert np.isfinite(found.values[97, 5:9, FEATURE_NAMES.index("median_4")]).all()
    assert np.isfinite(found.scale[57:]).all()


def test_an_empty_venue_has_finite_features() -> None:
    found = make_features(HourlyGrid(FIRST, np.zeros((DAYS, HOURS))), NZ)
    assert not np.isinf(found.values).any()
    assert (found.scale[60:] == 1.0).all()


def test_a_history_cut_short_gives_the_same_for_its_last_day() -> None:
    rows = counts(300)
    whole = make_features(HourlyGrid(FIRST, rows), NZ)
    part = make_features(HourlyGrid(FIRST + timedelta(days=300 - 126), rows[-126:]), NZ)
    assert np.allclose(whole.values[-1], part.values[-1], equal_nan=True)
    assert np.allclose(whole.scale[-1], part.scale[-1])
