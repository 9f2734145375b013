"""A venue's history as a table of local days by 24 hours of its clock, and back to moments.

People keep the hours of the clock on the wall, so all forecasting is done in these. The hour a
spring day lacks is unknown; the hour an autumn day has twice counts once, as the mean of both, and
is forecast for both. Unknown is NaN and never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np

from penstock_hives.arrays import Flags, Floats, Numbers

HOURS: Final = 24
WEEK: Final = 7


@dataclass(frozen=True, slots=True)
class HourlyGrid:
    first: date
    #: One row a day, one column an hour.
    counts: Floats

    @classmethod
    def of(
        cls, days: Numbers, hours: Numbers, counts: Floats, absent: float = float("nan")
    ) -> HourlyGrid:
        """Of rows: days since 1970, hours of the day, counts. In any order, some twice or never.

        Hours without a row are `absent` on days that have one, from the first row on: a rollup
        has no row where nothing happened. Days without any are unknown.
        """
        first, last = int(days.min()), int(days.max())
        shape = (last - first + 1, HOURS)
        place = (days - first) * HOURS + hours
        known = ~np.isnan(counts)
        size = shape[0] * HOURS
        times = np.bincount(place[known], minlength=size)
        total = np.bincount(place[known], counts[known], minlength=size)
        mean = np.divide(total, times, out=np.full(size, np.nan), where=times > 0)
        rows = np.bincount(place, minlength=size)
        seen = np.repeat(rows.reshape(shape).any(axis=1), HOURS)
        silent = seen & (rows == 0) & (np.arange(size) > place.min())
        return cls(_EPOCH + timedelta(days=first), np.where(silent, absent, mean).reshape(shape))

    @property
    def end(self) -> date:
        """The first day after it."""
        return self.first + timedelta(days=len(self.counts))

    @property
    def days(self) -> list[date]:
        return [self.first + timedelta(days=place) for place in range(len(self.counts))]

    def place(self, day: date) -> int:
        return (day - self.first).days

    def before(self, day: date) -> HourlyGrid:
        """What was known when that day began."""
        return HourlyGrid(self.first, self.counts[: max(0, self.place(day))])

    def extend_to(self, day: date) -> HourlyGrid:
        """The same with unknown days up to and with that one."""
        more = max(0, self.place(day) + 1 - len(self.counts))
        return HourlyGrid(
            self.first, np.pad(self.counts, ((0, more), (0, 0)), constant_values=np.nan)
        )


def hours_of_day(day: date, zone: str) -> list[tuple[datetime, int]]:
    """When the hours of a local day begin, 23 to 25 of them, and which of the clock each is."""
    place = ZoneInfo(zone)
    moment = datetime.combine(day, time(), place).astimezone(UTC)
    end = datetime.combine(day + timedelta(days=1), time(), place).astimezone(UTC)
    found = []
    while moment < end:
        found.append((moment, moment.astimezone(place).hour))
        moment += timedelta(hours=1)
    return found


def skipped_hours(first: date, days: int, zone: str) -> Flags:
    """days × hours: those the clock jumps over in spring."""
    place = ZoneInfo(zone)
    found = np.zeros((days, HOURS), dtype=np.bool_)
    midnights = [
        datetime.combine(first + timedelta(days=each), time(), place).astimezone(UTC)
        for each in range(days + 1)
    ]
    for each, (start, end) in enumerate(pairwise(midnights)):
        if end - start < timedelta(days=1):
            found[each] = True
            found[each, [hour for _, hour in hours_of_day(first + timedelta(days=each), zone)]] = (
                False
            )
    return found


def day_number(day: date) -> int:
    """Days since 1970."""
    return (day - _EPOCH).days


_EPOCH: Final = date(1970, 1, 1)
