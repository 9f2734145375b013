"""What somebody wants to be told, as the database has it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time
from enum import StrEnum
from typing import Final

from penstock_hives.places.models import BoundingBox, GeoPoint


class AlertKind(StrEnum):
    OCCUPANCY_ABOVE = "occupancy_above"  #: a hive fills up to the threshold
    OCCUPANCY_BELOW = "occupancy_below"  #: a hive empties down to it
    DEAL_NEW = "deal_new"  #: a hive, or any, offers something
    DEAL_EXPIRING = "deal_expiring"  #: a deal ends soon, as long before as the user has chosen
    FAVOURITE_DEAL = "favourite_deal"  #: a favourite hive offers something

    @property
    def of_occupancy(self) -> bool:
        return self in (AlertKind.OCCUPANCY_ABOVE, AlertKind.OCCUPANCY_BELOW)


class ThresholdUnit(StrEnum):
    COUNT = "count"
    PERCENT = "percent"  #: of the capacity; a hive without one has no percentage, and no alert


@dataclass(frozen=True, slots=True)
class GeoRadius:
    """A place, and how far from it something may be."""

    centre: GeoPoint
    km: float

    def bounds(self) -> tuple[tuple[str, float, float], ...]:
        """Attributes and what they lie between: whatever is near is inside, and little else."""
        box = BoundingBox.around(self.centre, self.km)
        latitude = ("lat", box.south, box.north)
        if box.west > box.east:
            return (latitude,)  # across the date line: the distance decides
        return (latitude, ("lon", box.west, box.east))

    def holds(self, place: GeoPoint) -> bool:
        return self.centre.distance_km(place) <= self.km


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
    quiet: tuple[time, time] | None = None  #: from, to, by the user's own clock
    inbox: bool = True
    push: bool = True
    favourites: tuple[int, ...] = ()  #: hives, of a definition that follows them
    deal_kinds: tuple[str, ...] = ()  #: none: any
    hive_types: tuple[str, ...] = ()  #: none: any
    expiry_hours: tuple[int, ...] = ()  #: how long before a deal ends
    near: GeoRadius | None = None  #: deals of hives around here


# What somebody wants to be told, by thresholds of their own.


class NotificationKind(StrEnum):
    OCCUPANCY_ABOVE = "occupancy_above"
    OCCUPANCY_BELOW = "occupancy_below"
    DEAL_NEW = "deal_new"
    DEAL_EXPIRING = "deal_expiring"
    FAVOURITE_DEAL = "favourite_deal"


#: Kinds that need a hive, a threshold and a unit.
THRESHOLDS: Final = frozenset({NotificationKind.OCCUPANCY_ABOVE, NotificationKind.OCCUPANCY_BELOW})


@dataclass(frozen=True, slots=True)
class NotificationSetting:
    id: int
    hive_id: int | None
    kind: str
    threshold: float | None
    unit: str | None
    hysteresis: float
    cooldown_s: int
    quiet_from: time | None
    quiet_to: time | None
    channels: tuple[str, ...]
    enabled: bool
    created_at: datetime
    updated_at: datetime
