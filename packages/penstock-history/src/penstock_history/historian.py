"""The historian: stores publications on request, and answers queries about the past.

It is a client of the overlay that is notified of subscriptions which intersect its advertisements.
Publications of class `DB_CONTROL` request what to store. Subscriptions to class `historic` are
queries; each is answered once, by publications. A new subscription is a new query.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count, islice
from typing import Final, TypeVar

from penstock.client import Fabric, MessageReceiver
from penstock.client.message import ReceivedMessage
from penstock.client.padres import PadresClient, ReceivedPublication, SubscriptionNotice
from penstock.content import (
    LanguageError,
    Publication,
    Subscription,
    format_message,
    parse_subscription,
)
from penstock.content.advertisement_inference import AdvertisementInference
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.core.retry import RetryPolicy, retry_async
from penstock_history import EXCHANGE, STREAM
from penstock_history.archive import PublicationArchive
from penstock_history.publication import ArchivedPublication, decode_publication
from penstock_history.query import (
    QUERY_ID_ATTRIBUTE,
    HistoryQuery,
    answer_publication,
    parse_query,
    sample_publication,
)

CONTROL_CLASS: Final = "DB_CONTROL"
STORE_COMMAND: Final = "STORE"
#: Ends a request, which PADRES cannot; stored publications stay.
DISCARD_COMMAND: Final = "DISCARD"
#: Results that are published at a time.
_RESULT_BATCH: Final = 200
#: A batch of the stream ends with so many messages, or with a pause.
BATCH_MESSAGES: Final = 500
PAUSE_SECONDS: Final = 0.05
#: While the database is unavailable.
_RETRY: Final = RetryPolicy.fixed(1.0)

_T = TypeVar("_T")
_log = get_logger("penstock.history")


class Historian:
    def __init__(
        self,
        client: PadresClient,
        fabric: Fabric,
        archive: PublicationArchive,
        *,
        exchange: str = EXCHANGE,
    ) -> None:
        """The client receives notices of subscriptions, from the same broker as the fabric."""
        self._client = client
        self._fabric = fabric
        self._archive = archive
        self._exchange = exchange
        self._advertisements = ResultAdvertisements(client)
        self._archiver = StreamArchiver(fabric, archive, STREAM, self._on_insert)
        self._changed = asyncio.Event()
        self._queries: dict[str, asyncio.Task[None]] = {}
        self.database_id = f"{next(iter(client.brokers))}-DB"
        self.ready = asyncio.Event()  #: requests and queries are received

    async def run(self) -> None:
        """Until cancelled."""
        await self._bind(await asyncio.to_thread(self._archive.requests))
        self._advertisements.add_attributes(await asyncio.to_thread(self._archive.attributes))
        await self._advertisements.flush()
        await self._client.subscribe(
            f"[class,eq,'{CONTROL_CLASS}'],[database_id,eq,'{self.database_id}']"
        )
        self.ready.set()
        _log.info("historian ready", database=self.database_id)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._archiver.run())
            group.create_task(self._advertise_changes())
            group.create_task(self._handle_subscriptions(group))
            async for received in self._client:
                await self._control(received)

    async def _control(self, received: ReceivedPublication) -> None:
        try:
            command, text = received["command"], str(received["content_spec"])
            spec = parse_subscription(text, several=True)
        except (LanguageError, KeyError) as error:
            _log.warning("invalid request", request=received.text, error=str(error))
            return
        if command == STORE_COMMAND:
            await self.store(spec)
        elif command == DISCARD_COMMAND:
            await self.discard(spec)
        else:
            _log.warning("unknown command", command=str(command))

    async def store(self, spec: Subscription) -> None:
        """Stores publications that satisfy the subscription, from now on."""
        text = format_message(spec)
        await self._bind([text])  # before the request is stored, which is bound again at a start
        await asyncio.to_thread(self._archive.add_request, text, spec.class_name)
        self._advertisements.add([sample_publication(spec)])
        await self._advertisements.flush()
        _log.info("request added", content=text)

    async def discard(self, spec: Subscription) -> None:
        text = format_message(spec)
        await asyncio.to_thread(self._archive.remove_request, text)
        async with await self._fabric.amqp.channel() as channel:
            await channel.unbind(STREAM, self._exchange, arguments={"x-subscription": text})
        _log.info("request removed", content=text)

    async def _bind(self, specs: list[str]) -> None:
        async with await self._fabric.amqp.channel() as channel:
            await channel.declare_exchange(self._exchange, "x-content")
            await channel.declare_queue(STREAM, arguments={"x-queue-type": "stream"})
            for text in specs:
                await channel.bind(STREAM, self._exchange, arguments={"x-subscription": text})

    def _on_insert(self, batch: list[ArchivedPublication]) -> None:
        self._advertisements.add(sample_publication(archived.publication) for archived in batch)
        self._changed.set()

    async def _advertise_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._advertisements.flush()

    async def _handle_subscriptions(self, group: asyncio.TaskGroup) -> None:
        async for notice in self._client.interests:
            task = self._queries.get(notice.id)
            if notice.withdrawn:
                if task is not None:
                    task.cancel()
                await asyncio.to_thread(self._archive.unmark_answered, notice.id)
            elif task is None:
                self._queries[notice.id] = group.create_task(self._answer(notice))

    async def _answer(self, notice: SubscriptionNotice) -> None:
        try:
            query = parse_query(parse_subscription(notice.text, several=True))
            if query is None or await asyncio.to_thread(self._archive.is_answered, notice.id):
                return
            published = await self._publish_results(query)
            await asyncio.to_thread(self._archive.mark_answered, notice.id)
            _log.info("query answered", query=notice.text, publications=published)
        except PenstockError as error:
            _log.warning("query failed", query=notice.text, error=str(error))
        finally:
            del self._queries[notice.id]

    async def _publish_results(self, query: HistoryQuery) -> int:
        published = 0
        pages = _ResultPages(self._archive.query(query))
        try:
            while page := await asyncio.to_thread(pages.next):
                published += len(page)
                confirmations = [
                    await self._client.post(
                        format_message(answer_publication(query, archived.publication)),
                        archived.payload,
                    )
                    for archived in page
                ]
                await asyncio.gather(*confirmations)
        finally:
            await asyncio.to_thread(pages.close)  # waits for a running fetch
        return published


class _ResultPages:
    """Rows of a query in pages, each fetched in any thread."""

    def __init__(self, rows: Generator[ArchivedPublication]) -> None:
        self._rows = rows
        self._lock = threading.Lock()

    def next(self) -> list[ArchivedPublication]:
        with self._lock:
            return list(islice(self._rows, _RESULT_BATCH))

    def close(self) -> None:
        with self._lock:
            self._rows.close()


class ResultAdvertisements:
    """Advertises the attributes that results can have, as they become known. Changes are collected
    and sent to the broker by `flush`, in order."""

    def __init__(self, client: PadresClient) -> None:
        self._client = client
        self._numbers = count(1)
        self._pending: list[tuple[str, str]] = []  #: our id and the text; without text, withdraw
        self._broker_ids: dict[str, str] = {}
        self._inference = AdvertisementInference(self._advertise, self._withdraw)

    def add(self, publications: Iterable[Publication]) -> None:
        for publication in publications:
            self._inference.on_publication(publication)

    def add_attributes(self, attributes: Iterable[tuple[str, str, bool]]) -> None:
        self.add(
            sample_publication(Publication(class_name, {attribute: "" if is_text else 0}))
            for class_name, attribute, is_text in attributes
        )

    async def flush(self) -> None:
        while self._pending:
            name, text = self._pending.pop(0)
            if text:
                self._broker_ids[name] = await self._client.advertise(text)
            elif name in self._broker_ids:
                await self._client.withdraw(self._broker_ids.pop(name))

    def _advertise(self, text: str) -> str:
        name = str(next(self._numbers))
        self._pending.append((name, text))
        return name

    def _withdraw(self, name: str) -> None:
        self._pending.append((name, ""))


class StreamArchiver:
    """Copies the stream to the archive; `on_insert` is called after each commit. While the database
    is unavailable, the stream waits."""

    def __init__(
        self,
        fabric: Fabric,
        archive: PublicationArchive,
        stream: str,
        on_insert: Callable[[list[ArchivedPublication]], None],
    ) -> None:
        self._fabric = fabric
        self._archive = archive
        self._stream = stream
        self._on_insert = on_insert

    async def run(self) -> None:
        """Until cancelled."""
        start = await _with_retry(lambda: self._archive.next_offset(self._stream))
        async with self._fabric.replay(self._stream, start) as receiver:
            while True:
                messages = await _next_batch(receiver)
                await self._insert(messages)
                for message in messages:
                    await message.ack()

    async def _insert(self, messages: list[ReceivedMessage]) -> None:
        decoded = map(archived_publication, messages)
        batch = [archived for archived in decoded if archived is not None]
        offset = messages[-1].offset
        assert offset is not None  # every message of a stream has one
        refused = await _with_retry(lambda: self._archive.insert(self._stream, batch, offset + 1))
        for archived in refused:
            _log.warning("publication not stored: NUL in a name", publication=archived.id)
        self._on_insert([archived for archived in batch if archived not in refused])


async def _with_retry(work: Callable[[], _T]) -> _T:
    return await retry_async(lambda: asyncio.to_thread(work), _RETRY)


async def _next_batch(receiver: MessageReceiver) -> list[ReceivedMessage]:
    batch = [await receiver.receive()]
    with suppress(TimeoutError):
        while len(batch) < BATCH_MESSAGES:
            batch.append(await asyncio.wait_for(receiver.receive(), PAUSE_SECONDS))
    return batch


def archived_publication(message: ReceivedMessage) -> ArchivedPublication | None:
    """None for a message that is no publication, or that is a result of a query."""
    arrived = message.timestamp or datetime.now(UTC)
    decoded = decode_publication(message.content_type, message.headers, message.body, arrived)
    if decoded is None or message.offset is None:
        return None
    publication, payload = decoded
    if QUERY_ID_ATTRIBUTE in publication.attributes:
        return None
    time = publication.time or arrived
    return ArchivedPublication(message.offset, message.message_id or "", time, publication, payload)
