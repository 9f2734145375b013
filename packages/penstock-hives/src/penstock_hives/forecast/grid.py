"""A venue's history as a table of local days by 24 local hours, and back to UTC.

Visitors follow local time, so forecasts are made in it. The hour that a spring day lacks is
unknown; the hour that an autumn day has twice counts once, as the mean of both, and is forecast for
both. Unknown is NaN, never zero.

Public holidays of a country or a region are those of the package `holidays`; an unknown country has
none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

import holidays
import numpy as np

from penstock_hives.arrays import Flags, Floats, Numbers
from penstock_hives.dates import date_of

HOURS: Final = 24
WEEK: Final = 7


@dataclass(frozen=True, slots=True)
class HourlyGrid:
    first: date
    counts: Floats  #: a row for each day, a column for each hour

    @classmethod
    def of(
        cls, days: Numbers, hours: Numbers, counts: Floats, absent: float = float("nan")
    ) -> HourlyGrid:
        """Rows of days since 1970, hours and counts, in any order; rows of one hour are averaged.

        Hours without a row are `absent` on days that have a row, from the first row on: a rollup
        has no row where nothing happened. Days without a row are unknown.
        """
        first, last = int(days.min()), int(days.max())
        shape = (last - first + 1, HOURS)
        index = (days - first) * HOURS + hours
        known = ~np.isnan(counts)
        size = shape[0] * HOURS
        times = np.bincount(index[known], minlength=size)
        total = np.bincount(index[known], counts[known], minlength=size)
        mean = np.divide(total, times, out=np.full(size, np.nan), where=times > 0)
        rows = np.bincount(index, minlength=size)
        seen = np.repeat(rows.reshape(shape).any(axis=1), HOURS)
        silent = seen & (rows == 0) & (np.arange(size) > index.min())
        return cls(date_of(first), np.where(silent, absent, mean).reshape(shape))

    @property
    def end(self) -> date:
        """The first day after it."""
        return self.first + timedelta(days=len(self.counts))

    @property
    def days(self) -> list[date]:
        return [self.first + timedelta(days=each) for each in range(len(self.counts))]

    def index(self, day: date) -> int:
        return (day - self.first).days

    def before(self, day: date) -> HourlyGrid:
        return HourlyGrid(self.first, self.counts[: max(0, self.index(day))])

    def extend_to(self, day: date) -> HourlyGrid:
        """With unknown days up to and including that day."""
        more = max(0, self.index(day) + 1 - len(self.counts))
        return HourlyGrid(
            self.first, np.pad(self.counts, ((0, more), (0, 0)), constant_values=np.nan)
        )


def hours_of_day(day: date, zone: str) -> list[tuple[datetime, int]]:
    """The 23 to 25 hours of a local day: their start in UTC, and the local hour."""
    info = ZoneInfo(zone)
    moment = datetime.combine(day, time(), info).astimezone(UTC)
    end = datetime.combine(day + timedelta(days=1), time(), info).astimezone(UTC)
    found = []
    while moment < end:
        found.append((moment, moment.astimezone(info).hour))
        moment += timedelta(hours=1)
    return found


def skipped_hours(first: date, days: int, zone: str) -> Flags:
    """days × hours: those that clocks skip in spring."""
    info = ZoneInfo(zone)
    skipped = np.zeros((days, HOURS), dtype=np.bool_)
    midnights = [
        datetime.combine(first + timedelta(days=each), time(), info).astimezone(UTC)
        for each in range(days + 1)
    ]
    for each, (start, end) in enumerate(pairwise(midnights)):
        if end - start < timedelta(days=1):
            hours = [hour for _, hour in hours_of_day(first + timedelta(days=each), zone)]
            skipped[each] = True
            skipped[each, hours] = False
    return skipped


@dataclass(frozen=True, slots=True)
class PublicHolidays:
    country: str = ""  #: ISO 3166 code
    region: str = ""  #: code of a subdivision, such as AUK for Auckland

    def is_holiday(self, days: Sequence[date]) -> Flags:
        found = self._between(days[0].year, days[-1].year) if days else {}
        return np.array([day in found for day in days], dtype=np.bool_)

    def around(self, first: date, days: int, reach: int) -> Flags:
        """Of `days` days from the first, and `reach` days before and after them."""
        start = first - timedelta(days=reach)
        return self.is_holiday([start + timedelta(days=each) for each in range(days + 2 * reach)])

    def _between(self, first: int, last: int) -> dict[date, str]:
        years = range(first, last + 1)
        regions = holidays.list_supported_countries().get(self.country)
        if regions is None:
            return {}
        region = self.region if self.region in regions else None
        return dict(holidays.country_holidays(self.country, subdiv=region, years=years))
