"""What the calendar says of a day: its weekday, and where it lies among days off.

Known long before, so nothing here can leak. Days off are public holidays and weekends; a working
day between two of them is one on which many do not work.
"""

from __future__ import annotations

from datetime import date
from typing import Final

import numpy as np

from penstock.hives.forecast.grid import Floats
from penstock.hives.forecast.public_days import PublicDays

#: How far a holiday is felt.
REACH: Final = 21
NAMES: Final = (
    "weekday",
    "holiday",
    "holiday_tomorrow",
    "holiday_yesterday",
    "days_to_holiday",
    "days_since_holiday",
    "days_off_before",
    "between_days_off",
)


def calendar(first: date, days: int, public: PublicDays) -> Floats:
    """days × what is named above."""
    wide = public.around(first, days, REACH)
    places = np.arange(len(wide))
    weekday = (first.weekday() - REACH + places) % 7
    free = wide | (weekday >= 5)
    last_holiday = np.maximum.accumulate(np.where(wide, places, -REACH))
    next_holiday = np.minimum.accumulate(np.where(wide, places, len(wide) + REACH)[::-1])[::-1]
    last_worked = np.maximum.accumulate(np.where(free, -1, places))
    tomorrow, yesterday = np.roll(free, -1), np.roll(free, 1)
    columns = (
        weekday,
        wide,
        np.roll(wide, -1),
        np.roll(wide, 1),
        np.minimum(next_holiday - places, REACH),
        np.minimum(places - last_holiday, REACH),
        places - np.roll(last_worked, 1) - 1,
        ~free & tomorrow & yesterday,
    )
    return np.stack(columns, axis=-1).astype(np.float64)[REACH : REACH + days]
