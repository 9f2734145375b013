"""Occupancy of a hive: now, compared with usual, in a typical week, and as forecast."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from math import floor
from typing import Final

#: The least difference from usual: people, and share of the usual occupancy.
_PEOPLE: Final = 3.0
_SHARE: Final = 0.2
#: Weeks of data that make a value usual.
_WEEKS: Final = 2


class UsualRelation(StrEnum):
    QUIETER = "quieter"  #: less busy than usual
    AS_USUAL = "as_usual"
    BUSIER = "busier"


def whole_percent(percent: float) -> int:
    """Rounded as the scripts of the page do: 12.5 is 13, where Python's formats say 12."""
    return floor(percent + 0.5)


@dataclass(frozen=True, slots=True)
class UsualOccupancy:
    """The usual occupancy at this hour of the week, and how it compares with now."""

    occupancy: float
    weeks: int
    relation: UsualRelation


@dataclass(frozen=True, slots=True)
class Occupancy:
    """A stale hive has its last figure and no level."""

    hive_id: int
    occupancy: int
    percent: float | None
    level: str | None
    trend: str
    quality: str
    as_of: datetime
    version: int
    usual: UsualOccupancy | None = None


@dataclass(frozen=True, slots=True)
class TypicalHour:
    """Local time; Monday is 0."""

    weekday: int
    hour: int
    entries: float
    occupancy: float
    weeks: int


@dataclass(frozen=True, slots=True)
class TypicalWeek:
    hive_id: int
    as_of: datetime | None
    hours: tuple[TypicalHour, ...]


@dataclass(frozen=True, slots=True)
class ForecastHour:
    """Entries expected in the hour from `slot` on: the median, and the 90th percentile."""

    slot: datetime
    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class PeakHours:
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of a local day; without hours if there is no forecast yet."""

    hive_id: int
    day: date
    model: str | None
    made_at: datetime | None
    hours: tuple[ForecastHour, ...]
    peak: PeakHours | None


@dataclass(frozen=True, slots=True)
class CountedHour:
    """Entries in the hour from `slot` on, and the most people inside at once."""

    slot: datetime
    entries: int
    peak: int | None


@dataclass(frozen=True, slots=True)
class HiveDay:
    """What was counted on a local day so far."""

    hive_id: int
    day: date
    hours: tuple[CountedHour, ...]


def compare_with_usual(
    occupancy: int, quality: str, typical: float | None, weeks: int | None
) -> UsualOccupancy | None:
    """None for a stale hive, and for one with too few weeks of data."""
    if typical is None or weeks is None or weeks < _WEEKS or quality == "stale":
        return None
    margin = max(_PEOPLE, _SHARE * typical)
    if occupancy < typical - margin:
        relation = UsualRelation.QUIETER
    elif occupancy > typical + margin:
        relation = UsualRelation.BUSIER
    else:
        relation = UsualRelation.AS_USUAL
    return UsualOccupancy(round(typical, 1), weeks, relation)
