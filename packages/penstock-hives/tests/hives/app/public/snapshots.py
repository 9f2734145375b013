"""Editions to show in tests: a few hives, one of them never heard of, or as many as are wanted."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from penstock_hives.billing.models import SubscriptionPlan
from penstock_hives.deals.models import Deal
from penstock_hives.occupancy.models import (
    Forecast,
    ForecastHour,
    Occupancy,
    TypicalHour,
    TypicalWeek,
)
from penstock_hives.places.models import (
    HiveAddress,
    HiveDetail,
    HiveSnapshot,
    HiveSummary,
    HiveType,
)
from penstock_hives.public.snapshot import PublicSnapshot

#: A Sunday noon in London.
NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
HOURS = {day: [["08:00", "22:00"]] for day in ("mon", "tue", "wed", "thu", "fri", "sat", "sun")}


def occupancy(hive: int, version: int = 1, people: int = 20) -> Occupancy:
    return Occupancy(hive, people, people / 2, "quiet", "steady", "good", NOON, version)


def document(hive: int, version: int, people: int = 44, **given: Any) -> dict[str, Any]:
    """As the pipeline publishes it."""
    usual = {"percent": people / 2, "level": "busy", "trend": "rising", "quality": "good"}
    told = {"hive": hive, "occupancy": people, "as_of": "2026-11-15T12:01:00Z", "version": version}
    return {**told, **usual, **given}


def snapshot(hives: int = 3, as_of: datetime = NOON, version: int = 1) -> HiveSnapshot:
    """The last of the hives was never heard of."""
    numbers = range(1, hives + 1)
    heard = {n: occupancy(n, version) if n < hives else None for n in numbers}
    deals = {n: _deal(n) for n in numbers if n % 2}
    return HiveSnapshot(
        as_of,
        tuple(_summary(n, heard[n]) for n in numbers),
        tuple(_detail(n, heard[n], deals.get(n)) for n in numbers),
        tuple(_week(n) for n in numbers),
        tuple(_forecast(n) for n in numbers),
        (),
        (HiveType(1, "cafe", "Café"), HiveType(2, "bar", "Bar")),
        tuple(deals.values()),
    )


def edition(hives: int = 3, as_of: datetime = NOON, version: int = 1) -> PublicSnapshot:
    free = SubscriptionPlan("free", "Free", Decimal(0), "EUR", "month", "user", ())
    return PublicSnapshot(snapshot(hives, as_of, version), (free,))


def _address(n: int) -> HiveAddress:
    return HiveAddress(
        f"Marchmont Street {n}", "London", f"WC1{n % 10}", "GB", 51.5 + n / 1000, -0.12
    )


def _summary(n: int, heard: Occupancy | None) -> HiveSummary:
    return HiveSummary(
        id=n,
        name=f"Amber {n}",
        type="cafe" if n % 2 else "bar",
        type_name="Café" if n % 2 else "Bar",
        capacity=40,
        time_zone="Europe/London",
        address=_address(n),
        open_now=True,
        changes_at=None,
        cover=None,
        occupancy=heard,
        updated_at=NOON,
    )


def _detail(n: int, heard: Occupancy | None, deal: Deal | None) -> HiveDetail:
    return HiveDetail(
        id=n,
        account_id=1,
        name=f"Amber {n}",
        description="Coffee, and a garden behind the house.",
        type="cafe" if n % 2 else "bar",
        type_name="Café" if n % 2 else "Bar",
        capacity=40,
        time_zone="Europe/London",
        address=_address(n),
        opening_hours=HOURS,
        open_now=True,
        changes_at=None,
        occupancy=heard,
        images=(),
        deals=(deal,) if deal else (),
        updated_at=NOON,
    )


def _week(n: int) -> TypicalWeek:
    hours = [
        TypicalHour(weekday, hour, max(0.0, 30.0 - 4 * abs(hour - 13)), 20.0, 6)
        for weekday in range(7)
        for hour in range(8, 22)
    ]
    return TypicalWeek(n, NOON, tuple(hours))


def _forecast(n: int) -> Forecast:
    begin = NOON.replace(hour=8)
    hours = [ForecastHour(begin + timedelta(hours=h), 10.0 + h, 16.0 + h) for h in range(14)]
    return Forecast(n, date(2026, 11, 15), "medians", NOON, tuple(hours), None)


def _deal(n: int) -> Deal:
    return Deal(
        id=n * 10,
        hive_id=n,
        hive_name=f"Amber {n}",
        time_zone="Europe/Berlin",
        title="Two for one until three",
        description="Any filter coffee.",
        terms="While it is quiet.",
        kind="discount",
        starts_at=NOON - timedelta(hours=2),
        expires_at=NOON + timedelta(hours=3),
        status="published",
        max_redemptions=None,
        redemptions=0,
        updated_at=NOON,
    )
