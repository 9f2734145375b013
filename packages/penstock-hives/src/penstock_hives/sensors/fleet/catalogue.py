"""The simulated hives, their types, and the sensors at their doors.

The list is endless and always the same; the demo uses the first fifty. Field names are the column
names of the tables `hive`, `address` and `sensor`. The hives are invented, their cities are real.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from penstock_hives.dates import WEEKDAYS
from penstock_hives.sensors.protocol.frame import FirmwareProfile, SensorProtocol

#: City, country, time zone, latitude, longitude, street, prefix of ZIP codes.
_CITIES: Final = (
    ("Bucharest", "RO", "Europe/Bucharest", 44.436, 26.102, "Strada Lipscani", "0300"),
    ("London", "GB", "Europe/London", 51.513, -0.128, "Marchmont Street", "WC1"),
    ("New York", "US", "America/New_York", 40.735, -73.991, "Bleecker Street", "100"),
    ("Auckland", "NZ", "Pacific/Auckland", -36.848, 174.765, "Queen Street", "10"),
    ("Berlin", "DE", "Europe/Berlin", 52.530, 13.401, "Torstraße", "101"),
    ("Kolkata", "IN", "Asia/Kolkata", 22.553, 88.352, "Park Street", "7000"),
    ("Lisbon", "PT", "Europe/Lisbon", 38.711, -9.140, "Rua Garrett", "12"),
    ("São Paulo", "BR", "America/Sao_Paulo", -23.556, -46.662, "Rua Augusta", "013"),
    ("Tokyo", "JP", "Asia/Tokyo", 35.661, 139.700, "Meiji-dori", "150"),
)
_NAMES: Final = (
    *("Amber", "Anchor", "Birch", "Bluebell", "Bramble", "Cedar", "Clover", "Copper", "Corner"),
    *("Dahlia", "Drone", "Elder", "Ember", "Fern", "Foxglove", "Garnet", "Ginger", "Granite"),
    *("Harbour", "Hawthorn", "Hazel", "Heather", "Honey", "Indigo", "Ivy", "Jasmine", "Juniper"),
    *("Kestrel", "Lantern", "Larch", "Laurel", "Lime", "Linden", "Magnolia", "Maple", "Marble"),
    *("Meadow", "Nectar", "Oak", "Olive", "Orchard", "Pebble", "Pine", "Poppy", "Quince"),
    *("Rowan", "Saffron", "Sage", "Thyme", "Tulip", "Verbena", "Willow", "Zinnia"),
)
_ACCOUNTS: Final = ("Meadow & Sons", "Comb Holding", "Nectar Group", "Waggle Ventures", "Propolis")
_DOORS: Final = ("main door", "side door", "back door", "garage door", "terrace")


@dataclass(frozen=True, slots=True)
class SimulatedAddress:
    street: str
    city: str
    zip: str
    country: str
    lat: float
    lon: float


@dataclass(frozen=True, slots=True)
class SimulatedHive:
    id: int
    account: str
    name: str
    hive_type: SimulatedHiveType
    capacity: int
    time_zone: str
    address: SimulatedAddress
    doors: int

    def to_json(self) -> dict[str, Any]:
        where = self.address
        return {
            "id": self.id,
            "account": self.account,
            "name": self.name,
            "hive_type": self.hive_type.code,
            "capacity": self.capacity,
            "time_zone": self.time_zone,
            "opening_hours": self.hive_type.opening_hours,
            "address": {name: getattr(where, name) for name in SimulatedAddress.__slots__},
            "public": True,
        }


@dataclass(frozen=True, slots=True)
class SimulatedSensor:
    """A sensor as the catalogue has it; the device may differ."""

    id: int
    hive_id: int
    serial: str
    name: str
    protocol: SensorProtocol
    profile: FirmwareProfile
    direction_swapped: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "hive_id": self.hive_id,
            "serial": self.serial,
            "name": self.name,
            "protocol": self.protocol.value,
            "profile": self.profile.to_json(),
            "direction_swapped": self.direction_swapped,
        }


def simulated_hives() -> Iterator[SimulatedHive]:
    for number in count():
        kind = HIVE_TYPES[number % len(HIVE_TYPES)]
        city, country, zone, lat, lon, street, zip_code = _CITIES[number % len(_CITIES)]
        again, which = divmod(number, len(_NAMES))
        # Strides without a common divisor, so that neighbours differ.
        size = 0.6 + 0.2 * (number * 5 % 7)
        lie = ((number * 13 % 29) - 14) / 1000
        yield SimulatedHive(
            id=number + 1,
            account=_ACCOUNTS[number * 3 % len(_ACCOUNTS)],
            name=f"{_NAMES[which]} {kind.name}" + (f" {again + 1}" if again else ""),
            hive_type=kind,
            capacity=max(20, round(kind.capacity * size / 10) * 10),
            time_zone=zone,
            address=SimulatedAddress(
                street=f"{street} {1 + number * 17 % 90}",
                city=city,
                zip=f"{zip_code}{number % 10}",
                country=country,
                lat=round(lat + lie, 4),
                lon=round(lon - lie, 4),
            ),
            doors=max(1, kind.doors + (number * 7 % 3) - 1),
        )


def door_names(hive: SimulatedHive) -> tuple[str, ...]:
    return _DOORS[: hive.doors]


#: Local times; a closing time not after the opening time is on the next day.
OpenHours = tuple[str, str]
OpeningHours = dict[str, list[OpenHours]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedHiveType:
    code: str
    name: str
    shape: str  #: of `shapes.csv`
    opening: tuple[OpenHours | None, ...]  #: Monday to Sunday
    stay_minutes: int  #: on average
    capacity: int  #: of a hive of average size
    doors: int  #: of such a hive

    @property
    def opening_hours(self) -> OpeningHours:
        days = zip(WEEKDAYS, self.opening, strict=True)
        return {day: [] if hours is None else [hours] for day, hours in days}


def _daily(opens: str, closes: str, *last_days: OpenHours | None) -> tuple[OpenHours | None, ...]:
    """The same hours every day, except the last days of the week."""
    return ((opens, closes),) * (7 - len(last_days)) + last_days


HIVE_TYPES: Final = (
    SimulatedHiveType(
        code="cafe",
        name="Café",
        shape="lunch",
        opening=_daily("07:00", "19:00", ("08:00", "17:00")),
        stay_minutes=35,
        capacity=45,
        doors=1,
    ),
    SimulatedHiveType(
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
    SimulatedHiveType(
        code="store",
        name="Store",
        shape="shopping",
        opening=_daily("09:00", "20:00", ("10:00", "18:00")),
        stay_minutes=20,
        capacity=120,
        doors=2,
    ),
    SimulatedHiveType(
        code="bar",
        name="Bar",
        shape="evening",
        opening=_daily("17:00", "01:00", ("17:00", "03:00"), ("17:00", "03:00"), None),
        stay_minutes=95,
        capacity=110,
        doors=1,
    ),
    SimulatedHiveType(
        code="office",
        name="Office building",
        shape="office",
        opening=_daily("06:30", "20:30", None, None),
        stay_minutes=210,
        capacity=320,
        doors=3,
    ),
    SimulatedHiveType(
        code="supermarket",
        name="Supermarket",
        shape="shopping",
        opening=_daily("07:00", "22:00"),
        stay_minutes=25,
        capacity=220,
        doors=2,
    ),
    SimulatedHiveType(
        code="gym",
        name="Gym",
        shape="commuting",
        opening=_daily("06:00", "22:30", ("08:00", "20:00"), ("08:00", "20:00")),
        stay_minutes=65,
        capacity=90,
        doors=1,
    ),
    SimulatedHiveType(
        code="library",
        name="Library",
        shape="lunch",
        opening=_daily("09:00", "20:00", ("10:00", "17:00"), None),
        stay_minutes=80,
        capacity=180,
        doors=2,
    ),
)
