"""Hives as people see them and as their business edits them; queries, places, opening hours."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, Self
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, model_validator

from penstock.core.errors import NotFound
from penstock_hives.deals.models import Deal
from penstock_hives.errors import FieldError, invalid_field, invalid_fields
from penstock_hives.images.models import HiveImage
from penstock_hives.occupancy.models import Forecast, HiveDay, Occupancy, TypicalWeek
from penstock_hives.queries import PageQuery, PublicQuery


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
    """A hive in a list."""

    id: int
    name: str
    type: str
    type_name: str
    capacity: int | None
    time_zone: str
    address: HiveAddress | None
    open_now: bool
    changes_at: datetime | None  #: when it opens, or closes if it is open
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
    badge: bool = False  #: whether other pages may embed its occupancy


@dataclass(frozen=True, slots=True)
class HiveSettings:
    """A hive as its business edits it."""

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
    badge: bool  #: whether other pages may embed its occupancy
    status: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class HiveNetwork:
    """A network that devices of a hive use; `secret_ref` says where its secret is stored."""

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
    hive_id: int
    name: str
    address: HiveAddress
    geo_uri: str
    distance_km: float | None
    bearing: float | None


class HiveSort(StrEnum):
    NAME = "name"
    DISTANCE = "distance"  #: nearest first; needs `near`
    QUIET = "quiet"  #: emptiest first; then open hives without data, then closed ones


@dataclass(frozen=True, slots=True)
class HiveSnapshot:
    """All public data at one moment."""

    as_of: datetime
    summaries: tuple[HiveSummary, ...]
    details: tuple[HiveDetail, ...]
    weeks: tuple[TypicalWeek, ...]
    forecasts: tuple[Forecast, ...]
    days: tuple[HiveDay, ...]
    types: tuple[HiveType, ...]
    deals: tuple[Deal, ...]


@dataclass(frozen=True, slots=True)
class HiveChange:
    """A partial update: columns and fields of the address that are not named stay."""

    values: Mapping[str, Any] = field(default_factory=dict)
    address: Mapping[str, Any] | None = None


EARTH_KM: Final = 6371.0088
_KM_A_DEGREE: Final = math.pi * EARTH_KM / 180


@dataclass(frozen=True, slots=True)
class GeoPoint:
    lat: float
    lon: float

    @classmethod
    def parse(cls, text: str, field: str = "near") -> GeoPoint:
        """From `52.52,13.405`."""
        try:
            lat, lon = (float(part) for part in text.split(","))
        except ValueError:
            lat = lon = math.nan
        if not (-90 <= lat <= 90 and -180 <= lon <= 180):
            raise invalid_field(field, f"must be latitude,longitude in degrees, got {text!r}")
        return cls(lat, lon)

    def distance_km(self, other: GeoPoint) -> float:
        """Along the surface, by the haversine formula."""
        a, b = math.radians(self.lat), math.radians(other.lat)
        across = math.radians(other.lon - self.lon)
        h = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(across / 2) ** 2
        return 2 * EARTH_KM * math.asin(min(1.0, math.sqrt(h)))

    def bearing(self, other: GeoPoint) -> float:
        """The initial bearing, degrees clockwise from north."""
        a, b = math.radians(self.lat), math.radians(other.lat)
        across = math.radians(other.lon - self.lon)
        y = math.sin(across) * math.cos(b)
        x = math.cos(a) * math.sin(b) - math.sin(a) * math.cos(b) * math.cos(across)
        return math.degrees(math.atan2(y, x)) % 360


@dataclass(frozen=True, slots=True)
class BoundingBox:
    """A box of latitudes and longitudes; `west` above `east` crosses 180°."""

    south: float
    west: float
    north: float
    east: float

    @classmethod
    def around(cls, centre: GeoPoint, km: float) -> BoundingBox:
        """The box around a circle."""
        high = km / _KM_A_DEGREE
        south, north = centre.lat - high, centre.lat + high
        if south <= -90 or north >= 90:  # a pole is inside, and so are all meridians
            return cls(max(south, -90.0), -180.0, min(north, 90.0), 180.0)
        reach = math.sin(math.radians(min(high, 90.0))) / math.cos(math.radians(centre.lat))
        if reach >= 1:
            return cls(south, -180.0, north, 180.0)
        wide = math.degrees(math.asin(reach))
        return cls(south, _normalized(centre.lon - wide), north, _normalized(centre.lon + wide))

    @classmethod
    def parse(cls, text: str) -> BoundingBox:
        """From `west,south,east,north`, the order of GeoJSON."""
        try:
            west, south, east, north = (float(part) for part in text.split(","))
        except ValueError:
            west = south = east = north = math.nan
        if not (-90 <= south <= north <= 90 and -180 <= west <= 180 and -180 <= east <= 180):
            raise invalid_field("bbox", f"must be west,south,east,north in degrees, got {text!r}")
        return cls(south, west, north, east)

    def contains(self, point: GeoPoint) -> bool:
        if not self.south <= point.lat <= self.north:
            return False
        if self.west <= self.east:
            return self.west <= point.lon <= self.east
        return point.lon >= self.west or point.lon <= self.east


def _normalized(lon: float) -> float:
    return (lon + 180) % 360 - 180


def navigation_to(hive: HiveDetail, start: GeoPoint | None) -> Navigation:
    goal = None if hive.address is None else hive.address.point
    if hive.address is None or goal is None:
        raise NotFound(f"hive {hive.id} has no position")
    return Navigation(
        hive.id,
        hive.name,
        hive.address,
        f"geo:{goal.lat:.6f},{goal.lon:.6f}",
        None if start is None else round(start.distance_km(goal), 3),
        None if start is None else round(start.bearing(goal), 1),
    )


def map_features(hives: Iterable[HiveSummary]) -> dict[str, Any]:
    """GeoJSON of the hives that have a position."""
    features = [
        {
            "type": "Feature",
            "id": hive.id,
            "geometry": {"type": "Point", "coordinates": [point.lon, point.lat]},
            "properties": hive,
        }
        for hive in hives
        if hive.address is not None and (point := hive.address.point) is not None
    ]
    return {"type": "FeatureCollection", "features": features}


def _parse_point(value: Any, info: ValidationInfo) -> Any:
    name = "from" if info.field_name == "start" else info.field_name or "near"
    return GeoPoint.parse(value, name) if isinstance(value, str) else value


def _parse_box(value: Any) -> Any:
    return BoundingBox.parse(value) if isinstance(value, str) else value


def _text_schema(about: str, example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "description": about, "examples": [example]})


Point = Annotated[
    GeoPoint, BeforeValidator(_parse_point), _text_schema("Latitude, longitude.", "52.52,13.405")
]
SearchText = Annotated[str, Field(min_length=1, max_length=100, pattern="^[^\\x00]*$")]


class HiveQuery(PageQuery):
    q: SearchText | None = None
    """Words in the name, the type, the town or the ZIP code. Accents do not matter, and words of
    four letters or more may have one wrong letter."""
    name: SearchText | None = None
    """Words in the name, without regard to accents."""
    type: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)] | None = None
    zip: SearchText | None = None
    near: Point | None = None
    within_km: Annotated[float, Field(gt=0, le=20_100)] | None = None
    open_now: bool | None = None
    sort: HiveSort | None = None
    """By name unless given; by distance if `near` is given."""

    @property
    def order(self) -> HiveSort:
        return self.sort or (HiveSort.NAME if self.near is None else HiveSort.DISTANCE)

    @model_validator(mode="after")
    def _has_origin(self) -> Self:
        if self.near is None and (self.sort is HiveSort.DISTANCE or self.within_km is not None):
            raise invalid_field("near", "must be given for distances")
        return self


class MapQuery(PublicQuery):
    bbox: Annotated[
        BoundingBox,
        BeforeValidator(_parse_box),
        _text_schema("West, south, east, north.", "13.0,52.3,13.8,52.7"),
    ]
    limit: int = Field(default=200, ge=1, le=500)


class NavigationQuery(PublicQuery):
    start: Point | None = Field(default=None, alias="from")


class ForecastQuery(PublicQuery):
    day: date | None = None
    """A local day of the hive; today unless given."""


# Opening hours: spans of local time by weekday, and by date for exceptions such as holidays, which
# replace the weekday's. A span that ends no later than it begins lasts into the next day. The SQL
# function `hive_open` computes the same.

WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
Hours = Mapping[str, Sequence[Sequence[str]]]

_CLOCK: Final = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00")
_DAY: Final = timedelta(days=1)
_MAX_SPANS: Final = 6  #: of one day
_MAX_EXCEPTIONS: Final = 100


def check_opening_hours(hours: Hours) -> dict[str, list[list[str]]]:
    errors = []
    dates = sorted(day for day in hours if day not in WEEKDAYS)
    if len(dates) > _MAX_EXCEPTIONS:
        errors.append(FieldError("opening_hours", f"have at most {_MAX_EXCEPTIONS} exceptions"))
    for day, spans in hours.items():
        if day not in WEEKDAYS and not _is_date(day):
            reason = f"must be one of {', '.join(WEEKDAYS)}, or a date such as 2026-12-25"
            errors.append(FieldError(f"opening_hours.{day}", reason))
        elif len(spans) > _MAX_SPANS or not all(_is_span(span) for span in spans):
            reason = 'must be a list of spans such as ["09:00", "17:30"]'
            errors.append(FieldError(f"opening_hours.{day}", reason))
    if errors:
        raise invalid_fields(errors)
    return {day: [list(span) for span in hours[day]] for day in (*WEEKDAYS, *dates) if day in hours}


def is_open(hours: Hours, zone: str, at: datetime) -> bool:
    local = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    return any(opens <= local < closes for opens, closes in _around(hours, local.date()))


def is_open_or_unknown(hours: Hours, zone: str, at: datetime) -> bool:
    """A hive whose hours are not known is not said to be closed."""
    return not any(hours.values()) or is_open(hours, zone, at)


def next_change(hours: Hours, zone: str, at: datetime) -> datetime | None:
    """When it opens next, or closes if it is open, within a week."""
    until = local = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    for day in range(-1, 8):
        for opens, closes in sorted(_of(hours, local.date() + day * _DAY)):
            if opens <= until < closes:  # adjacent spans are one
                until = closes
            elif opens > until:
                return _to_utc(opens if until == local else until, zone)
    return _to_utc(until, zone) if until > local else None


def closed_text(opens_at: datetime | None, zone: str, now: datetime) -> str:
    """What is said of a closed hive, in its local time: `closed, opens Mon 08:00`."""
    if opens_at is None:
        return "closed"
    local = opens_at.astimezone(ZoneInfo(zone))
    today = now.astimezone(ZoneInfo(zone)).date()
    day = "" if local.date() == today else f"{WEEKDAYS[local.weekday()].capitalize()} "
    return f"closed, opens {day}{local:%H:%M}"


def _around(hours: Hours, day: date) -> Iterator[tuple[datetime, datetime]]:
    yield from _of(hours, day - _DAY)
    yield from _of(hours, day)


def _of(hours: Hours, day: date) -> Iterator[tuple[datetime, datetime]]:
    usual = hours.get(WEEKDAYS[day.weekday()], ())
    for opens, closes in hours.get(day.isoformat(), usual):
        begin, end = _at(day, opens), _at(day, closes)
        yield begin, end if end > begin else end + _DAY


def _at(day: date, clock: str) -> datetime:
    hour, minute = clock.split(":")
    return datetime.combine(day, time()) + timedelta(hours=int(hour), minutes=int(minute))


def _to_utc(wall: datetime, zone: str) -> datetime:
    return wall.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _is_span(span: Sequence[str]) -> bool:
    return len(span) == 2 and all(_CLOCK.fullmatch(clock) for clock in span) and span[0] != "24:00"
