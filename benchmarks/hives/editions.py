"""An edition of the demonstration's hives, as many as wanted, without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

from penstock.hives.app.domain.hives import Address, HiveDetail, HiveSummary, HiveType, Snapshot
from penstock.hives.app.domain.occupancy import (
    Forecast,
    ForecastHour,
    Occupancy,
    Relation,
    TypicalHour,
    TypicalWeek,
    Usual,
)
from penstock.hives.app.public.editions import Edition
from penstock.hives.sensors.fleet.catalogue import Hive, hives
from penstock.hives.sensors.fleet.hive_types import HIVE_TYPES


def edition(count: int) -> Edition:
    now = datetime.now(UTC)
    fleet = list(islice(hives(), count))
    types = tuple(HiveType(n, kind.code, kind.name) for n, kind in enumerate(HIVE_TYPES, 1))
    snapshot = Snapshot(
        now,
        tuple(_summary(hive, now) for hive in fleet),
        tuple(_detail(hive, now) for hive in fleet),
        tuple(_week(hive, now) for hive in fleet),
        tuple(_forecast(hive, now) for hive in fleet),
        types,
        (),
    )
    return Edition(snapshot)


def _occupancy(hive: Hive, now: datetime) -> Occupancy:
    people = hive.id * 7 % hive.capacity
    percent = round(100 * people / hive.capacity, 1)
    usual = Usual(people + 4.0, 6, Relation.QUIETER)
    return Occupancy(hive.id, people, percent, "moderate", "steady", "good", now, 1, usual)


def _address(hive: Hive) -> Address:
    where = hive.address
    return Address(where.street, where.city, where.zip, where.country, where.lat, where.lon)


def _summary(hive: Hive, now: datetime) -> HiveSummary:
    return HiveSummary(
        id=hive.id,
        name=hive.name,
        type=hive.hive_type.code,
        type_name=hive.hive_type.name,
        capacity=hive.capacity,
        time_zone=hive.time_zone,
        address=_address(hive),
        open_now=True,
        cover=None,
        occupancy=_occupancy(hive, now),
        updated_at=now,
    )


def _detail(hive: Hive, now: datetime) -> HiveDetail:
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


def _week(hive: Hive, now: datetime) -> TypicalWeek:
    hours = (TypicalHour(d, h, 12.5, 20.0, 6) for d in range(7) for h in range(24))
    return TypicalWeek(hive.id, now, tuple(hours))


def _forecast(hive: Hive, now: datetime) -> Forecast:
    begin = now.replace(minute=0, second=0, microsecond=0)
    hours = tuple(ForecastHour(begin + timedelta(hours=h), 11.0, 19.5) for h in range(24))
    return Forecast(hive.id, now.date(), "medians", now, hours, None)
