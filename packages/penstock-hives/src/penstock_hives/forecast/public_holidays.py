"""Public holidays of a country or a region, from the package `holidays`.

An unknown country has no holidays: its venues are forecast by their weeks alone.
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
