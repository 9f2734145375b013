"""A small town for tests of alerts and pushes: an account, its hives, people and what they want."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from penstock_hives.alerts.matcher import OccupancyReport
from penstock_hives.database import DatabasePool

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)

_TOWN = """
    INSERT INTO account (id, name) VALUES (1, 'Bees Ltd');
    INSERT INTO hive_type (id, code, name) VALUES (1, 'cafe', 'Café'), (2, 'bar', 'Bar');
    INSERT INTO address (id, lat, lon) VALUES (1, 52.52, 13.40), (2, 48.85, 2.35);
    INSERT INTO hive (id, account_id, address_id, hive_type_id, name, capacity, time_zone)
    VALUES (1, 1, 1, 1, 'The Comb', 100, 'Europe/Berlin'),
           (2, 1, 2, 2, 'Nectar', 50, 'Europe/Paris');
    INSERT INTO app_user (id, firebase_uid, time_zone)
    VALUES (1, 'ada', 'UTC'), (2, 'bob', 'America/New_York'), (3, 'cy', 'UTC');
"""


async def settle_town(pool: DatabasePool) -> None:
    await pool.execute(_TOWN)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def passes(self, **units: float) -> None:
        self.now += timedelta(**units)


def figure(
    percent: float, version: int, hive: int = 1, quality: str = "good", at: datetime = NOW
) -> OccupancyReport:
    return OccupancyReport(hive, int(percent), percent, "busy", quality, at, version)


async def define(pool: DatabasePool, number: int, user: int = 1, **facts: Any) -> None:
    """A definition; by default that hive 1 is 80 % full or more."""
    told: dict[str, Any] = {
        "id": number,
        "user_id": user,
        "hive_id": 1,
        "kind": "occupancy_above",
        "threshold": 80,
        "unit": "percent",
        "hysteresis": 5,
        "cooldown_s": 0,
        **facts,
    }
    names = ", ".join(told)
    values = ", ".join(f"%({name})s" for name in told)
    await pool.execute(f"INSERT INTO user_notification_def ({names}) VALUES ({values})", told)


async def offer(pool: DatabasePool, number: int, hive: int = 1, **facts: Any) -> None:
    """A deal that began an hour ago and ends in two days."""
    told: dict[str, Any] = {
        "id": number,
        "hive_id": hive,
        "title": "Two for one",
        "kind": "discount",
        "starts_at": NOW - timedelta(hours=1),
        "expires_at": NOW + timedelta(days=2),
        **facts,
    }
    names = ", ".join(told)
    values = ", ".join(f"%({name})s" for name in told)
    await pool.execute(f"INSERT INTO deal ({names}) VALUES ({values})", told)


async def notes(pool: DatabasePool) -> list[tuple[int, str, str]]:
    """Who has been told what."""
    rows = await pool.rows("SELECT user_id, title, body FROM notification ORDER BY user_id, id")
    return [(row["user_id"], row["title"], row["body"]) for row in rows]
