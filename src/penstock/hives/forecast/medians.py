"""What a venue's own weeks say: medians of the same hour of the week, and how far days stray.

The row of a day is made from rows before it, here and in `features.py`: that is all it takes for a
forecast not to know what it forecasts. The median of four weeks is the baseline every model has
to beat, and what is published when none does.
"""

from __future__ import annotations

import warnings
from typing import Final

import numpy as np

from penstock.hives.forecast.grid import HOURS, WEEK, Flags, Floats

#: Fewer follow one odd week, more miss the season.
BASELINE_WEEKS: Final = 4
SCALE_WEEKS: Final = 8
#: Days whose misses say how far the next may stray.
SPREAD_DAYS: Final = 56
#: Where there are too few of them: half as many again as usual.
FIRST_SPREAD: Final = 0.5
#: Under it the typical week is shown, made from whatever there is.
FEW_DAYS: Final = 14
#: What small hours are measured against, as a share of the venue's mean hour: the ratio of one
#: person to none says nothing.
FLOOR: Final = 0.1
BUSY_DAY: Final = 0.9


def earlier(values: Floats, days: int) -> Floats:
    """The same hours so many days before; unknown at the beginning."""
    moved = np.full_like(values, np.nan)
    if days < len(values):
        moved[days:] = values[: len(values) - days]
    return moved


def same_hours(counts: Floats, weeks: int) -> Floats:
    """Week by week, the last first: weeks × days × hours."""
    return np.stack([earlier(counts, WEEK * week) for week in range(1, weeks + 1)])


def median(values: Floats) -> Floats:
    """Along the first axis, of what is known; unknown where nothing is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmedian(values, axis=0))


def median_of_weeks(counts: Floats, weeks: int = BASELINE_WEEKS) -> Floats:
    return median(same_hours(counts, weeks))


def level(counts: Floats, days: int = WEEK * SCALE_WEEKS) -> Floats:
    """The mean hour of the days before each: how large a venue is. One figure a day."""
    known = np.isfinite(counts)
    total = _over_days(np.where(known, counts, 0).sum(axis=1), days)
    number = _over_days(known.sum(axis=1).astype(np.float64), days)
    found: Floats = np.divide(total, number, out=np.full(len(counts), np.nan), where=number > 0)
    return found


def busy(counts: Floats, expected: Floats, level: Floats, since: int = 0) -> Floats:
    """What nine days in ten stay under, by how far the last weeks strayed from what was expected.

    Of the days from a place on; those before it are left at a first guess.

    An hour's miss is measured against what was expected of it, so that the quiet hours and the
    busy ones of a venue speak of the same thing.
    """
    size = expected + FLOOR * level[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        missed = (counts - expected) / size
    spread = np.full(len(counts), FIRST_SPREAD)
    for day in range(since, len(counts)):
        window = missed[max(0, day - SPREAD_DAYS) : day]
        window = window[np.isfinite(window)]
        if window.size >= WEEK * HOURS:
            spread[day] = max(0.0, float(np.quantile(window, BUSY_DAY)))
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
            usual = median(np.concatenate([ordinary[kind], nothing]))
            week[weekday] = np.where(np.isnan(week[weekday]), usual, week[weekday])
    return week


def _over_days(values: Floats, days: int) -> Floats:
    """The sum over so many days before each."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    return np.asarray(sums[places] - sums[np.maximum(0, places - days)])
