"""The date and time of report v1, by the column: microseconds since 1970 of a wall clock."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.sensors.columns.bodies import Bytes, Mask

_YEARS: Final = 100
_MONTHS: Final = np.arange("2000-01", "2100-02", dtype="datetime64[M]").astype("datetime64[D]")
#: For each month of the century, its first day since 1970, and how many days it has.
_FIRST_DAY: Final = _MONTHS[:-1].astype(np.int64)
_DAYS: Final = np.diff(_MONTHS).astype(np.uint8)


def read_clock(date: Bytes, plus: int | NDArray[np.int64]) -> tuple[NDArray[np.int64], Mask]:
    """The times, and which rows have none that can be."""
    # A byte less than what was added wraps round to one that no field of a date allows.
    fields = date.T - np.asarray(plus, np.uint8)
    year, month, day, hour, minute, second = fields
    month0, day0 = month - np.uint8(1), day - np.uint8(1)
    possible = (year < _YEARS) & (month0 < 12) & (hour < 24) & (minute < 60) & (second < 60)
    index = np.where(possible, year.astype(np.int16) * 12 + month0, 0)
    possible &= day0 < _DAYS[index]
    days = _FIRST_DAY[index] + day0
    seconds = days * 86_400 + hour * np.int64(3600) + minute * np.int64(60) + second
    return seconds * 1_000_000, ~possible
