"""The baseline forecast: medians of a venue's own weeks.

* `median-4`: the median of the same hour of the week in the last four weeks.
* `typical-week`: with less than 14 days of history, the median of the days there are.
* No forecast if nothing was counted in four weeks.

The row of a day is computed from earlier rows only.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import date
from typing import Final

import numpy as np

from penstock_hives.arrays import Flags, Floats
from penstock_hives.forecast.grid import HOURS, WEEK, HourlyGrid, PublicHolidays

#: Fewer weeks follow outliers, more weeks miss the season.
BASELINE_WEEKS: Final = 4
SCALE_WEEKS: Final = 8
#: Days whose errors determine p90.
SPREAD_DAYS: Final = 56
#: With too few days: half of the expected count.
DEFAULT_SPREAD: Final = 0.5
#: With fewer days the typical week is forecast.
MIN_HISTORY_DAYS: Final = 14
#: Added to the expected count when errors are scaled, as a share of the venue's mean hour, because
#: ratios of small counts are noise.
LEVEL_FLOOR: Final = 0.1
UPPER_QUANTILE: Final = 0.9


def shift_days(values: Floats, days: int) -> Floats:
    """The same hours `days` days before; NaN at the beginning."""
    moved = np.full_like(values, np.nan)
    if days < len(values):
        moved[days:] = values[: len(values) - days]
    return moved


def same_weekday_hours(counts: Floats, weeks: int) -> Floats:
    """weeks × days × hours, the last week first."""
    return np.stack([shift_days(counts, WEEK * week) for week in range(1, weeks + 1)])


def nan_median(values: Floats) -> Floats:
    """Along the first axis, of known values; NaN where none is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmedian(values, axis=0))


def median_of_weeks(counts: Floats, weeks: int = BASELINE_WEEKS) -> Floats:
    return nan_median(same_weekday_hours(counts, weeks))


def mean_level(counts: Floats, days: int = WEEK * SCALE_WEEKS) -> Floats:
    """The mean hour of the days before each day: the size of a venue."""
    known = np.isfinite(counts)
    total = _over_days(np.where(known, counts, 0).sum(axis=1), days)
    number = _over_days(known.sum(axis=1).astype(np.float64), days)
    mean: Floats = np.divide(total, number, out=np.full(len(counts), np.nan), where=number > 0)
    return mean


def upper_band(counts: Floats, expected: Floats, level: Floats, since: int = 0) -> Floats:
    """The 90th percentile, by the errors of the last weeks; of days before `since` a default.

    Errors are scaled by the expected count, so that quiet and busy hours are comparable.
    """
    size = expected + LEVEL_FLOOR * level[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = (counts - expected) / size
    spread = np.full(len(counts), DEFAULT_SPREAD)
    for day in range(since, len(counts)):
        window = errors[max(0, day - SPREAD_DAYS) : day]
        window = window[np.isfinite(window)]
        if window.size >= WEEK * HOURS:
            spread[day] = max(0.0, float(np.quantile(window, UPPER_QUANTILE)))
    return np.asarray(expected + spread[:, None] * size)


def typical_week(counts: Floats, weekdays: np.ndarray, off: Flags) -> Floats:
    """Medians, 7 × 24, of the last eight weeks without holidays.

    A weekday without data gets the median of weekdays or weekends, or else of all days.
    """
    recent = slice(max(0, len(counts) - WEEK * SCALE_WEEKS), None)
    seen, weekdays = counts[recent], weekdays[recent]
    ordinary = np.where(off[recent, None], np.nan, seen)
    ordinary = ordinary if np.isfinite(ordinary).any() else seen
    nothing = np.full((1, HOURS), np.nan)
    week = np.full((WEEK, HOURS), np.nan)
    for weekday in range(WEEK):
        kinds = (weekdays == weekday, (weekdays >= 5) == (weekday >= 5), weekdays >= 0)
        for kind in kinds:
            usual = nan_median(np.concatenate([ordinary[kind], nothing]))
            week[weekday] = np.where(np.isnan(week[weekday]), usual, week[weekday])
    return week


def _over_days(values: Floats, days: int) -> Floats:
    sums = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    return np.asarray(sums[index] - sums[np.maximum(0, index - days)])


MEDIAN_METHOD: Final = f"median-{BASELINE_WEEKS}"
TYPICAL_METHOD: Final = "typical-week"
#: Days that a forecast uses.
_REACH: Final = SPREAD_DAYS + WEEK * (SCALE_WEEKS + 1)


@dataclass(frozen=True, slots=True)
class ExpectedHours:
    """Of one venue and day, by local hour; NaN where there is no forecast."""

    p50: Floats
    p90: Floats
    method: str


def has_enough_history(grid: HourlyGrid, day: date) -> bool:
    return int(np.isfinite(grid.before(day).counts).any(axis=1).sum()) >= MIN_HISTORY_DAYS


def is_active(grid: HourlyGrid, day: date) -> bool:
    """Whether there is data of the last four weeks."""
    recent = grid.before(day).extend_to(day).counts[-WEEK * BASELINE_WEEKS - 1 :]
    return bool(np.isfinite(recent).any())


def baseline_forecast(grid: HourlyGrid, day: date, public: PublicHolidays) -> ExpectedHours | None:
    """From the venue's weeks before that day; None without recent data."""
    past = grid.before(day)
    if not is_active(past, day):
        return None
    past = past.extend_to(day)
    if not has_enough_history(past, day):
        return _typical(past, day, public)
    start = max(0, len(past.counts) - _REACH)
    counts = past.counts[start:]
    usual = median_of_weeks(counts)
    # A weekday without data in four weeks is a closing day.
    usual[-1] = np.where(np.isnan(usual[-1]), 0.0, usual[-1])
    high = upper_band(counts, usual, np.nan_to_num(mean_level(counts)), len(counts) - 1)
    return ExpectedHours(usual[-1], high[-1], MEDIAN_METHOD)


def _typical(past: HourlyGrid, day: date, public: PublicHolidays) -> ExpectedHours:
    days = past.days
    weekdays = np.array([each.weekday() for each in days])
    usual = typical_week(past.counts, weekdays, public.is_holiday(days))[day.weekday()]
    rows = np.vstack([past.counts[:-1], usual[None]])
    size = np.nan_to_num(mean_level(rows))
    high = upper_band(rows, np.broadcast_to(usual, rows.shape), size, len(rows) - 1)
    return ExpectedHours(usual, high[-1], TYPICAL_METHOD)
