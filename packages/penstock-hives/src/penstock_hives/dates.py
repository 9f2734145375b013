"""Days, weekdays and times of day, as hives and the pipeline count them."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Final

#: Keys of opening hours.
WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
#: Occupancy is computed in slots of five minutes.
SLOT_SECONDS: Final = 300
_EPOCH: Final = date(1970, 1, 1)


def day_number(day: date) -> int:
    """A date as days since 1970."""
    return (day - _EPOCH).days


def date_of(number: int) -> date:
    return _EPOCH + timedelta(days=number)


def minute_of_day(clock: str) -> int:
    """Of `HH:MM`."""
    hour, minute = clock.split(":")
    return int(hour) * 60 + int(minute)
