"""The hives of the simulation and the sensors at their doors: the same ones, in the same order.

The first fifty are the demonstration; a larger fleet goes on in the same manner. Names of columns
are those of the entities they will fill (hive, address, sensor); the places are invented, their
cities are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from penstock.hives.sensors.fleet.hive_types import HIVE_TYPES, HiveType
from penstock.hives.sensors.messages.profile import Profile, Protocol

#: City, country, time zone, latitude, longitude, a street, and how its ZIP codes begin.
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
class Address:
    street: str
    city: str
    zip: str
    country: str
    lat: float
    lon: float


@dataclass(frozen=True, slots=True)
class Hive:
    id: int
    account: str
    name: str
    hive_type: HiveType
    capacity: int
    time_zone: str
    address: Address
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
            "address": {name: getattr(where, name) for name in Address.__slots__},
            "public": True,
        }


@dataclass(frozen=True, slots=True)
class Sensor:
    """What the system knows of a sensor; the device itself may be otherwise."""

    id: int
    hive_id: int
    serial: str
    name: str
    protocol: Protocol
    profile: Profile
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


def hives() -> Iterator[Hive]:
    """All there could ever be, in order."""
    for number in count():
        kind = HIVE_TYPES[number % len(HIVE_TYPES)]
        city, country, zone, lat, lon, street, zip_code = _CITIES[number % len(_CITIES)]
        again, which = divmod(number, len(_NAMES))
        # Strides without a common divisor, so that neighbours in the list differ in everything.
        size = 0.6 + 0.2 * (number * 5 % 7)
        lie = ((number * 13 % 29) - 14) / 1000
        yield Hive(
            id=number + 1,
            account=_ACCOUNTS[number * 3 % len(_ACCOUNTS)],
            name=f"{_NAMES[which]} {kind.name}" + (f" {again + 1}" if again else ""),
            hive_type=kind,
            capacity=max(20, round(kind.capacity * size / 10) * 10),
            time_zone=zone,
            address=Address(
                street=f"{street} {1 + number * 17 % 90}",
                city=city,
                zip=f"{zip_code}{number % 10}",
                country=country,
                lat=round(lat + lie, 4),
                lon=round(lon - lie, 4),
            ),
            doors=max(1, kind.doors + (number * 7 % 3) - 1),
        )


def door_names(hive: Hive) -> tuple[str, ...]:
    return _DOORS[: hive.doors]
