"""What the global model looks at for an hour of a venue, made from the days before it.

Counts are divided by what is usual for the hour (its median over eight weeks), so that a kiosk and
a railway station look alike and one model serves both; what it learns is by how much a day differs
from the usual. Weeks of holidays are left out of the cleaned medians: what is usual after Easter
is not what Easter was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.hives.forecast import calendar
from penstock.hives.forecast.grid import HOURS, WEEK, Flags, Floats, Grid
from penstock.hives.forecast.medians import (
    BASELINE_WEEKS,
    SCALE_WEEKS,
    earlier,
    level,
    median,
    same_hours,
)
from penstock.hives.forecast.public_days import PublicDays

#: Counts, as ratios to what is usual.
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
#: How busy recent days were against their own medians: all hours together.
_LEVELS: Final = {"level_1": 1, "level_3": 3, "level_7": 7, "level_28": 28}
NAMES: Final = ("hour", *calendar.NAMES, "share_of_peak", *_RATIOS, *_LEVELS)

#: Of the venue's mean hour: hours with next to nobody are not measured against next to nothing.
_FLOOR: Final = 0.02
_SUNDAY: Final = 6


@dataclass(frozen=True, slots=True)
class Features:
    """Of every day of a grid."""

    #: days × hours × what is named above.
    values: Floats
    #: What ratios are ratios to; unknown before there is a week of history.
    scale: Floats


def features(grid: Grid, public: PublicDays) -> Features:
    counts, days = grid.counts, len(grid.counts)
    known = calendar.calendar(grid.first, days, public)
    off = known[:, calendar.NAMES.index("holiday")] > 0
    weeks = same_hours(counts, SCALE_WEEKS)
    cleaned = same_hours(np.where(off[:, None], np.nan, counts), SCALE_WEEKS)
    usual = median(weeks)
    # Five, because one of them may be a holiday.
    cleaned_4 = _or_else(median(cleaned[: BASELINE_WEEKS + 1]), median(weeks[:BASELINE_WEEKS]))
    scale = np.maximum(usual, 1.0 + _FLOOR * level(counts)[:, None])
    saturdays, sundays = _weekend(counts, grid, off)
    ratios = (
        median(weeks[:BASELINE_WEEKS]),
        cleaned_4,
        _or_else(median(cleaned), usual),
        saturdays,
        sundays,
        *weeks[:BASELINE_WEEKS],
        earlier(counts, 1),
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
            for name, each in zip((*calendar.NAMES, *_LEVELS), by_day, strict=True)
        },
    }
    return Features(np.stack([columns[name] for name in NAMES], axis=-1), scale)


def _or_else(values: Floats, others: Floats) -> Floats:
    return np.where(np.isnan(values), others, values)


def _weekend(counts: Floats, grid: Grid, off: Flags) -> tuple[Floats, Floats]:
    """The median of the last four Saturdays and Sundays before each day, holidays left out.

    On a holiday a place looks more like this than like itself.
    """
    weekday = (grid.first.weekday() + np.arange(len(counts))) % WEEK
    ordinary = np.where(off[:, None], np.nan, counts)
    found = []
    for wanted in (_SUNDAY - 1, _SUNDAY):
        # As of a day after such a one, which the days until the next then share.
        only = np.where((weekday == wanted)[:, None], ordinary, np.nan)
        here = median(np.stack([only, *same_hours(only, BASELINE_WEEKS - 1)]))
        since = (weekday - wanted - 1) % WEEK + 1
        place = np.arange(len(counts)) - since
        taken = here[np.maximum(place, 0)]
        found.append(np.where((place >= 0)[:, None], taken, np.nan))
    return found[0], found[1]


def _levels(counts: Floats, usual: Floats, off: Flags, span: int) -> Floats:
    """What came in so many days before each, as a ratio to what was usual; holidays left out."""
    known = np.isfinite(counts) & np.isfinite(usual) & ~off[:, None]
    came = np.cumsum(np.where(known, counts, 0.0).sum(axis=1))
    due = np.cumsum(np.where(known, usual, 0.0).sum(axis=1))
    before = np.arange(len(counts)) - 1

    def over(sums: Floats) -> Floats:
        padded = np.concatenate([[0.0], sums])
        return np.asarray(padded[before + 1] - padded[np.maximum(0, before + 1 - span)])

    total = over(due)
    unknown = np.full(len(counts), np.nan)
    found: Floats = np.divide(over(came), total, out=unknown, where=total > 0)
    return found
