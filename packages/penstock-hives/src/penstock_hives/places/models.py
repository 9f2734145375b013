"""Hives as people see them, as their business edits them, and how they are looked for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Any, Final
from zoneinfo import ZoneInfo

from penstock_hives.deals.models import Deal
from penstock_hives.errors import FieldError, InvalidRequest
from penstock_hives.images.models import HiveImage
from penstock_hives.occupancy.models import Forecast, Occupancy, TypicalWeek


@dataclass(frozen=True, slots=True)
class HiveType:
    id: int
    code: str
    name: str


@dataclass(frozen=True, slots=True)
class HiveAddress:
    street: str = ""
    city: str = ""
    zip: str = ""
    country: str = ""
    lat: float | None = None
    lon: float | None = None

    @property
    def point(self) -> GeoPoint | None:
        return None if self.lat is None or self.lon is None else GeoPoint(self.lat, self.lon)


@dataclass(frozen=True, slots=True)
class HiveSummary:
    """A line of a list."""

    id: int
    name: str
    type: str
    type_name: str
    capacity: int | None
    time_zone: str
    address: HiveAddress | None
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
    address: HiveAddress | None
    opening_hours: Mapping[str, Sequence[Sequence[str]]]
    open_now: bool
    changes_at: datetime | None
    occupancy: Occupancy | None
    images: tuple[HiveImage, ...]
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
    address: HiveAddress | None
    opening_hours: Mapping[str, Sequence[Sequence[str]]]
    reset_time: time
    public: bool
    status: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class HiveNetwork:
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
    address: HiveAddress
    geo_uri: str
    distance_km: float | None
    bearing: float | None


class HiveSort(StrEnum):
    NAME = "name"
    DISTANCE = "distance"  #: nearest first; needs `near`
    QUIET = "quiet"  #: the emptiest first; those nobody hears of last


@dataclass(frozen=True, slots=True)
class HiveQuery:
    name: str | None = None
    type: str | None = None
    zip: str | None = None
    near: GeoPoint | None = None
    within_km: float | None = None
    open_now: bool | None = None
    sort: HiveSort = HiveSort.NAME
    limit: int = 50
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class HiveSnapshot:
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


# Points on the Earth: distances, directions, and boxes to look in before they are reckoned.

EARTH_KM: Final = 6371.0088
_KM_A_DEGREE: Final = math.pi * EARTH_KM / 180


@dataclass(frozen=True, slots=True)
class GeoPoint:
    lat: float
    lon: float

    @classmethod
    def parse(cls, text: str, field: str = "near") -> GeoPoint:
        """Of `52.52,13.405`."""
        try:
            lat, lon = (float(part) for part in text.split(","))
        except ValueError:
            lat = lon = math.nan
        if not (-90 <= lat <= 90 and -180 <= lon <= 180):
            raise InvalidRequest(
                "no such place", [FieldError(field, "is a latitude, a comma, a longitude")]
            )
        return cls(lat, lon)

    def distance_km(self, other: GeoPoint) -> float:
        """Along the surface (haversine)."""
        a, b = math.radians(self.lat), math.radians(other.lat)
        across = math.radians(other.lon - self.lon)
        h = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(across / 2) ** 2
        return 2 * EARTH_KM * math.asin(min(1.0, math.sqrt(h)))

    def bearing(self, other: GeoPoint) -> float:
        """The direction one sets out in, degrees from north by east."""
        a, b = math.radians(self.lat), math.radians(other.lat)
        across = math.radians(other.lon - self.lon)
        y = math.sin(across) * math.cos(b)
        x = math.cos(a) * math.sin(b) - math.sin(a) * math.cos(b) * math.cos(across)
        return math.degrees(math.atan2(y, x)) % 360


@dataclass(frozen=True, slots=True)
class BoundingBox:
    """Between two parallels and two meridians; `west` above `east` goes across 180°."""

    south: float
    west: float
    north: float
    east: float

    @classmethod
    def around(cls, centre: GeoPoint, km: float) -> BoundingBox:
        """One that holds the circle, and little more."""
        high = km / _KM_A_DEGREE
        south, north = centre.lat - high, centre.lat + high
        if south <= -90 or north >= 90:  # a pole is within: all meridians are
            return cls(max(south, -90.0), -180.0, min(north, 90.0), 180.0)
        reach = math.sin(math.radians(min(high, 90.0))) / math.cos(math.radians(centre.lat))
        if reach >= 1:
            return cls(south, -180.0, north, 180.0)
        wide = math.degrees(math.asin(reach))
        return cls(south, _turned(centre.lon - wide), north, _turned(centre.lon + wide))

    @classmethod
    def parse(cls, text: str) -> BoundingBox:
        """Of `west,south,east,north`, as GeoJSON has it."""
        try:
            west, south, east, north = (float(part) for part in text.split(","))
        except ValueError:
            west = south = east = north = math.nan
        if not (-90 <= south <= north <= 90 and -180 <= west <= 180 and -180 <= east <= 180):
            raise InvalidRequest(
                "no such box", [FieldError("bbox", "is west,south,east,north in degrees")]
            )
        return cls(south, west, north, east)

    def holds(self, point: GeoPoint) -> bool:
        if not self.south <= point.lat <= self.north:
            return False
        if self.west <= self.east:
            return self.west <= point.lon <= self.east
        return point.lon >= self.west or point.lon <= self.east


def _turned(lon: float) -> float:
    """The same meridian, from -180 to 180."""
    return (lon + 180) % 360 - 180


# Opening hours: by weekday, spans of local time; one that ends no later than it begins lasts into
# the next day. `hive_open` in the database says the same.

WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
Hours = Mapping[str, Sequence[Sequence[str]]]

_CLOCK: Final = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00")
_DAY: Final = timedelta(days=1)
#: Spans of one day: nobody opens more often.
_MOST: Final = 6


def check_opening_hours(hours: Hours) -> dict[str, list[list[str]]]:
    """The same, if it can be meant."""
    faults = []
    for day, spans in hours.items():
        if day not in WEEKDAYS:
            faults.append(FieldError(f"opening_hours.{day}", f"is none of {', '.join(WEEKDAYS)}"))
        elif len(spans) > _MOST or not all(_is_span(span) for span in spans):
            faults.append(FieldError(f"opening_hours.{day}", 'is a list of ["09:00", "17:30"]'))
    if faults:
        raise InvalidRequest("no such opening hours", faults)
    return {day: [list(span) for span in hours[day]] for day in WEEKDAYS if day in hours}


def is_open(hours: Hours, zone: str, at: datetime) -> bool:
    local = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    return any(opens <= local < closes for opens, closes in _around(hours, local.date()))


def next_change(hours: Hours, zone: str, at: datetime) -> datetime | None:
    """When it opens next, or closes if it is open; within the week that follows."""
    local = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    days = [local.date() + n * _DAY for n in range(-1, 8)]
    spans = sorted(span for day in days for span in _of(hours, day))
    until = local
    for opens, closes in spans:  # spans that follow on one another are one
        if opens <= until < closes:
            until = closes
    if until > local:
        return _moment(until, zone)
    return next((_moment(opens, zone) for opens, _ in spans if opens > local), None)


def _around(hours: Hours, day: date) -> Iterator[tuple[datetime, datetime]]:
    yield from _of(hours, day - _DAY)
    yield from _of(hours, day)


def _of(hours: Hours, day: date) -> Iterator[tuple[datetime, datetime]]:
    for opens, closes in hours.get(WEEKDAYS[day.weekday()], ()):
        begin, end = _at(day, opens), _at(day, closes)
        yield begin, end if end > begin else end + _DAY


def _at(day: date, clock: str) -> datetime:
    hour, minute = clock.split(":")
    return datetime.combine(day, time()) + timedelta(hours=int(hour), minutes=int(minute))


def _moment(wall: datetime, zone: str) -> datetime:
    return wall.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


def _is_span(span: Sequence[str]) -> bool:
    return len(span) == 2 and all(_CLOCK.fullmatch(clock) for clock in span) and span[0] != "24:00"
