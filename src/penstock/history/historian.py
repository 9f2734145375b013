"""The historian of a broker: keeps what it is asked to keep, and answers for the past.

It is a client of the overlay that may see the subscriptions which meet what it advertises. `STORE`
publications of class `DB_CONTROL` tell it what to keep; subscriptions to class `historic` are its
questions. Each is answered once, by publications; whoever subscribes anew asks anew.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Final

from penstock.client.fabric import Fabric
from penstock.client.padres import Client, Interest, Received
from penstock.content import LanguageError, Subscription, parse_subscription, print_message
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.history import EXCHANGE, STREAM
from penstock.history.announcements import Announcements
from penstock.history.archive import Archive
from penstock.history.keeper import Keeper
from penstock.history.kept import Kept
from penstock.history.questions import Question, answer_of, question_of, sample_of

CONTROL: Final = "DB_CONTROL"
STORE: Final = "STORE"
#: The opposite, which PADRES does not have: nothing more is kept; what was kept stays.
DISCARD: Final = "DISCARD"
#: Publications of an answer under way at a time.
_SAID: Final = 200

_log = get_logger("penstock.history")


class Historian:
    def __init__(
        self, client: Client, fabric: Fabric, archive: Archive, *, exchange: str = EXCHANGE
    ) -> None:
        """The client has to be attentive, and connected to the broker the fabric leads to."""
        self._client = client
        self._fabric = fabric
        self._archive = archive
        self._exchange = exchange
        self._announcements = Announcements(client)
        self._keeper = Keeper(fabric, archive, STREAM, self._saw)
        self._news = asyncio.Event()
        self._answering: dict[str, asyncio.Task[None]] = {}
        self.database_id = f"{next(iter(client.brokers))}-DB"
        self.ready = asyncio.Event()  #: requests and questions are heard from now on

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        await self._bind(await asyncio.to_thread(self._archive.requests))
        known = await asyncio.to_thread(self._archive.attributes)
        self._announcements.know(known)
        await self._announcements.tell()
        await self._client.subscribe(
            f"[class,eq,'{CONTROL}'],[database_id,eq,'{self.database_id}']"
        )
        self.ready.set()
        _log.info("historian ready", database=self.database_id)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keeper.run())
            group.create_task(self._tell())
            group.create_task(self._attend(group))
            async for received in self._client:
                await self._control(received)

    # What it is told.

    async def _control(self, received: Received) -> None:
        try:
            command, text = received["command"], str(received["content_spec"])
            spec = parse_subscription(text, several=True)
        except (LanguageError, KeyError) as error:
            _log.warning("request not understood", request=received.text, error=str(error))
            return
        if command == STORE:
            await self.keep(spec)
        elif command == DISCARD:
            await self.discard(spec)
        else:
            _log.warning("unknown command", command=str(command))

    async def keep(self, spec: Subscription) -> None:
        """Keep what satisfies it, from now on."""
        text = print_message(spec)
        await self._bind([text])  # first: what is remembered is bound again, never the reverse
        await asyncio.to_thread(self._archive.request, text, spec.class_name)
        self._announcements.saw([sample_of(spec)])
        await self._announcements.tell()
        _log.info("keeping", content=text)

    async def discard(self, spec: Subscription) -> None:
        text = print_message(spec)
        await asyncio.to_thread(self._archive.withdraw, text)
        channel = await self._fabric.amqp.channel()
        async with channel:
            queue = await channel.get_queue(STREAM, ensure=False)
            await queue.unbind(self._exchange, "", arguments={"x-subscription": text})
        _log.info("keeping no more", content=text)

    async def _bind(self, specs: list[str]) -> None:
        """The stream takes what satisfies them; bindings outlast this program and the broker."""
        channel = await self._fabric.amqp.channel()
        async with channel:
            await channel.declare_exchange(self._exchange, "x-content", durable=True)
            queue = await channel.declare_queue(
                STREAM, durable=True, arguments={"x-queue-type": "stream"}
            )
            for text in specs:
                await queue.bind(self._exchange, "", arguments={"x-subscription": text})

    # What it keeps.

    def _saw(self, batch: list[Kept]) -> None:
        self._announcements.saw(sample_of(kept.publication) for kept in batch)
        self._news.set()

    async def _tell(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._announcements.tell()

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

    async def _answer(self, interest: Interest) -> None:
        try:
            question = question_of(parse_subscription(interest.text, several=True))
            if question is None or await asyncio.to_thread(self._archive.answered, interest.id):
                return
            count = await self._say(question)
            await asyncio.to_thread(self._archive.end_answer, interest.id)
            _log.info("answered", question=interest.text, publications=count)
        except PenstockError as error:
            _log.warning("question not answered", question=interest.text, error=str(error))
        finally:
            del self._answering[interest.id]

    async def _say(self, question: Question) -> int:
        """Publish the answer; how many there are."""
        count = 0
        pages = _Pages(self._archive, question)
        try:
            while page := await asyncio.to_thread(pages.next):
                count += len(page)
                saying = [
                    await self._client.post(
                        print_message(answer_of(question, kept.publication)), kept.payload
                    )
                    for kept in page
                ]
                await asyncio.gather(*saying)
        finally:
            await asyncio.to_thread(pages.close)  # it waits for what is being fetched
        return count


class _Pages:
    """An answer in pieces, each fetched in some thread of a pool."""

    def __init__(self, archive: Archive, question: Question) -> None:
        self._rows: Iterator[Kept] = archive.answer(question)
        self._lock = threading.Lock()

    def next(self) -> list[Kept]:
        with self._lock:
            return list(islice(self._rows, _SAID))

    def close(self) -> None:
        with self._lock:
            close = getattr(self._rows, "close", None)
            if close is not None:
                close()
