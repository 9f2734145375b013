"""The feed: figures from the exchange `occupancy`, whatever becomes of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from penstock.client import connect
from penstock.core.retry import RetryPolicy
from penstock_hives.live.subscriber import OccupancySubscriber
from penstock_hives.occupancy.publisher import EXCHANGE
from tests.fixtures import NewPenstock
from tests.hives.app.serving import PATIENCE
from tests.peers import Penstock, free_port


@asynccontextmanager
async def listening(*urls: str) -> AsyncIterator[tuple[OccupancySubscriber, asyncio.Queue[Any]]]:
    heard: asyncio.Queue[Any] = asyncio.Queue()
    feed = OccupancySubscriber(urls, heard.put_nowait, retry=RetryPolicy(0.1, 0.2))
    running = asyncio.create_task(feed.run())
    try:
        await asyncio.wait_for(feed.subscribed.wait(), PATIENCE)
        yield feed, heard
    finally:
        running.cancel()
        await asyncio.wait({running})


async def tell(url: str, *bodies: Any) -> None:
    async with connect(url) as fabric:
        for body in bodies:
            await fabric.publish("occupancy.7", body, exchange=EXCHANGE)


async def test_figures_are_heard_as_they_are_published(penstock: Penstock) -> None:
    async with listening(penstock.url) as (_, heard):
        await tell(penstock.url, {"hive": 7, "version": 3, "occupancy": 31})
        figure = await asyncio.wait_for(heard.get(), PATIENCE)
    assert (figure["hive"], figure["occupancy"]) == (7, 31)


async def test_what_is_no_figure_is_counted_and_passed_over(penstock: Penstock) -> None:
    async with listening(penstock.url) as (feed, heard):
        await tell(penstock.url, "nonsense", {"hive": "x", "version": 1}, {"hive": 7, "version": 4})
        assert (await asyncio.wait_for(heard.get(), PATIENCE))["version"] == 4
        assert feed.refused == 2


async def test_a_broker_that_is_not_there_gives_way_to_the_next(penstock: Penstock) -> None:
    nobody = f"amqp://guest:guest@127.0.0.1:{free_port()}/%2F"
    async with listening(nobody, penstock.url) as (_, heard):
        await tell(penstock.url, {"hive": 7, "version": 5})
        assert (await asyncio.wait_for(heard.get(), PATIENCE))["version"] == 5


async def test_figures_are_heard_again_when_the_broker_is_back(new_penstock: NewPenstock) -> None:
    broker = new_penstock()
    async with listening(broker.url) as (_, heard):
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        async with asyncio.timeout(PATIENCE):
            version = 0
            while heard.empty():  # until the subscription is there again, nobody listens
                version += 1
                await tell(broker.url, {"hive": 7, "version": version})
                await asyncio.sleep(0.1)
