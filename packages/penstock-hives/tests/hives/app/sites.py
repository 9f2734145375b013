"""The whole site for tests: a database with the demonstration's hives, served as a worker does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import httpx

from penstock_hives.places.models import WEEKDAYS
from penstock_hives.sensors import catalogue_writer
from penstock_hives.sensors.fleet.catalogue import simulated_hives
from penstock_hives.server.application import application
from penstock_store import Database
from tests.hives.app.serving import PATIENCE, served

HIVES = 6
CLOSED = 6


def furnish(url: str, count: int = HIVES, zone: str | None = None) -> None:
    """Hives that were heard of, but for the last; habits, a forecast and deals of the first.

    Their clocks are those of their towns, and they are always open, but for `CLOSED`, which opens
    on another day. With a `zone`, their clocks are all of it, and they open as those of the fleet.
    """
    now = datetime.now(UTC).replace(microsecond=0)
    hour = now.replace(minute=0, second=0)
    fleet = list(islice(simulated_hives(), count))
    with Database(url) as database, database.transaction() as connection:
        catalogue_writer.write_catalogue(database, fleet, [])
        if zone is not None:
            connection.execute("UPDATE hive SET time_zone = %s", (zone,))
        else:
            always = {day: [["00:00", "24:00"]] for day in WEEKDAYS}
            connection.execute("UPDATE hive SET opening_hours = %s", (json.dumps(always),))
            hours: dict[str, list[list[str]]] = {day: [["08:30", "18:00"]] for day in WEEKDAYS}
            hours |= {str(now.date() + timedelta(days=n)): [] for n in range(-2, 3)}
            connection.execute(
                "UPDATE hive SET opening_hours = %s WHERE id = %s", (json.dumps(hours), CLOSED)
            )
        for hive in fleet[:-1]:
            people = 4 * hive.id**2 % hive.capacity
            percent = 100 * people / hive.capacity
            connection.execute(
                """
                INSERT INTO hive_status
                    (hive_id, occupancy, raw_occupancy, percent, level, quality, as_of, version)
                VALUES (%s, %s, %s, %s, %s, 'good', %s, 1)
                """,
                (hive.id, people, people, percent, level(percent), now),
            )
        connection.execute(
            """
            INSERT INTO typical_week
            SELECT hive, weekday, hour, greatest(0, 40 - 5 * abs(hour - 13)),
                greatest(1, 26 - 3 * abs(hour - 14) + 2 * (weekday / 4)), 6, %s
            FROM generate_series(1, %s) hive, generate_series(0, 6) weekday,
                generate_series(7, 22) hour
            """,
            (now, count),
        )
        connection.execute(
            """
            INSERT INTO forecast (hive_id, slot, model, made_at, p50, p90)
            SELECT h.id, slot, 'medians', %(now)s, p50, 1.3 * p50 + 3
            FROM hive h, generate_series(-26, 26) n,
                LATERAL (SELECT %(hour)s + n * interval '1 hour' AS slot) AS at,
                LATERAL (SELECT greatest(1.0, 36 - 4.4 * abs(extract(hour FROM slot
                    AT TIME ZONE h.time_zone) - 12.6)) AS p50) AS expected
            """,
            {"hour": hour, "now": now},
        )
        connection.execute(
            """
            INSERT INTO deal
                (hive_id, title, description, terms, kind, starts_at, expires_at, status)
            SELECT hive, 'Two for one', 'Any filter coffee.', 'While it is quiet.', 'discount',
                %(begin)s, %(end)s, 'published'
            FROM generate_series(1, 2) hive
            """,
            {"begin": now - timedelta(hours=1), "end": now + timedelta(hours=5)},
        )
        connection.execute(
            """
            INSERT INTO hive_popularity (day, window_days, hive_id, views, searches, favourites,
                                         visits, score, rank, made_at)
            SELECT %(now)s::date - 1, days, hive, 90 - hive, 12 * hive, 3, 40 * days, 9 - hive,
                hive, %(now)s
            FROM generate_series(1, least(3, %(count)s)) hive, unnest(ARRAY[1, 7, 30]) days
            """,
            {"now": now, "count": count},
        )


def level(percent: float) -> str:
    bounds = ((40, "quiet"), (70, "moderate"), (95, "busy"))
    return next((name for bound, name in bounds if percent < bound), "full")


@asynccontextmanager
async def site(folder: Path, database: str, **given: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a site that shows its first edition, or has none to show."""
    own = given.pop("application", {})
    ready = given.pop("ready", True)
    options = {
        "application": {
            "database": database,
            "images": str(folder / "images"),
            "rate_anonymous": 10_000.0,
            "rate_known": 10_000.0,
            "pool_wait": 1.0,
            **own,
        },
        "identity": {"folder": str(folder / "identity")},
        "pictures": str(folder / "pictures"),
        "retry": 0.1,
        "catch_up": 0.1,
        **given,
    }
    draining = asyncio.Event()
    async with (
        application(options, draining) as app,
        served(app, draining) as url,
        httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        if ready:
            await until(client, "/health", lambda answer: answer.status_code == 200)
        yield client


async def until(client: httpx.AsyncClient, path: str, true: Any, **given: Any) -> httpx.Response:
    """The first answer of which it is true."""
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await client.get(path, **given)
            if true(answer):
                return answer
            await asyncio.sleep(0.05)
