"""A hive's day in figures: visits, how full it was while it was open, and its busiest hour.

From hours, for days that are over. An hour without a row went on as the one before had ended. The
mean is weighted by time and by how much of each hour the hive was open; where nobody has said when
it is, by all of the day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.steps.calendars import DAY, HOUR_SLOTS, Calendars
from penstock.hives.steps.clocks import HOUR
from penstock.hives.steps.occupancy import SLOT, Levels, begins
from penstock.hives.steps.resets import WEEKDAYS, Hours
from penstock.hives.steps.rollups import Stretches

Numbers = NDArray[np.int64]
Reals = NDArray[np.float64]

#: The longest day there is.
_HOURS: Final = 25
#: 1970 began on a Thursday; a week here begins on Monday.
_TO_MONDAY: Final = 3
_MINUTES_A_DAY: Final = 1440


@dataclass(frozen=True, slots=True)
class Kpis:
    """Rows of `kpi_day`."""

    hive: Numbers
    day: Numbers
    visits: Numbers
    mean: Reals  #: NaN of a day on which it was closed
    peak: Numbers
    peak_hour: Numbers  #: by the hive's clock
    coverage: Reals  #: share of the hours it is open that were heard of; NaN if it was closed


class Opening:
    """How much of each hour of a week hives are open."""

    __slots__ = ("_hive", "_share")

    def __init__(self, hours: Mapping[int, Hours]) -> None:
        self._hive = np.array(sorted(hours), np.int64)
        self._share = np.array([_week(hours[hive]) for hive in sorted(hours)]).reshape(-1, 7, 24)

    def share(self, hives: Numbers, weekdays: Numbers, hours: Numbers) -> Reals:
        share: Reals = self._share[np.searchsorted(self._hive, hives), weekdays, hours]
        return share


def kpis(hours: Stretches, before: Levels, calendars: Calendars, opening: Opening) -> Kpis:
    """Of the days that hours are of, all of each; `before` is what was inside when they began."""
    of_day = calendars.day(hours.hive, hours.name)
    first = np.flatnonzero(begins(hours.hive) | begins(of_day))
    hive, day = hours.hive[first], of_day[first]
    midnight = calendars.midnight(hive, day)
    length = -(-(calendars.midnight(hive, day + 1) - midnight) // HOUR_SLOTS)
    group = np.cumsum(begins(hours.hive) | begins(of_day)) - 1
    place = np.minimum((hours.name - midnight[group]) // HOUR_SLOTS, _HOURS - 1)

    heard, area = _every_hour(hours, before, first, group, place)
    within = np.arange(_HOURS) < length[:, None]
    slots = midnight[:, None] + np.arange(_HOURS) * HOUR_SLOTS
    clock = _clock(calendars, hive, slots)
    weekday = np.repeat((day + _TO_MONDAY) % 7, _HOURS).reshape(clock.shape)
    owner = np.repeat(hive, _HOURS).reshape(clock.shape)
    share = np.where(within, opening.share(owner, weekday, clock), 0.0)
    open_hours = share.sum(axis=1)
    mean, coverage = (
        np.divide((of * share).sum(axis=1), open_hours, out=closed, where=open_hours > 0)
        for of, closed in ((area / HOUR_SLOTS, _unknown(hive)), (heard, _unknown(hive)))
    )
    busiest = np.where(within, area, -1).argmax(axis=1)
    return Kpis(
        hive=hive,
        day=day,
        visits=np.add.reduceat(hours.entries, first) if len(first) else hours.entries,
        mean=mean,
        peak=np.maximum.reduceat(hours.peak, first) if len(first) else hours.peak,
        peak_hour=clock[np.arange(len(hive)), busiest],
        coverage=coverage,
    )


def _unknown(hive: Numbers) -> Reals:
    return np.full(len(hive), np.nan)


def _every_hour(
    hours: Stretches, before: Levels, first: Numbers, group: Numbers, place: Numbers
) -> tuple[NDArray[np.bool_], Numbers]:
    """By day and hour: whether it was heard of; its area, or what it went on as."""
    shape = (len(first), _HOURS)
    heard = np.zeros(shape, bool)
    end, area = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    heard[group, place], end[group, place], area[group, place] = True, hours.end, hours.area
    follows = ~begins(hours.hive)[first]
    start = np.where(follows, hours.end[first - 1], np.maximum(before.of(hours.hive[first]), 0))
    last = np.maximum.accumulate(np.where(heard, np.arange(_HOURS), -1), axis=1)
    inside = np.take_along_axis(end, np.maximum(last, 0), axis=1)
    went_on = np.where(last >= 0, inside, start[:, None])
    return heard, np.where(heard, area, went_on * HOUR_SLOTS)


def _clock(calendars: Calendars, hive: Numbers, slots: Numbers) -> Numbers:
    """The hour each hive's clock shows, 0 to 23."""
    flat = slots.ravel()
    offset = calendars.offsets(np.repeat(hive, slots.shape[1]), flat)
    shown: Numbers = ((flat * SLOT + offset) % DAY // HOUR).reshape(slots.shape)
    return shown


def _week(opening: Hours) -> Reals:
    """By weekday and hour, the share that is open; all of it when nobody has said."""
    week = np.zeros(7 * _MINUTES_A_DAY)
    for weekday, name in enumerate(WEEKDAYS):
        for opens, closes in opening.get(name, ()):
            begin, end = _minute(opens), _minute(closes)
            end += _MINUTES_A_DAY if end <= begin else 0
            week[(weekday * _MINUTES_A_DAY + np.arange(begin, end)) % len(week)] = 1.0
    if not week.any():
        week[:] = 1.0
    shares: Reals = week.reshape(7, 24, 60).mean(axis=2)
    return shares


def _minute(clock: str) -> int:
    hour, minute = clock.split(":")
    return int(hour) * 60 + int(minute)
