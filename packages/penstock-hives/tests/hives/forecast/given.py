"""Venues made up for tests: people who keep hours and weeks, stay at home on holidays, and vary."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from penstock_hives.arrays import Floats
from penstock_hives.forecast.grid import HOURS, HourlyGrid, PublicHolidays
from penstock_hives.forecast.model import BoostingParameters
from penstock_hives.forecast.venues import Venue

COUNTS = Path(__file__).parents[2] / "data" / "people-counts"
#: A year of New Zealand's, from a Monday.
FIRST = date(2023, 1, 2)
#: Enough for a test to see that it learns.
SMALL = BoostingParameters(rounds=30, leaves=15, rate=0.2, rows_in_leaf=20)


def counts(days: int, seed: int = 0, level: float = 100.0, first: date = FIRST) -> Floats:
    """Busy at noon and more so on weekdays, in moods that last for days; hardly anybody on
    holidays."""
    random = np.random.default_rng(seed)
    hours = np.exp(-(((np.arange(HOURS) - 12.5) / 4.0) ** 2))
    weekday = (first.weekday() + np.arange(days)) % 7
    mood = np.zeros(days)
    for day in range(1, days):
        mood[day] = 0.8 * mood[day - 1] + random.normal(0, 0.12)
    off = PublicHolidays("NZ").is_holiday(HourlyGrid(first, np.zeros((days, HOURS))).days)
    size = level * np.where(weekday < 5, 1.0, 0.5) * np.exp(mood) * np.where(off, 0.2, 1.0)
    return np.asarray(random.poisson(size[:, None] * hours), np.float64)


def venue(name: str = "one", days: int = 200, **how: Any) -> Venue:
    return Venue(
        name, HourlyGrid(how.get("first", FIRST), counts(days, **how)), PublicHolidays("NZ")
    )


def venues(number: int = 4, days: int = 200) -> list[Venue]:
    return [
        venue(f"venue {each}", days, seed=each, level=30.0 * (each + 1)) for each in range(number)
    ]
