"""Kinds of places: when they are open, how their days look, how long people stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

#: From and to, local time. A closing time not after the opening one is on the next day.
Hours = tuple[str, str]
OpeningHours = dict[str, list[Hours]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveType:
    code: str
    name: str
    shape: str  #: of `shapes.csv`
    opening: tuple[Hours | None, ...]  #: Monday to Sunday
    stay_minutes: int  #: on average
    capacity: int  #: of a place of ordinary size
    doors: int  #: such a place has

    @property
    def opening_hours(self) -> OpeningHours:
        days = zip(WEEKDAYS, self.opening, strict=True)
        return {day: [] if hours is None else [hours] for day, hours in days}


def _daily(opens: str, closes: str, *last_days: Hours | None) -> tuple[Hours | None, ...]:
    """The same hours every day, but for the last days of the week."""
    return ((opens, closes),) * (7 - len(last_days)) + last_days


HIVE_TYPES: Final = (
    HiveType(
        code="cafe",
        name="Café",
        shape="lunch",
        opening=_daily("07:00", "19:00", ("08:00", "17:00")),
        stay_minutes=35,
        capacity=45,
        doors=1,
    ),
    HiveType(
        code="restaurant",
        name="Restaurant",
        shape="evening",
        opening=_daily(
            "11:30", "23:00", ("11:30", "00:30"), ("11:30", "00:30"), ("11:30", "22:00")
        ),
        stay_minutes=75,
        capacity=90,
        doors=1,
    ),
    HiveType(
        code="store",
        name="Store",
        shape="shopping",
        opening=_daily("09:00", "20:00", ("10:00", "18:00")),
        stay_minutes=20,
        capacity=120,
        doors=2,
    ),
    HiveType(
        code="bar",
        name="Bar",
        shape="evening",
        opening=_daily("17:00", "01:00", ("17:00", "03:00"), ("17:00", "03:00"), None),
        stay_minutes=95,
        capacity=110,
        doors=1,
    ),
    HiveType(
        code="office",
        name="Office building",
        shape="office",
        opening=_daily("06:30", "20:30", None, None),
        stay_minutes=210,
        capacity=320,
        doors=3,
    ),
    HiveType(
        code="supermarket",
        name="Supermarket",
        shape="shopping",
        opening=_daily("07:00", "22:00"),
        stay_minutes=25,
        capacity=220,
        doors=2,
    ),
    HiveType(
        code="gym",
        name="Gym",
        shape="commuting",
        opening=_daily("06:00", "22:30", ("08:00", "20:00"), ("08:00", "20:00")),
        stay_minutes=65,
        capacity=90,
        doors=1,
    ),
    HiveType(
        code="library",
        name="Library",
        shape="lunch",
        opening=_daily("09:00", "20:00", ("10:00", "17:00"), None),
        stay_minutes=80,
        capacity=180,
        doors=2,
    ),
)
