"""The past of one broker asked about at another, in an overlay with a cycle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from penstock import client as fabrics
from penstock.client.padres import PadresClient
from penstock.content import parse_subscription
from penstock.core.config import BrokerSettings, OverlaySettings
from penstock.server import Broker
from penstock_history.archive import PublicationArchive
from penstock_history.historian import Historian
from penstock_history.query import HistoryQuery
from tests.overlay.house import TRUST, allow_links, becomes, up
from tests.padres import SECONDS, watching

QUESTION = (
    "[class,eq,historic],[subclass,eq,'stock'],[_query_id,eq,'{id}'],[symbol,isPresent,''],"
    "[price,<,50]"
)
JOINED = (
    "{{{{[class,eq,historic],[subclass,eq,'stock'],[_query_id,eq,'joined'],[symbol,eq,$S$x]}}"
    "&{{[class,eq,stock],[symbol,eq,$S$x],[price,>,100]}}}}"
)


@pytest.fixture
async def triangle(tmp_path: Path) -> AsyncIterator[list[Broker]]:
    """B1, B2 and B3, each linked to both others."""
    async with AsyncExitStack() as stack:
        brokers: list[Broker] = []
        for name in ("B1", "B2", "B3"):
            neighbours = [f"{one.addresses[0]}/{one.settings.overlay.id}" for one in brokers]
            overlay = OverlaySettings(
                id=name, neighbours=neighbours, cycles="FIXED", retry_pause=0.05, **TRUST
            )
            listen = ["padres://127.0.0.1:0", "amqp://127.0.0.1:0"]
            settings = BrokerSettings(listen=listen, overlay=overlay, drain_seconds=0.2)
            allow_links(tmp_path / name)
            broker = Broker(settings, data=tmp_path / name)
            brokers.append(await stack.enter_async_context(broker))
        names = {one.settings.overlay.id for one in brokers}
        await becomes(lambda: all(up(one, *names - {one.settings.overlay.id}) for one in brokers))
        yield brokers


async def test_the_past_is_asked_and_joined_at_any_broker(
    triangle: list[Broker], archive: PublicationArchive
) -> None:
    first, second, third = (one.addresses[0] for one in triangle)
    async with (
        PadresClient(first, id="historian", attentive=True) as client,
        fabrics.connect(triangle[0].addresses[1]) as fabric,
        PadresClient(second) as publisher,
        watching(third) as asking,
        watching(third) as present,
        asyncio.timeout(SECONDS),
    ):
        historian = Historian(client, fabric, archive)
        working = asyncio.create_task(historian.run())
        await historian.ready.wait()
        await publisher.advertise("[class,eq,stock],[symbol,isPresent,''],[price,isPresent,0]")
        await historian.store(parse_subscription("[class,eq,stock]"))
        await present.client.subscribe("[class,eq,stock],[price,<,50]")
        await _wanted_at_the_publisher(triangle[1], 2)
        for price in (40, 60, 45):
            await publisher.publish(f"[class,stock],[symbol,'IBM'],[price,{price}]")
        await _entered(archive, 3)
        await asking.client.subscribe(QUESTION.format(id="q1"))
        answers = [await asking.client.receive() for _ in range(2)]
        assert {one["price"] for one in answers} == {40, 45}
        assert {one["_query_id"] for one in answers} == {"q1"}

        await asking.client.subscribe(JOINED.format())
        await _wanted_at_the_publisher(triangle[1], 3)
        await publisher.publish("[class,stock],[symbol,'IBM'],[price,150]")
        joined: set[object] = set()  # the present comes again with each answer that is late
        while joined != {40, 45, 60, 150}:
            joined.add((await asking.client.receive())["price"])

        assert [one["price"] for one in await present.got()] == [40, 45]  # and nothing of the past
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working


async def _wanted_at_the_publisher(broker: Broker, count: int) -> None:
    """So many subscriptions to stocks have come from elsewhere."""
    tables = broker.overlay.routing("/").tables
    await becomes(
        lambda: (
            len(
                {
                    one.id
                    for one in tables.subscriptions.values()
                    if one.message.class_name == "stock"
                }
            )
            == count
        )
    )


async def _entered(archive: PublicationArchive, count: int) -> None:
    query = HistoryQuery(parse_subscription("[class,eq,stock]"))
    while len(await asyncio.to_thread(lambda: list(archive.query(query)))) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
