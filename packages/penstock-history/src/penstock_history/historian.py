"""The historian of a broker: keeps what it is asked to keep, and answers for the past.

It is a client of the overlay that may see the subscriptions which meet what it advertises.
`STORE_COMMAND` publications of class `DB_CONTROL` tell it what to keep; subscriptions to class
`historic` are its questions. Each is answered once, by publications; whoever subscribes anew asks
anew.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count, islice
from typing import Final, TypeVar

from penstock.client import Fabric, MessageReceiver, ReceivedMessage
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
from penstock_store import StoreUnavailable

CONTROL_CLASS: Final = "DB_CONTROL"
STORE_COMMAND: Final = "STORE"
#: The opposite, which PADRES does not have: nothing more is kept; what was kept stays.
DISCARD_COMMAND: Final = "DISCARD"
#: Publications of an answer under way at a time.
_ANSWER_BATCH: Final = 200

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
        """The client has to be attentive, and connected to the broker the fabric leads to."""
        self._client = client
        self._fabric = fabric
        self._archive = archive
        self._exchange = exchange
        self._advertisements = AnswerAdvertisements(client)
        self._archiver = StreamArchiver(fabric, archive, STREAM, self._saw)
        self._news = asyncio.Event()
        self._answering: dict[str, asyncio.Task[None]] = {}
        self.database_id = f"{next(iter(client.brokers))}-DB"
        self.ready = asyncio.Event()  #: requests and questions are heard from now on

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        await self._bind(await asyncio.to_thread(self._archive.requests))
        known = await asyncio.to_thread(self._archive.attributes)
        self._advertisements.know(known)
        await self._advertisements.tell()
        await self._client.subscribe(
            f"[class,eq,'{CONTROL_CLASS}'],[database_id,eq,'{self.database_id}']"
        )
        self.ready.set()
        _log.info("historian ready", database=self.database_id)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._archiver.run())
            group.create_task(self._tell())
            group.create_task(self._attend(group))
            async for received in self._client:
                await self._control(received)

    # What it is told.

    async def _control(self, received: ReceivedPublication) -> None:
        try:
            command, text = received["command"], str(received["content_spec"])
            spec = parse_subscription(text, several=True)
        except (LanguageError, KeyError) as error:
            _log.warning("request not understood", request=received.text, error=str(error))
            return
        if command == STORE_COMMAND:
            await self.keep(spec)
        elif command == DISCARD_COMMAND:
            await self.discard(spec)
        else:
            _log.warning("unknown command", command=str(command))

    async def keep(self, spec: Subscription) -> None:
        """Keep what satisfies it, from now on."""
        text = format_message(spec)
        await self._bind([text])  # first: what is remembered is bound again, never the reverse
        await asyncio.to_thread(self._archive.request, text, spec.class_name)
        self._advertisements.saw([sample_publication(spec)])
        await self._advertisements.tell()
        _log.info("keeping", content=text)

    async def discard(self, spec: Subscription) -> None:
        text = format_message(spec)
        await asyncio.to_thread(self._archive.withdraw, text)
        async with await self._fabric.amqp.channel() as channel:
            await channel.unbind(STREAM, self._exchange, arguments={"x-subscription": text})
        _log.info("keeping no more", content=text)

    async def _bind(self, specs: list[str]) -> None:
        """The stream takes what satisfies them; bindings outlast this program and the broker."""
        async with await self._fabric.amqp.channel() as channel:
            await channel.declare_exchange(self._exchange, "x-content")
            await channel.declare_queue(STREAM, arguments={"x-queue-type": "stream"})
            for text in specs:
                await channel.bind(STREAM, self._exchange, arguments={"x-subscription": text})

    # What it keeps.

    def _saw(self, batch: list[ArchivedPublication]) -> None:
        self._advertisements.saw(sample_publication(archived.publication) for archived in batch)
        self._news.set()

    async def _tell(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._advertisements.tell()

    # What it is asked.

    async def _attend(self, group: asyncio.TaskGroup) -> None:
        async for interest in self._client.interests:
            answering = self._answering.get(interest.id)
            if interest.withdrawn:
                if answering is not None:
                    answering.cancel()
                await asyncio.to_thread(self._archive.end_question, interest.id)
            elif answering is None:
                self._answering[interest.id] = group.create_task(self._answer(interest))

    async def _answer(self, interest: SubscriptionNotice) -> None:
        try:
            query = parse_query(parse_subscription(interest.text, several=True))
            if query is None or await asyncio.to_thread(self._archive.answered, interest.id):
                return
            count = await self._say(query)
            await asyncio.to_thread(self._archive.end_answer, interest.id)
            _log.info("answered", query=interest.text, publications=count)
        except PenstockError as error:
            _log.warning("question not answered", query=interest.text, error=str(error))
        finally:
            del self._answering[interest.id]

    async def _say(self, query: HistoryQuery) -> int:
        """Publish the answer; how many there are."""
        count = 0
        pages = _ResultPages(self._archive, query)
        try:
            while page := await asyncio.to_thread(pages.next):
                count += len(page)
                saying = [
                    await self._client.post(
                        format_message(answer_publication(query, archived.publication)),
                        archived.payload,
                    )
                    for archived in page
                ]
                await asyncio.gather(*saying)
        finally:
            await asyncio.to_thread(pages.close)  # it waits for what is being fetched
        return count


class _ResultPages:
    """An answer in pieces, each fetched in some thread of a pool."""

    def __init__(self, archive: PublicationArchive, query: HistoryQuery) -> None:
        self._rows: Iterator[ArchivedPublication] = archive.answer(query)
        self._lock = threading.Lock()

    def next(self) -> list[ArchivedPublication]:
        with self._lock:
            return list(islice(self._rows, _ANSWER_BATCH))

    def close(self) -> None:
        with self._lock:
            close = getattr(self._rows, "close", None)
            if close is not None:
                close()


# What the historian advertises: the attributes that its answers can have, as they become known.


class AnswerAdvertisements:
    """Decides at once and tells the broker when `tell` is awaited, in the same order."""

    def __init__(self, client: PadresClient) -> None:
        self._client = client
        self._numbers = count(1)
        self._untold: list[tuple[str, str]] = []  # what, and its text; no text withdraws it
        self._told: dict[str, str] = {}  # the broker's id of each
        self._announcing = AdvertisementInference(self._announce, self._withdraw)

    def saw(self, publications: Iterable[Publication]) -> None:
        for publication in publications:
            self._announcing.saw(publication)

    def know(self, attributes: Iterable[tuple[str, str, bool]]) -> None:
        """What publications of a class came with before."""
        for class_name, attribute, is_text in attributes:
            value = "" if is_text else 0
            self._announcing.saw(sample_publication(Publication(class_name, {attribute: value})))

    async def tell(self) -> None:
        while self._untold:
            name, text = self._untold.pop(0)
            if text:
                self._told[name] = await self._client.advertise(text)
            elif name in self._told:
                await self._client.withdraw(self._told.pop(name))

    def _announce(self, text: str) -> str:
        name = str(next(self._numbers))
        self._untold.append((name, text))
        return name

    def _withdraw(self, name: str) -> None:
        self._untold.append((name, ""))


# Follows the stream of what is kept into the archive.

#: Entered together: so many, or what has come before a pause.
BATCH_MESSAGES: Final = 500
PAUSE_SECONDS: Final = 0.05
#: Between two attempts, while the database is away.
RETRY_SECONDS: Final = 1.0

_T = TypeVar("_T")


class StreamArchiver:
    """`saw` is told what was entered, after it is safe."""

    def __init__(
        self,
        fabric: Fabric,
        archive: PublicationArchive,
        stream: str,
        saw: Callable[[list[ArchivedPublication]], None],
    ) -> None:
        self._fabric = fabric
        self._archive = archive
        self._stream = stream
        self._saw = saw

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        start = await self._patiently(lambda: self._archive.next_offset(self._stream))
        async with self._fabric.replay(self._stream, start) as inflow:
            while True:
                messages = await _next_batch(inflow)
                await self._enter(messages)
                for message in messages:
                    await message.ack()

    async def _enter(self, messages: list[ReceivedMessage]) -> None:
        batch = [
            archived
            for message in messages
            if (archived := archived_publication(message)) is not None
        ]
        offset = messages[-1].offset
        assert offset is not None  # every message of a stream has one
        refused = await self._patiently(
            lambda: self._archive.enter(self._stream, batch, offset + 1)
        )
        for archived in refused:
            _log.warning("not kept: a name with NUL in it", publication=archived.id)
        self._saw([archived for archived in batch if archived not in refused])

    @staticmethod
    async def _patiently(work: Callable[[], _T]) -> _T:
        """The database may be away for a while; the stream waits."""
        while True:
            try:
                return await asyncio.to_thread(work)
            except StoreUnavailable as error:
                _log.warning("waiting for the database", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)


async def _next_batch(inflow: MessageReceiver) -> list[ReceivedMessage]:
    found = [await inflow.receive()]
    with suppress(TimeoutError):
        while len(found) < BATCH_MESSAGES:
            found.append(await asyncio.wait_for(inflow.receive(), PAUSE_SECONDS))
    return found


def archived_publication(message: ReceivedMessage) -> ArchivedPublication | None:
    """What a message of the stream says, if it is to be kept."""
    arrived = message.timestamp or datetime.now(UTC)
    said = decode_publication(message.content_type, message.headers, message.body, arrived)
    if said is None or message.offset is None:
        return None
    publication, payload = said
    if QUERY_ID_ATTRIBUTE in publication.attributes:  # an answer
        return None
    time = publication.time or arrived
    return ArchivedPublication(message.offset, message.message_id or "", time, publication, payload)
