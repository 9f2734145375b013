"""When a hive is taken to be empty: once a night, at its quiet hour or after it has closed.

Counting doors miss people, and what they miss adds up. The hive's own `reset_time` says when nobody
is inside; where it is open then, its closing time does, and a while for those who are slow to go.
A place that never closes is reset at its time all the same: an error at the quietest hour is small,
one that grows for ever is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from penstock.hives.steps.occupancy import SLOT

QUIET_HOUR: Final = time(4)
#: People leave after the doors have closed.
AFTER_CLOSING: Final = timedelta(minutes=30)
WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY: Final = timedelta(days=1)
_EPOCH: Final = date(1970, 1, 1)

Hours = Mapping[str, Sequence[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Nights:
    """The nights of one hive."""

    time_zone: str
    reset_time: time = QUIET_HOUR
    opening_hours: Hours = field(default_factory=dict)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Nights:
        """Of table `hive`."""
        return cls(row["time_zone"], row["reset_time"], row["opening_hours"])

    def reset(self, day: date) -> int:
        """The moment of that local day's reset: microseconds, at the beginning of a slot."""
        wall = datetime.combine(day, self.reset_time)
        for opened, closed in self._open_around(day):
            if opened < wall < closed and closed - opened < _DAY:
                wall = min(closed + AFTER_CLOSING, wall + _DAY)
                break
        moment = wall.replace(tzinfo=ZoneInfo(self.time_zone)).astimezone(UTC)
        return int(moment.timestamp()) * 1_000_000 // SLOT * SLOT

    def _open_around(self, day: date) -> list[tuple[datetime, datetime]]:
        """By the wall clock: the hours of the day before, which may last into this one, and its."""
        found = []
        for each in (day - _DAY, day):
            for opens, closes in self.opening_hours.get(WEEKDAYS[each.weekday()], ()):
                opened, closed = _at(each, opens), _at(each, closes)
                found.append((opened, closed if closed > opened else closed + _DAY))
        return found


def numbered(day: date) -> int:
    """A date as days since 1970."""
    return (day - _EPOCH).days


def dated(number: int) -> date:
    return _EPOCH + timedelta(days=number)


def _at(day: date, clock: str) -> datetime:
    hour, minute = clock.split(":")
    return datetime.combine(day, time()) + timedelta(hours=int(hour), minutes=int(minute))
