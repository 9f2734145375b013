"""An edition of the demonstration's hives, as many as wanted, without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

from penstock_hives.occupancy.models import (
    Forecast,
    ForecastHour,
    Occupancy,
    TypicalHour,
    TypicalWeek,
    UsualOccupancy,
    UsualRelation,
)
from penstock_hives.places.models import (
    HiveAddress,
    HiveDetail,
    HiveSnapshot,
    HiveSummary,
    HiveType,
)
from penstock_hives.public.snapshot import PublicSnapshot
from penstock_hives.sensors.fleet.catalogue import HIVE_TYPES, SimulatedHive, simulated_hives


def edition(count: int) -> PublicSnapshot:
    now = datetime.now(UTC)
    fleet = list(islice(simulated_hives(), count))
    types = tuple(HiveType(n, kind.code, kind.name) for n, kind in enumerate(HIVE_TYPES, 1))
    snapshot = HiveSnapshot(
        now,
        tuple(_summary(hive, now) for hive in fleet),
        tuple(_detail(hive, now) for hive in fleet),
        tuple(_week(hive, now) for hive in fleet),
        tuple(_forecast(hive, now) for hive in fleet),
        (),
        types,
        (),
    )
    return PublicSnapshot(snapshot)


def _occupancy(hive: SimulatedHive, now: datetime) -> Occupancy:
    people = hive.id * 7 % hive.capacity
    percent = round(100 * people / hive.capacity, 1)
    usual = UsualOccupancy(people + 4.0, 6, UsualRelation.QUIETER)
    return Occupancy(hive.id, people, percent, "moderate", "steady", "good", now, 1, usual)


def _address(hive: SimulatedHive) -> HiveAddress:
    where = hive.address
    return HiveAddress(where.street, where.city, where.zip, where.country, where.lat, where.lon)


def _summary(hive: SimulatedHive, now: datetime) -> HiveSummary:
    return HiveSummary(
        id=hive.id,
        name=hive.name,
        type=hive.hive_type.code,
        type_name=hive.hive_type.name,
        capacity=hive.capacity,
        time_zone=hive.time_zone,
        address=_address(hive),
        open_now=True,
        changes_at=None,
        cover=None,
        occupancy=_occupancy(hive, now),
        updated_at=now,
    )


def _detail(hive: SimulatedHive, now: datetime) -> HiveDetail:
    return HiveDetail(
        id=hive.id,
        account_id=1,
        name=hive.name,
        description="",
        type=hive.hive_type.code,
        type_name=hive.hive_type.name,
        capacity=hive.capacity,
        time_zone=hive.time_zone,
        address=_address(hive),
        opening_hours=hive.hive_type.opening_hours,
        open_now=True,
        changes_at=None,
        occupancy=_occupancy(hive, now),
        images=(),
        deals=(),
        updated_at=now,
    )


def _week(hive: SimulatedHive, now: datetime) -> TypicalWeek:
    hours = (TypicalHour(d, h, 12.5, 20.0, 6) for d in range(7) for h in range(24))
    return TypicalWeek(hive.id, now, tuple(hours))


def _forecast(hive: SimulatedHive, now: datetime) -> Forecast:
    begin = now.replace(minute=0, second=0, microsecond=0)
    hours = tuple(ForecastHour(begin + timedelta(hours=h), 11.0, 19.5) for h in range(24))
    return Forecast(hive.id, now.date(), "medians", now, hours, None)
