"""Local hours and days of hives, and the time of the nightly reset.

An hour begins when the local clock shows a full hour; a day has 23, 24 or 25 hours. Some zones skip
midnight: their day begins at the first local time of its date. A hive is reset to empty once a
night, at its `reset_time` or, if it is open then, half an hour after it closes. A hive that never
closes is reset anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np

from penstock_hives.arrays import Numbers
from penstock_hives.dates import WEEKDAYS, minute_of_day
from penstock_hives.occupancy.device_clock import TimeZoneTable, time_zone_table
from penstock_hives.occupancy.slots import SLOT_MICROS

SLOTS_PER_HOUR: Final = 12
DAY_MICROS: Final = 86_400_000_000


class HiveCalendars:
    __slots__ = ("_hive", "_names", "_zone")

    def __init__(self, zones: Mapping[int, str]) -> None:
        self._names = sorted(set(zones.values()))
        numbers = {name: number for number, name in enumerate(self._names)}
        self._hive = np.array(sorted(zones), np.int64)
        self._zone = np.array([numbers[zones[hive]] for hive in sorted(zones)], np.int64)

    def offsets(self, hives: Numbers, slots: Numbers) -> Numbers:
        """Offsets from UTC of hives in these slots: microseconds."""
        found = np.zeros(len(hives), np.int64)
        for name, rows in self._by_zone(hives):
            found[rows] = _offsets(time_zone_table(name), slots[rows] * SLOT_MICROS)
        return found

    def hour(self, hives: Numbers, slots: Numbers) -> Numbers:
        """The first slots of the hours of these slots."""
        return slots - (slots + self.offsets(hives, slots) // SLOT_MICROS) % SLOTS_PER_HOUR

    def day(self, hives: Numbers, slots: Numbers) -> Numbers:
        """The dates of these slots, as days since 1970."""
        return (slots * SLOT_MICROS + self.offsets(hives, slots)) // DAY_MICROS

    def midnight(self, hives: Numbers, days: Numbers) -> Numbers:
        """The first slots of these dates."""
        found = np.zeros(len(hives), np.int64)
        for name, rows in self._by_zone(hives):
            found[rows] = -(
                -_first_moment(time_zone_table(name), days[rows] * DAY_MICROS) // SLOT_MICROS
            )
        return found

    def _by_zone(self, hives: Numbers) -> list[tuple[str, Numbers]]:
        if not len(hives):
            return []
        zones = self._zone[np.searchsorted(self._hive, hives)]
        return [(self._names[each], np.flatnonzero(zones == each)) for each in np.unique(zones)]


def _offsets(zone: TimeZoneTable, moments: Numbers) -> Numbers:
    period = np.searchsorted(zone.starts - zone.offsets, moments, "right") - 1
    offsets: Numbers = zone.offsets[np.maximum(period, 0)]
    return offsets


def _first_moment(zone: TimeZoneTable, wall: Numbers) -> Numbers:
    """When clocks first show this local time or a later one, and do not go back."""
    period = np.minimum(np.searchsorted(zone.ends, wall, "right"), len(zone.ends) - 1)
    return np.maximum(wall, zone.starts[period]) - zone.offsets[period]


DEFAULT_RESET_TIME: Final = time(4)
#: People leave after the doors have closed.
AFTER_CLOSING: Final = timedelta(minutes=30)
_DAY: Final = timedelta(days=1)

OpeningTimes = Mapping[str, Sequence[Sequence[str]]]


@dataclass(frozen=True, slots=True, eq=False)
class ResetSchedule:
    """When a hive is reset."""

    time_zone: str
    reset_time: time = DEFAULT_RESET_TIME
    opening_hours: OpeningTimes = field(default_factory=dict)

    @lru_cache(maxsize=16_384)  # noqa: B019 - few schedules, which live as long as the process
    def reset(self, day: date) -> int:
        """The reset of a local day: microseconds, at the start of a slot."""
        wall = datetime.combine(day, self.reset_time)
        for opened, closed in self._open_around(day):
            if opened < wall < closed and closed - opened < _DAY:
                wall = min(closed + AFTER_CLOSING, wall + _DAY)
                break
        moment = wall.replace(tzinfo=ZoneInfo(self.time_zone)).astimezone(UTC)
        return int(moment.timestamp()) * 1_000_000 // SLOT_MICROS * SLOT_MICROS

    def _open_around(self, day: date) -> list[tuple[datetime, datetime]]:
        """Local opening times of the day before, which may end on this day, and of the day."""
        found = []
        for each in (day - _DAY, day):
            for opens, closes in opening_spans(self.opening_hours, each):
                opened, closed = _at(each, opens), _at(each, closes)
                found.append((opened, closed if closed > opened else closed + _DAY))
        return found


def opening_spans(hours: OpeningTimes, day: date) -> Sequence[Sequence[str]]:
    """Of a date: the exception for it, or those of its weekday."""
    return hours.get(day.isoformat(), hours.get(WEEKDAYS[day.weekday()], ()))


def _at(day: date, clock: str) -> datetime:
    return datetime.combine(day, time()) + timedelta(minutes=minute_of_day(clock))
