"""Features of the global model for each hour of a venue, from the days before it.

Counts are divided by the median of the hour over eight weeks, so that one model serves small and
large venues. Calendar features (weekday, distance to public holidays) are known in advance. No
feature uses the day itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Final

import numpy as np

from penstock_hives.arrays import Flags, Floats
from penstock_hives.forecast.baseline import (
    BASELINE_WEEKS,
    SCALE_WEEKS,
    mean_level,
    nan_median,
    same_weekday_hours,
    shift_days,
)
from penstock_hives.forecast.grid import HOURS, WEEK, HourlyGrid, PublicHolidays

#: Days around a holiday with an effect.
HOLIDAY_REACH: Final = 21
CALENDAR_FEATURES: Final = (
    "weekday",
    "holiday",
    "holiday_tomorrow",
    "holiday_yesterday",
    "days_to_holiday",
    "days_since_holiday",
    "days_off_before",
    "between_days_off",
)


def calendar_features(first: date, days: int, public: PublicHolidays) -> Floats:
    """days × `CALENDAR_FEATURES`."""
    wide = public.around(first, days, HOLIDAY_REACH)
    index = np.arange(len(wide))
    weekday = (first.weekday() - HOLIDAY_REACH + index) % 7
    free = wide | (weekday >= 5)
    last_holiday = np.maximum.accumulate(np.where(wide, index, -HOLIDAY_REACH))
    next_holiday = np.minimum.accumulate(np.where(wide, index, len(wide) + HOLIDAY_REACH)[::-1])[
        ::-1
    ]
    last_worked = np.maximum.accumulate(np.where(free, -1, index))
    tomorrow, yesterday = np.roll(free, -1), np.roll(free, 1)
    columns = (
        weekday,
        wide,
        np.roll(wide, -1),
        np.roll(wide, 1),
        np.minimum(next_holiday - index, HOLIDAY_REACH),
        np.minimum(index - last_holiday, HOLIDAY_REACH),
        index - np.roll(last_worked, 1) - 1,
        ~free & tomorrow & yesterday,
    )
    return np.stack(columns, axis=-1).astype(np.float64)[HOLIDAY_REACH : HOLIDAY_REACH + days]


#: Counts as ratios to the scale.
_RATIOS: Final = (
    "median_4",
    "cleaned_4",
    "cleaned_8",
    "saturdays",
    "sundays",
    "week_ago",
    "two_weeks_ago",
    "three_weeks_ago",
    "four_weeks_ago",
    "yesterday",
)
#: Total of recent days relative to their medians.
_LEVELS: Final = {"level_1": 1, "level_3": 3, "level_7": 7, "level_28": 28}
FEATURE_NAMES: Final = ("hour", *CALENDAR_FEATURES, "share_of_peak", *_RATIOS, *_LEVELS)

#: The least scale, as a share of the venue's mean hour.
_FLOOR: Final = 0.02
_SUNDAY: Final = 6


@dataclass(frozen=True, slots=True)
class Features:
    """Of every day of a grid."""

    values: Floats  #: days × hours × `FEATURE_NAMES`
    scale: Floats  #: denominator of ratios; NaN in the first week


def make_features(grid: HourlyGrid, public: PublicHolidays) -> Features:
    counts, days = grid.counts, len(grid.counts)
    known = calendar_features(grid.first, days, public)
    off = known[:, CALENDAR_FEATURES.index("holiday")] > 0
    weeks = same_weekday_hours(counts, SCALE_WEEKS)
    cleaned = same_weekday_hours(np.where(off[:, None], np.nan, counts), SCALE_WEEKS)
    usual = nan_median(weeks)
    # Five weeks, because one may have a holiday.
    cleaned_4 = _or_else(
        nan_median(cleaned[: BASELINE_WEEKS + 1]), nan_median(weeks[:BASELINE_WEEKS])
    )
    scale = np.maximum(usual, 1.0 + _FLOOR * mean_level(counts)[:, None])
    saturdays, sundays = _weekend(counts, grid, off)
    ratios = (
        nan_median(weeks[:BASELINE_WEEKS]),
        cleaned_4,
        _or_else(nan_median(cleaned), usual),
        saturdays,
        sundays,
        *weeks[:BASELINE_WEEKS],
        shift_days(counts, 1),
    )
    levels = [_levels(counts, cleaned_4, off, span) for span in _LEVELS.values()]
    by_day = [*known.T, *levels]
    shape = (days, HOURS)
    columns = {
        "hour": np.broadcast_to(np.arange(HOURS, dtype=np.float64), shape),
        "share_of_peak": usual / np.maximum(1.0, np.nan_to_num(usual).max(axis=1, keepdims=True)),
        **{name: each / scale for name, each in zip(_RATIOS, ratios, strict=True)},
        **{
            name: np.broadcast_to(each[:, None], shape)
            for name, each in zip((*CALENDAR_FEATURES, *_LEVELS), by_day, strict=True)
        },
    }
    return Features(np.stack([columns[name] for name in FEATURE_NAMES], axis=-1), scale)


def _or_else(values: Floats, others: Floats) -> Floats:
    return np.where(np.isnan(values), others, values)


def _weekend(counts: Floats, grid: HourlyGrid, off: Flags) -> tuple[Floats, Floats]:
    """The median of the last four Saturdays and Sundays before each day, without holidays.

    A holiday resembles them more than its own weekday.
    """
    weekday = (grid.first.weekday() + np.arange(len(counts))) % WEEK
    ordinary = np.where(off[:, None], np.nan, counts)
    found = []
    for wanted in (_SUNDAY - 1, _SUNDAY):
        # Of the day after, which applies until the next one.
        only = np.where((weekday == wanted)[:, None], ordinary, np.nan)
        here = nan_median(np.stack([only, *same_weekday_hours(only, BASELINE_WEEKS - 1)]))
        since = (weekday - wanted - 1) % WEEK + 1
        index = np.arange(len(counts)) - since
        last = here[np.maximum(index, 0)]
        found.append(np.where((index >= 0)[:, None], last, np.nan))
    return found[0], found[1]


def _levels(counts: Floats, usual: Floats, off: Flags, span: int) -> Floats:
    """The total of the `span` days before each, relative to the usual; without holidays."""
    known = np.isfinite(counts) & np.isfinite(usual) & ~off[:, None]
    actual = np.cumsum(np.where(known, counts, 0.0).sum(axis=1))
    due = np.cumsum(np.where(known, usual, 0.0).sum(axis=1))
    before = np.arange(len(counts)) - 1

    def over(sums: Floats) -> Floats:
        padded = np.concatenate([[0.0], sums])
        return np.asarray(padded[before + 1] - padded[np.maximum(0, before + 1 - span)])

    total = over(due)
    unknown = np.full(len(counts), np.nan)
    levels: Floats = np.divide(over(actual), total, out=unknown, where=total > 0)
    return levels
