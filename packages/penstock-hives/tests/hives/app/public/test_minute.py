"""A whole minute without database, cache and broker, all at once: what people see of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from penstock.client import connect
from penstock_hives.occupancy.publisher import EXCHANGE
from penstock_store import Database, EmbeddedServer, migrate
from tests.databases import grounds_of_its_own
from tests.fixtures import NewPenstock, needed
from tests.hives.app.public.snapshots import document
from tests.hives.app.public.test_faults import READS
from tests.hives.app.serving import PATIENCE
from tests.hives.app.sites import furnish, site, until
from tests.store.servers import Memcached

AWAY_SECONDS = 60.0


class Visitor:
    """Looks around, and opens a deal, with the same key until it is told that it was done."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.refused = 0

    async def open_deal(self, turn: int) -> bool:
        answer = await self._client.post(
            "/v1/deals/1/events",
            json={"action": "opened"},
            headers={"Idempotency-Key": f"visit-{turn}"},
        )
        if answer.is_success:
            return True
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        self.refused += 1
        return False

    async def looked(self) -> None:
        for path in READS:
            answer = await self._client.get(path)
            assert (path, answer.status_code) == (path, 200)


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.timeout(900)
async def test_pages_answer_writes_wait_nothing_is_lost_and_all_of_it_recovers(
    tmp_path: Path, new_penstock: NewPenstock
) -> None:
    memcached, broker = needed(Memcached, tmp_path), new_penstock()
    memcached.start()
    with grounds_of_its_own() as folder:
        server = EmbeddedServer(folder / "pg")
        url = await asyncio.to_thread(_prepared, server)
        given = {"cache": memcached.url, "rate_counts": str(tmp_path / "requests")}
        try:
            async with site(
                tmp_path, url, refresh=1.0, brokers=[broker.url], application=given
            ) as client:
                visitor = Visitor(client)
                assert await visitor.open_deal(0)
                await until(client, "/health", lambda answer: answer.json()["live"])

                for take_away in (server.close, memcached.kill, broker.kill):
                    await asyncio.to_thread(take_away)
                await _minute(visitor)
                assert visitor.refused > 5
                before = (await client.get("/v1/hives")).headers["x-as-of"]

                for bring_back in (broker.start, memcached.start, server.start):
                    await asyncio.to_thread(bring_back)
                async with asyncio.timeout(PATIENCE):
                    while not await visitor.open_deal(1):  # noqa: ASYNC110 - another process
                        await asyncio.sleep(0.2)
                assert await visitor.open_deal(1)  # the same again is answered, and not done again
                await until(client, "/v1/hives", lambda answer: answer.headers["x-as-of"] > before)
                await _hears_again(client, broker.url)
            with Database(url) as database:
                [row] = database.rows("SELECT count(*) AS opened FROM deal_event")
            assert row["opened"] == 2
        finally:
            memcached.kill()
            await asyncio.to_thread(server.close)


def _prepared(server: EmbeddedServer) -> str:
    url = server.start()
    migrate(url)
    furnish(url)
    return url


async def _minute(visitor: Visitor) -> None:
    loop = asyncio.get_running_loop()
    until_then = loop.time() + AWAY_SECONDS
    while loop.time() < until_then:
        await visitor.looked()
        assert not await visitor.open_deal(1)
        await asyncio.sleep(1.0)


async def _hears_again(client: httpx.AsyncClient, broker: str) -> None:
    async with asyncio.timeout(PATIENCE):
        version, told = 1, 0
        while told < 44:  # until it listens again, nobody hears
            version += 1
            async with connect(broker) as fabric:
                figure = document(1, version, people=44)
                await fabric.publish("occupancy.1", figure, exchange=EXCHANGE)
            await asyncio.sleep(0.2)
            told = (await client.get("/v1/hives/1/occupancy")).json()["occupancy"]
