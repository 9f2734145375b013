"""The historian at a real broker: keeps on request, answers, and loses nothing when it dies."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import aio_pika
import pytest

from penstock import client as fabrics
from penstock.client.padres import PadresClient
from penstock.content import parse_subscription
from penstock_history import STREAM
from penstock_history.archive import PublicationArchive
from penstock_history.historian import Historian
from penstock_history.query import HistoryQuery
from penstock_store import Database
from tests.padres import BROKER, SECONDS, PadresBroker, watching

CONTROL = (
    "[class,eq,'DB_CONTROL'],[command,isPresent,''],[content_spec,isPresent,''],"
    "[database_id,isPresent,'']"
)


@asynccontextmanager
async def historian(padres: PadresBroker, archive: PublicationArchive) -> AsyncIterator[Historian]:
    async with (
        PadresClient(padres.url, id="historian", attentive=True) as client,
        fabrics.connect(padres.server.url) as fabric,
    ):
        found = Historian(client, fabric, archive)
        working = asyncio.create_task(found.run())
        try:
            async with asyncio.timeout(SECONDS):
                await asyncio.wait(
                    [working, asyncio.create_task(found.ready.wait())],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            yield found
            assert not working.done() or working.exception() is None
        finally:
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            if await asyncio.to_thread(true):
                return
            await asyncio.sleep(0.05)


async def entered(archive: PublicationArchive, text: str, count: int) -> list[dict[str, object]]:
    """The archive's answer, once it has so many."""
    query = HistoryQuery(parse_subscription(text))
    async with asyncio.timeout(SECONDS):
        while True:
            found = await asyncio.to_thread(lambda: list(archive.query(query)))
            if len(found) >= count:
                return [dict(one.publication.attributes) for one in found]
            await asyncio.sleep(0.05)


@pytest.fixture
def kind() -> str:
    """A class of this run's own: the broker and its stream are there for all tests, and what one
    keeps is seen by the archive of the next."""
    return f"stock{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def ada(padres: PadresBroker, kind: str) -> AsyncIterator[PadresClient]:
    async with PadresClient(padres.url) as client:
        await client.advertise(f"[class,eq,{kind}],[symbol,isPresent,''],[price,isPresent,0]")
        yield client


async def test_what_is_asked_for_is_kept_from_then_on(
    padres: PadresBroker, archive: PublicationArchive, ada: PadresClient, kind: str
) -> None:
    async with historian(padres, archive):
        await ada.publish(f"[class,{kind}],[symbol,'OLD'],[price,1]")
        await ada.advertise(CONTROL)
        await ada.publish(
            f"[class,'DB_CONTROL'],[command,'STORE'],[database_id,'{BROKER}-DB'],"
            f"[content_spec,\"[class,eq,'{kind}'],[price,<,50]\"]"
        )
        await until(archive.requests)
        for price in (40, 60, 45.5):
            await ada.publish(f"[class,{kind}],[symbol,'IBM'],[price,{price}]", b"quote")

        found = await entered(archive, f"[class,eq,{kind}]", 2)

    assert found == [{"symbol": "IBM", "price": 40}, {"symbol": "IBM", "price": 45.5}]


async def test_a_question_is_answered_with_what_was_kept(
    padres: PadresBroker, archive: PublicationArchive, ada: PadresClient, kind: str
) -> None:
    async with historian(padres, archive) as found, watching(padres.url) as bob:
        await found.store(parse_subscription(f"[class,eq,{kind}]"))
        for price in (10, 20, 30):
            await ada.publish(f"[class,{kind}],[symbol,'ASK'],[price,{price}]", b"%d" % price)
        await entered(archive, f"[class,eq,{kind}],[symbol,eq,'ASK']", 3)
        await bob.client.subscribe(f"[class,eq,{kind}]")
        await bob.client.subscribe(
            f"[class,eq,historic],[subclass,eq,'{kind}'],[_query_id,eq,'q1'],[symbol,eq,'ASK'],"
            "[price,>=,20]"
        )

        async with asyncio.timeout(SECONDS):
            answers = [await bob.client.receive() for _ in range(2)]

        assert [(one["price"], one["_query_id"], one.payload) for one in answers] == [
            (20, "q1", b"20"),
            (30, "q1", b"30"),
        ]
        assert await bob.got() == []  # nor has anybody seen them in the present


async def test_the_past_joins_the_present(
    padres: PadresBroker, archive: PublicationArchive, ada: PadresClient, kind: str
) -> None:
    async with historian(padres, archive) as found, watching(padres.url) as eve:
        await found.store(parse_subscription(f"[class,eq,{kind}]"))
        await ada.publish(f"[class,{kind}],[symbol,'JOIN'],[price,7]")
        await entered(archive, f"[class,eq,{kind}],[symbol,eq,'JOIN']", 1)
        await eve.client.subscribe(
            f"{{{{[class,eq,historic],[subclass,eq,'{kind}'],[_query_id,eq,'q2'],[symbol,eq,$S$who]}}"
            f"&{{[class,eq,{kind}],[symbol,eq,$S$who],[price,>,100]}}}}"
        )
        await ada.publish(f"[class,{kind}],[symbol,'OTHER'],[price,101]")
        await ada.publish(f"[class,{kind}],[symbol,'JOIN'],[price,102]")

        async with asyncio.timeout(SECONDS):
            both = [await eve.client.receive() for _ in range(2)]

    assert {one.class_name for one in both} == {"historic", kind}
    assert {one["symbol"] for one in both} == {"JOIN"}


async def test_what_came_while_it_was_away_is_kept(
    padres: PadresBroker, archive: PublicationArchive, ada: PadresClient, kind: str
) -> None:
    async with historian(padres, archive) as found:
        await found.store(parse_subscription(f"[class,eq,{kind}],[symbol,eq,'AWAY']"))
        await ada.publish(f"[class,{kind}],[symbol,'AWAY'],[price,1]")
        await entered(archive, f"[class,eq,{kind}],[symbol,eq,'AWAY']", 1)
    await ada.publish(f"[class,{kind}],[symbol,'AWAY'],[price,2]")

    async with historian(padres, archive):
        await ada.publish(f"[class,{kind}],[symbol,'AWAY'],[price,3]")
        found_again = await entered(archive, f"[class,eq,{kind}],[symbol,eq,'AWAY']", 3)

    assert [one["price"] for one in found_again] == [1, 2, 3]


async def test_a_question_is_answered_once_even_by_one_that_came_back(
    padres: PadresBroker, archive: PublicationArchive, ada: PadresClient, kind: str
) -> None:
    query = f"[class,eq,historic],[subclass,eq,'{kind}'],[_query_id,eq,'q3'],[symbol,eq,'ONCE']"
    async with watching(padres.url) as cat:
        async with historian(padres, archive) as found:
            await found.store(parse_subscription(f"[class,eq,{kind}],[symbol,eq,'ONCE']"))
            await ada.publish(f"[class,{kind}],[symbol,'ONCE'],[price,1]")
            await entered(archive, f"[class,eq,{kind}],[symbol,eq,'ONCE']", 1)
            subscription = await cat.client.subscribe(query)
            async with asyncio.timeout(SECONDS):
                await cat.client.receive()
            await until(lambda: archive.is_answered(subscription))
        async with historian(padres, archive):
            await ada.publish(f"[class,{kind}],[symbol,'ONCE'],[price,2]")
            await entered(archive, f"[class,eq,{kind}],[symbol,eq,'ONCE']", 2)
            # A question that came later is answered, and the one before was not again.
            await cat.client.subscribe(query.replace("q3", "q4"))
            async with asyncio.timeout(SECONDS):
                later = [await cat.client.receive() for _ in range(2)]

    assert [one["_query_id"] for one in later] == ["q4", "q4"]


async def test_headers_are_kept_as_they_are_routed(
    padres: PadresBroker, archive: PublicationArchive, kind: str
) -> None:
    async with historian(padres, archive) as found:
        await found.store(parse_subscription(f"[class,eq,{kind}]"))
        headers: dict[str, Any] = {"price": Decimal("45.5"), "good": True, "tid": "mine"}
        async with await aio_pika.connect(padres.server.url) as connection:
            exchange = await (await connection.channel()).get_exchange("content")
            said = aio_pika.Message(b"", headers={"class": kind, "two words": 1, **headers})
            await exchange.publish(said, "", mandatory=False)

        archived = await entered(archive, f"[class,eq,{kind}],[price,>,45],[tid,eq,mine]", 1)
    assert archived == [{"price": 45.5, "good": "true", "tid": "mine"}]


async def test_a_publication_that_brings_its_time_is_kept_at_it(
    padres: PadresBroker, archive: PublicationArchive, ada: PadresClient, kind: str
) -> None:
    async with historian(padres, archive) as found:
        await found.store(parse_subscription(f"[class,eq,{kind}]"))
        await ada.publish(f"[class,{kind}],[price,1];Thu Jun 19 17:14:58 GMT 2008;")
        await entered(archive, f"[class,eq,{kind}]", 1)

        (archived,) = archive.query(HistoryQuery(parse_subscription(f"[class,eq,{kind}]")))
    assert (
        archived.time == archived.publication.time == datetime(2008, 6, 19, 17, 14, 58, tzinfo=UTC)
    )
    assert archived.text == f"[class,{kind}],[price,1]"


async def test_nonsense_does_not_stop_it(
    padres: PadresBroker, archive: PublicationArchive, ada: PadresClient, kind: str
) -> None:
    async with historian(padres, archive) as found, watching(padres.url) as dan:
        await found.store(parse_subscription(f"[class,eq,{kind}],[symbol,eq,'FINE']"))
        await ada.advertise(CONTROL)
        for control in (
            "[command,'STORE'],[content_spec,'[class,eq']",
            "[command,'EAT'],[content_spec,'[class,eq,x]']",
            "[command,'STORE']",
        ):
            await ada.publish(f"[class,'DB_CONTROL'],[database_id,'{BROKER}-DB'],{control}")
        await dan.client.subscribe(f"[class,eq,historic],[subclass,eq,'{kind}']")
        await ada.publish(f"[class,{kind}],[symbol,'FINE'],[price,1]")

        assert await entered(archive, f"[class,eq,{kind}],[symbol,eq,'FINE']", 1)


async def test_the_stream_and_the_archive_hold_the_same(
    padres: PadresBroker,
    archive: PublicationArchive,
    database: Database,
    ada: PadresClient,
    kind: str,
) -> None:
    async with historian(padres, archive) as found:
        await found.store(parse_subscription(f"[class,eq,{kind}],[symbol,eq,'SAME']"))
        for price in range(50):
            await ada.publish(f"[class,{kind}],[symbol,'SAME'],[price,{price}]")
        await entered(archive, f"[class,eq,{kind}],[symbol,eq,'SAME']", 50)

    rows = database.rows("SELECT id FROM publication ORDER BY id")
    async with fabrics.connect(padres.server.url) as fabric, fabric.replay(STREAM) as inflow:
        async with asyncio.timeout(SECONDS):
            offsets = [(await inflow.receive()).offset for _ in rows]
    assert [row["id"] for row in rows] == offsets
