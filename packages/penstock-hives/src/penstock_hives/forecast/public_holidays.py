"""Which days people have off: the public holidays of a country, or of a part of it.

From the package `holidays`, which computes them and asks nobody. A country it does not know, or
none at all, has no holidays: its venues are then forecast by their weeks alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import holidays
import numpy as np

from penstock_hives.arrays import Flags


@dataclass(frozen=True, slots=True)
class PublicHolidays:
    #: By its two letters.
    country: str = ""
    #: By what the country's own standard calls it, such as AUK for Auckland.
    region: str = ""

    def is_holiday(self, days: Sequence[date]) -> Flags:
        found = self._between(days[0].year, days[-1].year) if days else {}
        return np.array([day in found for day in days], dtype=np.bool_)

    def around(self, first: date, days: int, reach: int) -> Flags:
        """Of so many days from the first, and as many as the reach before and after them."""
        start = first - timedelta(days=reach)
        return self.is_holiday([start + timedelta(days=each) for each in range(days + 2 * reach)])

    def name(self, day: date) -> str:
        return str(self._between(day.year, day.year).get(day, ""))

    def _between(self, first: int, last: int) -> dict[date, str]:
        years = range(first, last + 1)
        regions = holidays.list_supported_countries().get(self.country)
        if regions is None:
            return {}  # nothing is known of the country
        region = self.region if self.region in regions else None
        return dict(holidays.country_holidays(self.country, subdiv=region, years=years))
