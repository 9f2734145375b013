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
#: A clock further off than this is not believed.
MAX_CLOCK_ERROR: Final = 12 * HOUR_MICROS
#: A report has two digits for the year.
_FIRST: Final = datetime(1999, 12, 1, tzinfo=UTC)
_LAST: Final = datetime(2100, 2, 1, tzinfo=UTC)
#: No zone changes its clocks twice within so little.
_STEP: Final = timedelta(days=7)
_NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class TimeZoneTable:
    """Stretches in which the offset stays the same; all in microseconds."""

    starts: Numbers  #: by the wall clock, of each stretch
    ends: Numbers  #: by the wall clock; exclusive
    offsets: Numbers

    def to_utc(self, wall: Numbers, near: Numbers) -> tuple[Numbers, Flags]:
        """The moments the clocks showed, and which rows show none that ever was."""
        place = np.maximum(np.searchsorted(self.starts, wall, "right") - 1, 1)
        earlier = place - 1
        utc = wall - self.offsets[place]
        shown = wall < self.ends[place]
        again = wall < self.ends[earlier]
        if not again.any():
            return utc, ~shown
        # The last hour of one stretch is the first of the next by the wall clock: in autumn.
        other = wall - self.offsets[earlier]
        nearer = again & (~shown | (np.abs(other - near) < np.abs(utc - near)))
        return np.where(nearer, other, utc), ~(shown | again)


@lru_cache(maxsize=512)
def time_zone_table(name: str) -> TimeZoneTable:
    changes, offsets = _changes(ZoneInfo(name))
    held = np.array(offsets, np.int64)
    starts = np.array([_micros(_FIRST), *changes], np.int64) + held
    ends = np.array([*changes, _NEVER], np.int64) + held
    # Before the first stretch comes an empty one, so that each has one before it.
    return TimeZoneTable(
        np.append(starts[0] - 1, starts), np.append(starts[0], ends), np.append(held[0], held)
    )


def _changes(info: ZoneInfo) -> tuple[list[int], list[int]]:
    """When the offset changes, and the offsets before, between and after."""
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
    """The second at which the offset changes."""
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
    utc: Numbers  #: what the device says, however far off; the receipt where it says nothing
    at: Numbers  #: what is believed
    suspect: Flags


def resolve_wall_clocks(
    wall: Numbers, silent: Flags, received: Numbers, zones: tuple[str, ...], of_zone: Numbers
) -> DeviceTimes:
    """Of wall clocks in their zones; `silent` are the rows without one."""
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
    """Of moments in UTC: the receipt where the device is too far off."""
    suspect = suspect | (np.abs(utc - received) > MAX_CLOCK_ERROR)
    return DeviceTimes(utc, np.where(suspect, received, utc), suspect)
