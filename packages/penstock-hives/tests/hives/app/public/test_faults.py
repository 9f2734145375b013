"""The database, memcached or the broker away: the public is answered, writes wait, all recovers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from penstock.client import connect
from penstock_hives.occupancy.publisher import EXCHANGE
from penstock_hives.public.snapshot import SnapshotCache
from penstock_store import Database, EmbeddedServer, migrate
from penstock_store.cache import MemcachedCache
from tests.databases import grounds_of_its_own
from tests.fixtures import NewPenstock, needed
from tests.hives.app.public.snapshots import document
from tests.hives.app.serving import PATIENCE
from tests.hives.app.sites import furnish, site, until
from tests.store.servers import Memcached

#: What the public reads.
READS = (
    "/",
    "/v1/hives",
    "/v1/hives/1",
    "/v1/hives/1/forecast",
    "/v1/deals",
    "/v1/popular",
    "/v1/live",
)


async def answered(client: httpx.AsyncClient, **headers: str) -> None:
    for path in READS:
        answer = await client.get(path, headers=headers)
        assert (path, answer.status_code) == (path, 200)


async def write(client: httpx.AsyncClient) -> httpx.Response:
    """Idempotent, and everybody's: a deal was opened."""
    return await client.post("/v1/deals/1/events", json={"action": "opened"})


@pytest.fixture(scope="module")
def furnished_server() -> Iterator[EmbeddedServer]:
    with grounds_of_its_own() as folder:
        server = EmbeddedServer(folder / "pg")
        migrate(server.start())
        furnish(server.start())
        yield server
        server.close()


@pytest.fixture
def server(furnished_server: EmbeddedServer) -> EmbeddedServer:
    """A database server to take away; it runs, whatever a test before has done to it."""
    furnished_server.start()
    return furnished_server


def opened(url: str) -> int:
    with Database(url) as database:
        [row] = database.rows("SELECT count(*) AS opened FROM deal_event")
    return int(row["opened"])


async def test_without_the_database_reads_are_answered_and_writes_are_told_to_come_again(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    already = await asyncio.to_thread(opened, server.start())
    async with site(tmp_path, server.start(), refresh=0.2) as client:
        assert (await write(client)).is_success
        given = {"login": f"{uuid4()}@example.org", "password": "a long enough password"}
        session = (await client.post("/v1/identity/sign-up", json=given)).json()
        await asyncio.to_thread(server.close)
        await answered(client)
        await answered(client, authorization=f"Bearer {session['id_token']}")
        refused = await write(client)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
        before = (await client.get("/v1/hives")).headers["x-as-of"]
        await answered(client)

        url = await asyncio.to_thread(server.start)
        async with asyncio.timeout(PATIENCE):
            while not (await write(client)).is_success:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        await until(client, "/v1/hives", lambda answer: answer.headers["x-as-of"] > before)
        assert (
            await asyncio.to_thread(opened, url) == already + 2
        )  # what was accepted, and nothing of what was not


async def test_a_site_that_starts_without_its_database_says_so_until_it_is_there(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    url = server.start()
    await asyncio.to_thread(server.close)
    async with site(tmp_path, url, ready=False) as client:
        assert (await client.get("/")).status_code == 200
        early = await client.get("/v1/hives")
        assert early.status_code == 503
        assert int(early.headers["retry-after"]) > 0
        await asyncio.to_thread(server.start)
        await until(client, "/v1/hives", lambda answer: answer.status_code == 200)


@pytest.mark.peer
async def test_without_memcached_reads_are_answered_and_editions_go_on(
    furnished: str, tmp_path: Path
) -> None:
    memcached = needed(Memcached, tmp_path)
    memcached.start()
    try:
        given = {"cache": memcached.url}
        async with site(tmp_path, furnished, refresh=0.2, application=given) as client:
            await asyncio.to_thread(memcached.kill)
            before = (await client.get("/v1/hives")).headers["x-as-of"]
            await answered(client)
            await until(client, "/v1/hives", lambda answer: answer.headers["x-as-of"] > before)
            await asyncio.to_thread(memcached.start)
            async with MemcachedCache("127.0.0.1", memcached.port) as cache:
                async with asyncio.timeout(PATIENCE):  # it is written to again
                    while await SnapshotCache(cache).latest() is None:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
    finally:
        memcached.kill()


async def test_without_the_broker_reads_are_answered_and_figures_come_when_it_is_back(
    furnished: str, tmp_path: Path, new_penstock: NewPenstock
) -> None:
    broker = new_penstock()
    async with site(tmp_path, furnished, brokers=[broker.url]) as client:
        await until(client, "/health", lambda answer: answer.json()["live"])
        await asyncio.to_thread(broker.kill)
        await answered(client)
        await asyncio.to_thread(broker.start)
        async with asyncio.timeout(PATIENCE):
            version, told = 1, 0
            while told < 44:  # until it listens again, nobody hears
                version += 1
                async with connect(broker.url) as fabric:
                    figure = document(1, version, people=44)
                    await fabric.publish("occupancy.1", figure, exchange=EXCHANGE)
                await asyncio.sleep(0.1)
                told = (await client.get("/v1/hives/1/occupancy")).json()["occupancy"]
        health = (await client.get("/health")).json()
        assert health["figures"] > 0
        assert health["delay_s"]["p95"] is not None
