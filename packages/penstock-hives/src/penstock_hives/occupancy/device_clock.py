"""Device time to UTC, by tables of the changes of each time zone.

A local time that occurs twice is the one nearer to the time of receipt. A local time that does not
exist, or that is more than twelve hours off, is replaced by the time of receipt and marked suspect.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np

from penstock_hives.arrays import Flags, Numbers

#: Microseconds since 1970, as Arrow has them.

SECOND_MICROS: Final = 1_000_000
HOUR_MICROS: Final = 3600 * SECOND_MICROS
#: A clock further off than this is not used.
MAX_CLOCK_ERROR: Final = 12 * HOUR_MICROS
#: A report has two digits for the year.
_FIRST: Final = datetime(1999, 12, 1, tzinfo=UTC)
_LAST: Final = datetime(2100, 2, 1, tzinfo=UTC)
#: No zone changes its offset twice within a step.
_STEP: Final = timedelta(days=7)
_NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class TimeZoneTable:
    """Periods of constant offset; all in microseconds."""

    starts: Numbers  #: local time of the start of each period
    ends: Numbers  #: local time; exclusive
    offsets: Numbers

    def to_utc(self, wall: Numbers, near: Numbers) -> tuple[Numbers, Flags]:
        """UTC of local times; and which local times do not exist."""
        period = np.maximum(np.searchsorted(self.starts, wall, "right") - 1, 1)
        earlier = period - 1
        utc = wall - self.offsets[period]
        shown = wall < self.ends[period]
        again = wall < self.ends[earlier]
        if not again.any():
            return utc, ~shown
        # In autumn the last hour of a period and the first of the next have the same local times.
        other = wall - self.offsets[earlier]
        nearer = again & (~shown | (np.abs(other - near) < np.abs(utc - near)))
        return np.where(nearer, other, utc), ~(shown | again)


@lru_cache(maxsize=512)
def time_zone_table(name: str) -> TimeZoneTable:
    changes, offsets = _changes(ZoneInfo(name))
    shifts = np.array(offsets, np.int64)
    starts = np.array([_micros(_FIRST), *changes], np.int64) + shifts
    ends = np.array([*changes, _NEVER], np.int64) + shifts
    # An empty period first, so that each period has one before it.
    return TimeZoneTable(
        np.append(starts[0] - 1, starts), np.append(starts[0], ends), np.append(shifts[0], shifts)
    )


def _changes(info: ZoneInfo) -> tuple[list[int], list[int]]:
    at, offset = _FIRST, _offset(info, _FIRST)
    changes, offsets = [], [offset]
    while at < _LAST:
        later = at + _STEP
        new = _offset(info, later)
        if new != offset:
            changes.append(_micros(_change(info, at, later)))
            offsets.append(new)
        at, offset = later, new
    return changes, offsets


def _change(info: ZoneInfo, low: datetime, high: datetime) -> datetime:
    before = _offset(info, low)
    seconds = int((high - low).total_seconds())
    least, most = 0, seconds
    while most - least > 1:
        middle = (least + most) // 2
        if _offset(info, low + timedelta(seconds=middle)) == before:
            least = middle
        else:
            most = middle
    return low + timedelta(seconds=most)


def _offset(info: ZoneInfo, at: datetime) -> int:
    offset = at.astimezone(info).utcoffset()
    return 0 if offset is None else int(offset.total_seconds()) * SECOND_MICROS


def _micros(at: datetime) -> int:
    return int(at.timestamp()) * SECOND_MICROS


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    utc: Numbers  #: by the device's clock, however far off; the time of receipt without one
    at: Numbers  #: the device's time if it is plausible, else the time of receipt
    suspect: Flags


def resolve_wall_clocks(
    wall: Numbers, silent: Flags, received: Numbers, zones: tuple[str, ...], of_zone: Numbers
) -> DeviceTimes:
    """Local times in their zones; `silent` rows have none."""
    utc = received.copy()
    suspect = silent.copy()
    for number in np.unique(of_zone):
        rows = np.flatnonzero((of_zone == number) & ~silent)
        utc[rows], never = time_zone_table(zones[number]).to_utc(wall[rows], received[rows])
        lost = rows[never]
        suspect[lost] = True
        utc[lost] = received[lost]
    return resolve_utc_clocks(utc, suspect, received)


def resolve_utc_clocks(utc: Numbers, suspect: Flags, received: Numbers) -> DeviceTimes:
    """The time of receipt where the device's clock is too far off."""
    suspect = suspect | (np.abs(utc - received) > MAX_CLOCK_ERROR)
    return DeviceTimes(utc, np.where(suspect, received, utc), suspect)
