"""Points on the Earth: distances, directions, and boxes to look in before they are reckoned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from penstock.hives.app.domain.errors import Fault, Invalid

EARTH_KM: Final = 6371.0088
_KM_A_DEGREE: Final = math.pi * EARTH_KM / 180


@dataclass(frozen=True, slots=True)
class Point:
    lat: float
    lon: float

    @classmethod
    def parse(cls, text: str, field: str = "near") -> Point:
        """Of `52.52,13.405`."""
        try:
            lat, lon = (float(part) for part in text.split(","))
        except ValueError:
            lat = lon = math.nan
        if not (-90 <= lat <= 90 and -180 <= lon <= 180):
            raise Invalid("no such place", [Fault(field, "is a latitude, a comma, a longitude")])
        return cls(lat, lon)

    def distance_km(self, other: Point) -> float:
        """Along the surface (haversine)."""
        a, b = math.radians(self.lat), math.radians(other.lat)
        across = math.radians(other.lon - self.lon)
        h = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(across / 2) ** 2
        return 2 * EARTH_KM * math.asin(min(1.0, math.sqrt(h)))

    def bearing(self, other: Point) -> float:
        """The direction one sets out in, degrees from north by east."""
        a, b = math.radians(self.lat), math.radians(other.lat)
        across = math.radians(other.lon - self.lon)
        y = math.sin(across) * math.cos(b)
        x = math.cos(a) * math.sin(b) - math.sin(a) * math.cos(b) * math.cos(across)
        return math.degrees(math.atan2(y, x)) % 360


@dataclass(frozen=True, slots=True)
class Box:
    """Between two parallels and two meridians; `west` above `east` goes across 180°."""

    south: float
    west: float
    north: float
    east: float

    @classmethod
    def around(cls, centre: Point, km: float) -> Box:
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
    def parse(cls, text: str) -> Box:
        """Of `west,south,east,north`, as GeoJSON has it."""
        try:
            west, south, east, north = (float(part) for part in text.split(","))
        except ValueError:
            west = south = east = north = math.nan
        if not (-90 <= south <= north <= 90 and -180 <= west <= 180 and -180 <= east <= 180):
            raise Invalid("no such box", [Fault("bbox", "is west,south,east,north in degrees")])
        return cls(south, west, north, east)

    def holds(self, point: Point) -> bool:
        if not self.south <= point.lat <= self.north:
            return False
        if self.west <= self.east:
            return self.west <= point.lon <= self.east
        return point.lon >= self.west or point.lon <= self.east


def _turned(lon: float) -> float:
    """The same meridian, from -180 to 180."""
    return (lon + 180) % 360 - 180
