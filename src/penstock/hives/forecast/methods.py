"""Simple ways to say tomorrow's hours, to hold the model against. Each is one sentence.

From a venue to days × hours, every row made from the rows before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from penstock.hives.forecast.baseline import MEDIAN
from penstock.hives.forecast.features import NAMES, features
from penstock.hives.forecast.grid import WEEK, Floats
from penstock.hives.forecast.medians import earlier, median_of_weeks, same_hours
from penstock.hives.forecast.venues import Venue

#: What a week weighs against the one after it.
_FADING: Final = 0.7
_WEEKS: Final = 8


def last_week(venue: Venue) -> Floats:
    """The same hour a week ago."""
    return earlier(venue.grid.counts, WEEK)


def four_weeks(venue: Venue) -> Floats:
    """The median of the same hour in the last four weeks."""
    return median_of_weeks(venue.grid.counts)


def fading_weeks(venue: Venue) -> Floats:
    """The mean of eight weeks, each weighing 0.7 of the one after it."""
    weeks = same_hours(venue.grid.counts, _WEEKS)
    weights = (_FADING ** np.arange(_WEEKS))[:, None, None] * np.isfinite(weeks)
    total, weight = np.nansum(weeks * weights, axis=0), weights.sum(axis=0)
    unknown = np.full_like(total, np.nan)
    found: Floats = np.divide(total, weight, out=unknown, where=weight > 0)
    return found


def at_recent_level(venue: Venue) -> Floats:
    """The median of four weeks, times how the last week was against its own."""
    level = features(venue.grid, venue.public).values[..., NAMES.index("level_7")]
    return four_weeks(venue) * np.where(np.isfinite(level), level, 1.0)


def sundays_on_holidays(venue: Venue) -> Floats:
    """The median of four weeks, and of four Sundays on public holidays."""
    known = features(venue.grid, venue.public)
    sundays = known.values[..., NAMES.index("sundays")] * known.scale
    off = known.values[..., NAMES.index("holiday")] > 0
    return np.where(off & np.isfinite(sundays), sundays, four_weeks(venue))


METHODS: Final[dict[str, Callable[[Venue], Floats]]] = {
    "same hour last week": last_week,
    MEDIAN: four_weeks,
    "fading weeks": fading_weeks,
    f"{MEDIAN} at recent level": at_recent_level,
    f"{MEDIAN}, Sundays on holidays": sundays_on_holidays,
}
