"""Hourly and daily rollups of occupancy, and daily KPIs.

Occupancy at the end of a slot holds until the next slot. A rollup is a function of slots alone, so
it does not depend on when it is computed. Means are stored as areas, slots x people, which are
integers. KPIs are computed for finished days; the mean is weighted by opening hours, or by the
whole day if they are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

import numpy as np

from penstock_hives.arrays import Flags, Floats, Numbers, is_run_start
from penstock_hives.dates import WEEKDAYS, day_number, minute_of_day
from penstock_hives.occupancy.calendars import (
    DAY_MICROS,
    SLOTS_PER_HOUR,
    HiveCalendars,
    OpeningTimes,
    opening_spans,
)
from penstock_hives.occupancy.device_clock import HOUR_MICROS
from penstock_hives.occupancy.slots import (
    EMPTY,
    SLOT_MICROS,
    OccupancyLevels,
    SlotOccupancy,
)


@dataclass(frozen=True, slots=True)
class OccupancyRollup:
    """Hours or days of hives, by hive and then in order of time."""

    hive: Numbers
    name: Numbers  #: an hour's first slot, or a date as days since 1970
    entries: Numbers
    exits: Numbers
    end: Numbers
    peak: Numbers
    peak_at: Numbers  #: the first slot, or hour, of the peak
    area: Numbers
    slots: Numbers  #: its length

    def __len__(self) -> int:
        return len(self.hive)

    @property
    def mean(self) -> Floats:
        return self.area / self.slots

    def only(self, rows: Numbers) -> OccupancyRollup:
        return OccupancyRollup(*(getattr(self, name)[rows] for name in OccupancyRollup.__slots__))


@dataclass(frozen=True, slots=True)
class _RollupInput:
    """The rows that are rolled up: start, length, counts and levels of each."""

    hive: Numbers
    begin: Numbers
    length: Numbers
    entries: Numbers
    exits: Numbers
    end: Numbers
    peak: Numbers
    area: Numbers


def roll_up_hours(
    occupancy: SlotOccupancy, before: OccupancyLevels, calendars: HiveCalendars
) -> OccupancyRollup:
    """`before` is the level at the start of the first slot, which starts an hour."""
    counts, end = occupancy.counts, occupancy.end
    one = np.ones(len(counts), np.int64)
    pieces = _RollupInput(
        counts.hive, counts.slot, one, counts.entries, counts.exits, end, occupancy.peak, end
    )
    hour = calendars.hour(counts.hive, counts.slot)
    length = np.full(len(counts), SLOTS_PER_HOUR)
    return _roll_up(pieces, before, hour, hour, hour + length)


def roll_up_days(
    hours: OccupancyRollup, before: OccupancyLevels, calendars: HiveCalendars
) -> OccupancyRollup:
    """`before` is the level at the start of the first hour, which starts a day."""
    pieces = _RollupInput(
        *(hours.hive, hours.name, hours.slots, hours.entries, hours.exits),
        *(hours.end, hours.peak, hours.area),
    )
    day = calendars.day(hours.hive, hours.name)
    midnight = calendars.midnight(hours.hive, day)
    return _roll_up(pieces, before, day, midnight, calendars.midnight(hours.hive, day + 1))


def concat_rollups(parts: list[OccupancyRollup]) -> OccupancyRollup:
    """Rollups with different names, in order."""
    columns = [
        np.concatenate([EMPTY, *(getattr(each, name) for each in parts)])
        for name in OccupancyRollup.__slots__
    ]
    order = np.lexsort((columns[1], columns[0]))
    return OccupancyRollup(*(column[order] for column in columns))


def _roll_up(
    pieces: _RollupInput, before: OccupancyLevels, name: Numbers, start: Numbers, stop: Numbers
) -> OccupancyRollup:
    """Pieces with the same name become one row, from `start` to `stop`."""
    if not len(name):
        return OccupancyRollup(*(EMPTY for _ in OccupancyRollup.__slots__))
    firsts = is_run_start(pieces.hive)
    first = firsts | is_run_start(name)
    row = np.flatnonzero(first)
    group = np.cumsum(first) - 1
    last = np.append(row[1:], len(name)) - 1

    inside = np.where(firsts, np.maximum(before.of(pieces.hive), 0), np.roll(pieces.end, 1))
    # Occupancy holds until the next piece, or the end of the period.
    until = np.append(pieces.begin[1:], 0)
    until[last] = stop[last]
    quiet = np.maximum(until - pieces.begin - pieces.length, 0)
    waiting = np.where(first, np.maximum(pieces.begin - start, 0), 0)
    area = pieces.area + quiet * pieces.end + waiting * inside

    # Occupancy at the start of the period is its peak, if nobody enters.
    peak = np.where(waiting > 0, np.maximum(pieces.peak, inside), pieces.peak)
    highest = np.maximum.reduceat(peak, row)
    peaks = np.flatnonzero(peak == highest[group])
    _, at = np.unique(group[peaks], return_index=True)
    return OccupancyRollup(
        hive=pieces.hive[row],
        name=name[row],
        entries=np.add.reduceat(pieces.entries, row),
        exits=np.add.reduceat(pieces.exits, row),
        end=pieces.end[last],
        peak=highest,
        peak_at=pieces.begin[peaks[at]],
        area=np.add.reduceat(area, row),
        slots=(stop - start)[row],
    )


#: The longest day.
_HOURS: Final = 25
#: 1970 began on a Thursday; weeks begin on Monday.
_TO_MONDAY: Final = 3
_MINUTES_PER_DAY: Final = 1440


@dataclass(frozen=True, slots=True)
class DailyKpis:
    """Rows of `kpi_day`."""

    hive: Numbers
    day: Numbers
    visits: Numbers
    mean: Floats  #: NaN for a day on which the hive was closed
    peak: Numbers
    peak_hour: Numbers  #: local
    coverage: Floats  #: share of opening hours with data; NaN if the hive was closed


class OpeningShares:
    """The open share of each hour of a week, by hive; of dates with exceptions, by hive and day."""

    __slots__ = ("_exceptions", "_hive", "_share")

    def __init__(self, hours: Mapping[int, OpeningTimes]) -> None:
        self._hive = np.array(sorted(hours), np.int64)
        self._share = np.array([_week(hours[hive]) for hive in sorted(hours)]).reshape(-1, 7, 24)
        self._exceptions = {
            (hive, day): share
            for hive, opening in hours.items()
            for day, share in _exceptional_days(opening).items()
        }

    def share(self, hives: Numbers, days: Numbers, hours: Numbers) -> Floats:
        """Of local hours of dates; a row for each hive and day."""
        weekdays = ((days + _TO_MONDAY) % 7)[:, None]
        rows = np.searchsorted(self._hive, hives)[:, None]
        share: Floats = self._share[rows, weekdays, hours]
        if self._exceptions:
            for row, key in enumerate(zip(hives.tolist(), days.tolist(), strict=True)):
                exception = self._exceptions.get(key)
                if exception is not None:
                    share[row] = exception[hours[row]]
        return share


def compute_kpis(
    hours: OccupancyRollup,
    before: OccupancyLevels,
    calendars: HiveCalendars,
    opening: OpeningShares,
) -> DailyKpis:
    """KPIs of whole days; `before` is the level at the start of each hive's first day."""
    of_day = calendars.day(hours.hive, hours.name)
    first = np.flatnonzero(is_run_start(hours.hive) | is_run_start(of_day))
    hive, day = hours.hive[first], of_day[first]
    midnight = calendars.midnight(hive, day)
    length = -(-(calendars.midnight(hive, day + 1) - midnight) // SLOTS_PER_HOUR)
    group = np.cumsum(is_run_start(hours.hive) | is_run_start(of_day)) - 1
    hour = np.minimum((hours.name - midnight[group]) // SLOTS_PER_HOUR, _HOURS - 1)

    has_data, area = _every_hour(hours, before, first, group, hour)
    within = np.arange(_HOURS) < length[:, None]
    slots = midnight[:, None] + np.arange(_HOURS) * SLOTS_PER_HOUR
    clock = _clock(calendars, hive, slots)
    share = np.where(within, opening.share(hive, day, clock), 0.0)
    open_hours = share.sum(axis=1)
    closed = np.full(len(hive), np.nan)
    mean, coverage = (
        np.divide((values * share).sum(axis=1), open_hours, out=closed.copy(), where=open_hours > 0)
        for values in (area / SLOTS_PER_HOUR, has_data)
    )
    busiest = np.where(within, area, -1).argmax(axis=1)
    return DailyKpis(
        hive=hive,
        day=day,
        visits=np.add.reduceat(hours.entries, first) if len(first) else hours.entries,
        mean=mean,
        peak=np.maximum.reduceat(hours.peak, first) if len(first) else hours.peak,
        peak_hour=clock[np.arange(len(hive)), busiest],
        coverage=coverage,
    )


def _every_hour(
    hours: OccupancyRollup, before: OccupancyLevels, first: Numbers, group: Numbers, hour: Numbers
) -> tuple[Flags, Numbers]:
    """By day and hour: whether it has data; its area, or that of the level before it."""
    shape = (len(first), _HOURS)
    has_data = np.zeros(shape, bool)
    end, area = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    has_data[group, hour], end[group, hour], area[group, hour] = True, hours.end, hours.area
    follows = ~is_run_start(hours.hive)[first]
    start = np.where(follows, hours.end[first - 1], np.maximum(before.of(hours.hive[first]), 0))
    last = np.maximum.accumulate(np.where(has_data, np.arange(_HOURS), -1), axis=1)
    inside = np.take_along_axis(end, np.maximum(last, 0), axis=1)
    level = np.where(last >= 0, inside, start[:, None])
    return has_data, np.where(has_data, area, level * SLOTS_PER_HOUR)


def _clock(calendars: HiveCalendars, hive: Numbers, slots: Numbers) -> Numbers:
    """The local hour of each hive, 0 to 23."""
    flat = slots.ravel()
    offset = calendars.offsets(np.repeat(hive, slots.shape[1]), flat)
    shown: Numbers = ((flat * SLOT_MICROS + offset) % DAY_MICROS // HOUR_MICROS).reshape(
        slots.shape
    )
    return shown


def _week(opening: OpeningTimes) -> Floats:
    """By weekday and hour, the open share; 1 for a hive without opening hours."""
    week = np.zeros(7 * _MINUTES_PER_DAY)
    for weekday, name in enumerate(WEEKDAYS):
        for opens, closes in opening.get(name, ()):
            begin, end = minute_of_day(opens), minute_of_day(closes)
            end += _MINUTES_PER_DAY if end <= begin else 0
            week[(weekday * _MINUTES_PER_DAY + np.arange(begin, end)) % len(week)] = 1.0
    if not week.any():
        week[:] = 1.0
    shares: Floats = week.reshape(7, 24, 60).mean(axis=2)
    return shares


def _exceptional_days(opening: OpeningTimes) -> dict[int, Floats]:
    """Dates with an exception, or the date after one, as days since 1970: open share by hour."""
    exceptions = [date.fromisoformat(name) for name in opening if name not in WEEKDAYS]
    changed = {each + timedelta(days=later) for each in exceptions for later in (0, 1)}
    return {day_number(day): _day(opening, day) for day in changed}


def _day(opening: OpeningTimes, day: date) -> Floats:
    minutes = np.zeros(_MINUTES_PER_DAY)
    for back in (1, 0):
        for opens, closes in opening_spans(opening, day - timedelta(days=back)):
            begin, end = minute_of_day(opens), minute_of_day(closes)
            end += _MINUTES_PER_DAY if end <= begin else 0
            shift = back * _MINUTES_PER_DAY
            minutes[max(0, begin - shift) : max(0, end - shift)] = 1.0
    shares: Floats = minutes.reshape(24, 60).mean(axis=1)
    return shares
