"""Figures for businesses and operators: series, KPIs, comparisons, popularity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import IntEnum, StrEnum
from typing import Any

from pydantic import Field

from penstock_hives.queries import PublicQuery


class SeriesBucket(StrEnum):
    """Buckets of a series, in local time."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    WEEKDAY = "weekday"
    HOUR_OF_DAY = "hour_of_day"
    TOTAL = "total"


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """`bucket` is a local time or day, a weekday (Monday is 0) or an hour."""

    hive_id: int
    bucket: str
    entries: int
    exits: int
    peak: int | None
    mean: float | None


@dataclass(frozen=True, slots=True)
class Kpi:
    hive_id: int
    day: date
    visits: int
    mean_occupancy: float | None
    mean_percent: float | None
    peak: int | None
    peak_hour: int | None
    coverage: float | None


@dataclass(frozen=True, slots=True)
class PeriodSummary:
    """Figures of a hive from `begins` to before `ends`."""

    hive_id: int
    begins: date
    ends: date
    days: int
    visits: int
    visits_a_day: float | None
    mean_occupancy: float | None
    peak: int | None


@dataclass(frozen=True, slots=True)
class PeriodComparison:
    """Two periods of a hive, and their relative difference."""

    before: PeriodSummary
    after: PeriodSummary
    visits_change: float | None
    mean_change: float | None


@dataclass(frozen=True, slots=True)
class GroupShare:
    """Groups of fewer than ten people are not shown."""

    group: str
    people: int


@dataclass(frozen=True, slots=True)
class Demographics:
    hive_id: int
    age_bands: tuple[GroupShare, ...]
    genders: tuple[GroupShare, ...]


class ComparisonDays(IntEnum):
    """Days that are compared with the same number before them."""

    WEEK = 7
    MONTH = 28


@dataclass(frozen=True, slots=True)
class PeerComparison:
    """Daily means of a hive, compared with the period before and with hives of its type."""

    hive_id: int
    day: date  #: the last day
    window_days: int
    visits_now: float | None
    visits_before: float | None
    occupancy_now: float | None
    occupancy_before: float | None
    peers: int  #: other hives of its type
    peer_visits: float | None  #: their median
    rank: int | None  #: among its type; the busiest is 1


class PopularityDays(IntEnum):
    DAY = 1
    WEEK = 7
    MONTH = 30


@dataclass(frozen=True, slots=True)
class Popularity:
    hive_id: int
    name: str
    rank: int
    score: float
    views: int
    searches: int
    favourites: int
    visits: int
    day: date
    window_days: int


class PopularityMeasure(StrEnum):
    """The measure by which hives are ranked."""

    ALL = "all"
    VIEWS = "views"
    SEARCHES = "searches"
    FAVOURITES = "favourites"
    VISITS = "visits"

    def sort_key(self, each: Popularity) -> tuple[int, int]:
        return (0 if self is PopularityMeasure.ALL else -getattr(each, self)), each.rank


class PopularQuery(PublicQuery):
    window_days: PopularityDays = PopularityDays.WEEK
    by: PopularityMeasure = PopularityMeasure.ALL
    limit: int = Field(default=20, ge=1, le=100)


@dataclass(frozen=True, slots=True)
class PreferenceShift:
    hive_type: str
    share_before: float
    share_now: float
    day: date
    window_days: int


@dataclass(frozen=True, slots=True)
class NamedCount:
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class Usage:
    """The most viewed pages and hives, the most frequent searches and favourites."""

    pages: tuple[NamedCount, ...]
    searches: tuple[NamedCount, ...]
    hives: tuple[NamedCount, ...]
    favourites: tuple[NamedCount, ...]


@dataclass(frozen=True, slots=True)
class AccountMetric:
    id: int
    account_id: int
    name: str
    formula: str
    filter: Mapping[str, Any]
    goal: float | None
    window_days: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class MetricValue:
    hive_id: int
    day: date
    value: float | None
    goal_met: bool | None


@dataclass(frozen=True, slots=True)
class Insight:
    id: int
    hive_id: int | None
    kind: str
    day: date
    title: str
    body: str
    weight: float
    data: Mapping[str, Any]
