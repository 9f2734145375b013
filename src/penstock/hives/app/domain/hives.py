"""Hives as people see them, as their business edits them, and how they are looked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from enum import StrEnum
from typing import Any

from penstock.hives.app.domain.deals import Deal
from penstock.hives.app.domain.geography import Point
from penstock.hives.app.domain.images import Image
from penstock.hives.app.domain.occupancy import Forecast, Occupancy, TypicalWeek


@dataclass(frozen=True, slots=True)
class HiveType:
    id: int
    code: str
    name: str


@dataclass(frozen=True, slots=True)
class Address:
    street: str = ""
    city: str = ""
    zip: str = ""
    country: str = ""
    lat: float | None = None
    lon: float | None = None

    @property
    def point(self) -> Point | None:
        return None if self.lat is None or self.lon is None else Point(self.lat, self.lon)


@dataclass(frozen=True, slots=True)
class HiveSummary:
    """A line of a list."""

    id: int
    name: str
    type: str
    type_name: str
    capacity: int | None
    time_zone: str
    address: Address | None
    open_now: bool
    cover: str | None
    occupancy: Occupancy | None
    distance_km: float | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class HiveDetail:
    id: int
    account_id: int
    name: str
    description: str
    type: str
    type_name: str
    capacity: int | None
    time_zone: str
    address: Address | None
    opening_hours: Mapping[str, Sequence[Sequence[str]]]
    open_now: bool
    changes_at: datetime | None
    occupancy: Occupancy | None
    images: tuple[Image, ...]
    deals: tuple[Deal, ...]
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class HiveSettings:
    """A hive as its business edits it; its tag is what changes are based on."""

    id: int
    account_id: int
    name: str
    description: str
    type: str
    capacity: int | None
    time_zone: str
    address: Address | None
    opening_hours: Mapping[str, Sequence[Sequence[str]]]
    reset_time: time
    public: bool
    status: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Network:
    """How devices in a hive reach the world. Secrets are kept elsewhere; this says where."""

    id: int
    hive_id: int
    kind: str
    ssid: str | None
    secret_ref: str | None
    notes: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ManualCount:
    hive_id: int
    at: datetime
    counted: int
    by: str


@dataclass(frozen=True, slots=True)
class Navigation:
    """What a map or a guide needs to lead somebody there."""

    hive_id: int
    name: str
    address: Address
    geo_uri: str
    distance_km: float | None
    bearing: float | None


class Sort(StrEnum):
    NAME = "name"
    DISTANCE = "distance"  #: nearest first; needs `near`
    QUIET = "quiet"  #: the emptiest first; those nobody hears of last


@dataclass(frozen=True, slots=True)
class HiveQuery:
    name: str | None = None
    type: str | None = None
    zip: str | None = None
    near: Point | None = None
    within_km: float | None = None
    open_now: bool | None = None
    sort: Sort = Sort.NAME
    limit: int = 50
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that the public may see, at one moment."""

    as_of: datetime
    summaries: tuple[HiveSummary, ...]
    details: tuple[HiveDetail, ...]
    weeks: tuple[TypicalWeek, ...]
    forecasts: tuple[Forecast, ...]
    types: tuple[HiveType, ...]
    deals: tuple[Deal, ...]


@dataclass(frozen=True, slots=True)
class HiveChange:
    """What is to be different; names that are missing stay as they are."""

    values: Mapping[str, Any] = field(default_factory=dict)
    address: Mapping[str, Any] | None = None
