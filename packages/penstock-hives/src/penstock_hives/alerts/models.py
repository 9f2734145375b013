"""Alert definitions: as the evaluator uses them, and as users edit them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from penstock_hives.places.models import BoundingBox, GeoPoint


class AlertKind(StrEnum):
    OCCUPANCY_ABOVE = "occupancy_above"  #: the occupancy reaches the threshold
    OCCUPANCY_BELOW = "occupancy_below"  #: the occupancy falls to it
    DEAL_NEW = "deal_new"  #: a new deal of a hive, or of any
    DEAL_EXPIRING = "deal_expiring"  #: the user chooses how long before the end
    FAVOURITE_DEAL = "favourite_deal"  #: a new deal of a favourite hive

    @property
    def of_occupancy(self) -> bool:
        return self in (AlertKind.OCCUPANCY_ABOVE, AlertKind.OCCUPANCY_BELOW)


class ThresholdUnit(StrEnum):
    COUNT = "count"
    PERCENT = "percent"  #: of the capacity; hives without a capacity never match


@dataclass(frozen=True, slots=True)
class GeoRadius:
    centre: GeoPoint
    km: float

    def bounds(self) -> tuple[tuple[str, float, float], ...]:
        """The attributes of the bounding box, with their limits."""
        box = BoundingBox.around(self.centre, self.km)
        latitude = ("lat", box.south, box.north)
        if box.west > box.east:
            return (latitude,)  # across the date line: only the distance decides
        return (latitude, ("lon", box.west, box.east))

    def contains(self, place: GeoPoint) -> bool:
        return self.centre.distance_km(place) <= self.km


@dataclass(frozen=True, slots=True)
class AlertHours:
    """When a threshold may fire, by the clock of the hive."""

    zone: str
    weekdays: tuple[int, ...] = ()  #: Monday is 0; none: any
    span: tuple[time, time] | None = None  #: may last over midnight, into the next day

    def contains(self, at: datetime) -> bool:
        local = at.astimezone(ZoneInfo(self.zone))
        day, clock = local.weekday(), local.time()
        if self.span is not None:
            begins, ends = self.span
            if begins >= ends and clock < ends:
                day = (local - timedelta(days=1)).weekday()
            elif not (begins <= clock < ends or (begins >= ends and clock >= begins)):
                return False
        return not self.weekdays or day in self.weekdays


@dataclass(frozen=True, slots=True)
class AlertDefinition:
    id: int
    user_id: int
    kind: AlertKind
    hive_id: int | None = None
    threshold: float | None = None
    unit: ThresholdUnit | None = None
    hysteresis: float = 0.0
    cooldown: float = 0.0  #: seconds
    quiet: tuple[time, time] | None = None  #: from, to, in the user's local time
    inbox: bool = True
    push: bool = True
    favourites: tuple[int, ...] = ()  #: hive ids, of kind FAVOURITE_DEAL
    deal_kinds: tuple[str, ...] = ()  #: none: any
    hive_types: tuple[str, ...] = ()  #: none: any
    expiry_hours: tuple[int, ...] = ()  #: hours before the end of a deal
    near: GeoRadius | None = None  #: only deals of hives around here
    hours: AlertHours | None = None  #: of occupancy; None: always


@dataclass(frozen=True, slots=True)
class NotificationSetting:
    """A row of `user_notification_def`, as its user edits it."""

    id: int
    hive_id: int | None
    kind: str
    threshold: float | None
    unit: str | None
    hysteresis: float
    cooldown_s: int
    quiet_from: time | None
    quiet_to: time | None
    weekdays: tuple[int, ...]
    active_from: time | None
    active_to: time | None
    channels: tuple[str, ...]
    enabled: bool
    created_at: datetime
    updated_at: datetime
