"""From a figure at the broker, and a change in the database, to a push on a device."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.client import connect
from penstock_hives.alerts.worker import AlertWorker, open_alert_worker
from penstock_hives.database import DatabasePool
from penstock_hives.push.models import PushMessage, PushOutcome, PushStatus
from penstock_hives.push.settings import PushSettings
from tests.hives.app.alerts.given import define, offer
from tests.peers import Penstock

PATIENCE = 60.0


class Phone:
    """A channel to a phone that shows what it got."""

    def __init__(self) -> None:
        self.shown: asyncio.Queue[str] = asyncio.Queue()

    async def send(self, push: PushMessage) -> PushOutcome:
        self.shown.put_nowait(push.title)
        return PushOutcome(PushStatus.SENT)

    async def close(self) -> None: ...

    async def next(self) -> str:
        return await asyncio.wait_for(self.shown.get(), PATIENCE)


@pytest.fixture
async def phone(pool: DatabasePool) -> Phone:
    await pool.execute(
        "INSERT INTO push_endpoint (user_id, kind, address) VALUES (1, 'fcm', 'phone')"
    )
    return Phone()


@asynccontextmanager
async def watching(
    pool: DatabasePool, brokers: list[str], phone: Phone, folder: Path
) -> AsyncIterator[AlertWorker]:
    settings = PushSettings(vapid_key=folder / "vapid.pem")
    async with open_alert_worker(pool.url, brokers, settings, channels={"fcm": phone}) as watch:
        running = asyncio.create_task(watch.run())
        try:
            await asyncio.wait_for(watch.ready.wait(), PATIENCE)
            yield watch
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def document(percent: float, version: int) -> str:
    return json.dumps(
        {
            "hive": 1,
            "occupancy": int(percent),
            "percent": percent,
            "level": "busy",
            "trend": "rising",
            "quality": "good",
            "as_of": datetime.now(UTC).isoformat(),
            "version": version,
        }
    )


async def test_a_figure_at_the_broker_becomes_a_push(
    pool: DatabasePool, phone: Phone, penstock: Penstock, tmp_path: Path
) -> None:
    await define(pool, 1)
    async with watching(pool, [penstock.url], phone, tmp_path), connect(penstock.url) as fabric:
        version = 0
        while phone.shown.empty():  # until the subscription is there somebody has to go on
            version += 1
            await fabric.publish("occupancy.1", document(90, version), exchange="occupancy")
            await asyncio.sleep(0.05)
        assert await phone.next() == "The Comb is filling up"


async def test_a_definition_made_just_now_counts_at_once(
    pool: DatabasePool, phone: Phone, penstock: Penstock, tmp_path: Path
) -> None:
    async with watching(pool, [penstock.url], phone, tmp_path), connect(penstock.url) as fabric:
        await define(pool, 5, kind="occupancy_below", threshold=20)
        version = 0
        while phone.shown.empty():
            version += 1
            await fabric.publish("occupancy.1", document(10, version), exchange="occupancy")
            await asyncio.sleep(0.05)
        assert await phone.next() == "The Comb has room"


async def test_a_deal_published_just_now_is_told_at_once(
    pool: DatabasePool, phone: Phone, tmp_path: Path
) -> None:
    await define(pool, 1, kind="deal_new", threshold=None, unit=None)
    async with watching(pool, [], phone, tmp_path):
        now = datetime.now(UTC)
        await offer(pool, 9, starts_at=now.replace(year=now.year - 1), expires_at="2999-01-01")
        assert await phone.next() == "New at The Comb"


async def test_a_favourite_made_just_now_is_followed(
    pool: DatabasePool, phone: Phone, tmp_path: Path
) -> None:
    await define(pool, 1, kind="favourite_deal", hive_id=None, threshold=None, unit=None)
    async with watching(pool, [], phone, tmp_path):
        await pool.execute(
            "INSERT INTO user_hive (user_id, hive_id, favourite) VALUES (1, 1, true)"
        )
        await offer(pool, 9, starts_at="2020-01-01", expires_at="2999-01-01")
        assert await phone.next() == "New at The Comb"


async def test_a_broken_connection_to_the_database_is_made_anew(
    pool: DatabasePool, phone: Phone, tmp_path: Path
) -> None:
    await define(pool, 1, kind="deal_new", threshold=None, unit=None)
    async with watching(pool, [], phone, tmp_path):
        await pool.execute("""
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()
        """)
        await offer(pool, 9, starts_at="2020-01-01", expires_at="2999-01-01")
        assert await phone.next() == "New at The Comb"
