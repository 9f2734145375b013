"""What is published of a venue when no model is: by its own weeks, however few there are.

* `median-4`: the median of the same hour in the last four weeks.
* `typical-week`: before there are 14 days, the usual hours of the days there were.
* Nothing, if nobody has been counted in four weeks: a guess would be taken for knowledge.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Final

import numpy as np

from penstock.hives.forecast.grid import WEEK, Floats, Grid
from penstock.hives.forecast.medians import (
    BASELINE_WEEKS,
    FEW_DAYS,
    SCALE_WEEKS,
    SPREAD_DAYS,
    busy,
    level,
    median_of_weeks,
    typical_week,
)
from penstock.hives.forecast.public_days import PublicDays

MEDIAN: Final = f"median-{BASELINE_WEEKS}"
TYPICAL: Final = "typical-week"
#: More is not looked at.
_REACH: Final = SPREAD_DAYS + WEEK * (SCALE_WEEKS + 1)


@dataclass(frozen=True, slots=True)
class Expected:
    """Of one venue and day, by the hours of its clock; unknown where nothing can be said."""

    p50: Floats
    p90: Floats
    method: str


def enough(grid: Grid, day: date) -> bool:
    """Whether there was a past before a day to make more of than a typical week."""
    return int(np.isfinite(grid.before(day).counts).any(axis=1).sum()) >= FEW_DAYS


def alive(grid: Grid, day: date) -> bool:
    """Whether anybody has been counted lately."""
    recent = grid.before(day).reaching(day).counts[-WEEK * BASELINE_WEEKS - 1 :]
    return bool(np.isfinite(recent).any())


def expected(grid: Grid, day: date, public: PublicDays) -> Expected | None:
    """By the venue's weeks before that day."""
    past = grid.before(day)
    if not alive(past, day):
        return None
    past = past.reaching(day)
    if not enough(past, day):
        return _typical(past, day, public)
    start = max(0, len(past.counts) - _REACH)
    counts = past.counts[start:]
    usual = median_of_weeks(counts)
    # A weekday on which nobody was counted for four weeks is one on which it is closed.
    usual[-1] = np.where(np.isnan(usual[-1]), 0.0, usual[-1])
    high = busy(counts, usual, np.nan_to_num(level(counts)), len(counts) - 1)
    return Expected(usual[-1], high[-1], MEDIAN)


def _typical(past: Grid, day: date, public: PublicDays) -> Expected:
    days = past.days
    weekdays = np.array([each.weekday() for each in days])
    usual = typical_week(past.counts, weekdays, public.among(days))[day.weekday()]
    rows = np.vstack([past.counts[:-1], usual[None]])
    size = np.nan_to_num(level(rows))
    high = busy(rows, np.broadcast_to(usual, rows.shape), size, len(rows) - 1)
    return Expected(usual, high[-1], TYPICAL)
