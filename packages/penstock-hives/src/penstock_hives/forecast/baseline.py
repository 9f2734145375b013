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
from penstock_hives.forecast.grid import HOURS, WEEK, HourlyGrid
from penstock_hives.forecast.public_holidays import PublicHolidays

#: Fewer follow one odd week, more miss the season.
BASELINE_WEEKS: Final = 4
SCALE_WEEKS: Final = 8
#: Days whose misses say how far the next may stray.
SPREAD_DAYS: Final = 56
#: Where there are too few of them: half as many again as usual.
DEFAULT_SPREAD: Final = 0.5
#: Under it the typical week is shown, made from whatever there is.
MIN_HISTORY_DAYS: Final = 14
#: What small hours are measured against, as a share of the venue's mean hour: the ratio of one
#: person to none says nothing.
LEVEL_FLOOR: Final = 0.1
UPPER_QUANTILE: Final = 0.9


def shift_days(values: Floats, days: int) -> Floats:
    """The same hours so many days before; unknown at the beginning."""
    moved = np.full_like(values, np.nan)
    if days < len(values):
        moved[days:] = values[: len(values) - days]
    return moved


def same_weekday_hours(counts: Floats, weeks: int) -> Floats:
    """Week by week, the last first: weeks × days × hours."""
    return np.stack([shift_days(counts, WEEK * week) for week in range(1, weeks + 1)])


def nan_median(values: Floats) -> Floats:
    """Along the first axis, of what is known; unknown where nothing is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmedian(values, axis=0))


def median_of_weeks(counts: Floats, weeks: int = BASELINE_WEEKS) -> Floats:
    return nan_median(same_weekday_hours(counts, weeks))


def mean_level(counts: Floats, days: int = WEEK * SCALE_WEEKS) -> Floats:
    """The mean hour of the days before each: how large a venue is. One figure a day."""
    known = np.isfinite(counts)
    total = _over_days(np.where(known, counts, 0).sum(axis=1), days)
    number = _over_days(known.sum(axis=1).astype(np.float64), days)
    found: Floats = np.divide(total, number, out=np.full(len(counts), np.nan), where=number > 0)
    return found


def upper_band(counts: Floats, expected: Floats, level: Floats, since: int = 0) -> Floats:
    """What nine days in ten stay under, by how far the last weeks strayed from what was expected.

    Of the days from a place on; those before it are left at a first guess.

    An hour's miss is measured against what was expected of it, so that the quiet hours and the
    busy ones of a venue speak of the same thing.
    """
    size = expected + LEVEL_FLOOR * level[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        missed = (counts - expected) / size
    spread = np.full(len(counts), DEFAULT_SPREAD)
    for day in range(since, len(counts)):
        window = missed[max(0, day - SPREAD_DAYS) : day]
        window = window[np.isfinite(window)]
        if window.size >= WEEK * HOURS:
            spread[day] = max(0.0, float(np.quantile(window, UPPER_QUANTILE)))
    return np.asarray(expected + spread[:, None] * size)


def typical_week(counts: Floats, weekdays: np.ndarray, off: Flags) -> Floats:
    """What is usual, 7 × 24, from the last eight weeks there are. Holidays are not.

    A weekday not seen yet is taken to be as the days of its kind were, weekdays or weekends; and
    if there was none either, as all days were.
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
    """The sum over so many days before each."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    return np.asarray(sums[places] - sums[np.maximum(0, places - days)])


MEDIAN_METHOD: Final = f"median-{BASELINE_WEEKS}"
TYPICAL_METHOD: Final = "typical-week"
#: More is not looked at.
_REACH: Final = SPREAD_DAYS + WEEK * (SCALE_WEEKS + 1)


@dataclass(frozen=True, slots=True)
class ExpectedHours:
    """Of one venue and day, by the hours of its clock; unknown where nothing can be said."""

    p50: Floats
    p90: Floats
    method: str


def has_enough_history(grid: HourlyGrid, day: date) -> bool:
    """Whether there was a past before a day to make more of than a typical week."""
    return int(np.isfinite(grid.before(day).counts).any(axis=1).sum()) >= MIN_HISTORY_DAYS


def is_active(grid: HourlyGrid, day: date) -> bool:
    """Whether anybody has been counted lately."""
    recent = grid.before(day).extend_to(day).counts[-WEEK * BASELINE_WEEKS - 1 :]
    return bool(np.isfinite(recent).any())


def baseline_forecast(grid: HourlyGrid, day: date, public: PublicHolidays) -> ExpectedHours | None:
    """By the venue's weeks before that day."""
    past = grid.before(day)
    if not is_active(past, day):
        return None
    past = past.extend_to(day)
    if not has_enough_history(past, day):
        return _typical(past, day, public)
    start = max(0, len(past.counts) - _REACH)
    counts = past.counts[start:]
    usual = median_of_weeks(counts)
    # A weekday on which nobody was counted for four weeks is one on which it is closed.
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
