"""A worker's broker over AMQP 1.0, by the client's patterns.

AMQP 1.0 as brokers speak it has no transactions: a final response is safe first, and then its
request is acknowledged. A worker that is killed between the two leaves the request to be answered
again; whoever minds goes by the id. Exchanges cannot be declared this way: an `amqp://` worker or
client has to have been there before, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final
from urllib.parse import unquote

from penstock.client import Fabric, FabricClosed, Inflow, Message, Outflow, connect
from penstock.core.errors import PenstockError, PreconditionFailed
from penstock.core.logs import get_logger
from penstock.core.properties import PERSISTENT, Properties
from penstock.jobs.queue.carrier import Delivery, Listener, Outgoing, Settlement
from penstock.jobs.queue.control10 import hear_wishes
from penstock.jobs.queue.envelope import REPLY_TO
from penstock.jobs.queue.topology import request_name

log = get_logger(__name__)

_FLUSH_SECONDS: Final = 30.0
#: RabbitMQ before 4 closes the connection of whoever asks for a durable queue by its name.
_OPEN_SECONDS: Final = 10.0


class Amqp10Carrier:
    """Keeps `penstock.jobs.queue.carrier.Carrier`."""

    def __init__(
        self,
        url: str,
        kinds: Sequence[str],
        prefetch: int,
        *,
        queue: str | None = None,
        patience: float = 0.0,
    ) -> None:
        self.epoch = 1  # the client mends its connections unseen
        self._kinds = tuple(kinds)
        self._prefetch = prefetch
        self._queue = queue
        self._url = url
        self._fabric: Fabric = connect(url, patience=patience)
        self._listener: Listener | None = None
        self._outflows: dict[tuple[str, str], Outflow] = {}
        self._flowing = asyncio.Event()  # requests are taken
        self._flowing.set()
        self._failed: asyncio.Future[Exception] | None = None
        self._tags = 0
        self._settling: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, listener: Listener) -> None:
        self._listener = listener
        self._failed = asyncio.get_running_loop().create_future()
        try:
            await self._fabric.open()
            self._spawn(self._tasks, self._hear_wishes())
            for kind in self._kinds:
                self._spawn(self._tasks, self._receive(kind, await self._pull(kind)))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        for task in (*self._tasks, *self._settling):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._settling, return_exceptions=True)
        await self._fabric.close()

    async def failed(self) -> Exception:
        assert self._failed is not None
        return await asyncio.shield(self._failed)

    def pace(self, prefetch: int) -> None:
        """Credit is the client's to give: to take none of what it has is all that can be done.

        What it has by then, no more than there are places, waits here, or goes back at the end.
        """
        if prefetch:
            self._flowing.set()
        else:
            self._flowing.clear()

    def settle(self, settlement: Settlement) -> None:
        self._spawn(self._settling, self._settle(settlement))

    def give_back(self, delivery: Delivery) -> None:
        self._spawn(self._settling, delivery.handle.requeue())

    def delay(self, settlement: Settlement, again: Outgoing, seconds: float) -> None:
        """The request stays ours until its time is over: nothing is lost if we are by then."""
        self._spawn(self._tasks, self._delay(settlement, again, seconds))

    def tell(self, message: Outgoing) -> None:
        self._spawn(self._tasks, self._tell(message))

    async def flush(self) -> None:
        if self._settling:
            await asyncio.wait(self._settling, timeout=_FLUSH_SECONDS)

    async def _pull(self, kind: str) -> Inflow:
        queue = self._queue or request_name(kind)
        inflow = self._fabric.pull(queue, prefetch=self._prefetch)
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                return await inflow.open()
        except TimeoutError:
            raise PreconditionFailed(
                f"over AMQP 1.0 this broker does not give us the queue {queue} as it is: "
                "declare it with --compatible, or use amqp://"
            ) from None

    async def _receive(self, kind: str, inflow: Inflow) -> None:
        assert self._listener is not None
        assert self._failed is not None
        while True:
            try:
                await self._flowing.wait()
                message = await inflow.receive()
            except FabricClosed:
                return
            except PenstockError as error:
                if not self._failed.done():
                    self._failed.set_result(error)
                return
            self._tags += 1
            said = _properties(message)
            body, again = message.body, message.redelivered
            self._listener.taken([Delivery(kind, self._tags, 1, body, said, again, message)])

    async def _settle(self, settlement: Settlement) -> None:
        assert self._listener is not None
        try:
            for message in settlement.messages:
                said = message.said
                await self._outflow(message).send(
                    message.body, headers=_headers(said), message_id=said.message_id
                )
        except PenstockError as error:
            log.warning("an answer found no way", reason=str(error))
            await settlement.delivery.handle.requeue()
            self._listener.unsettled([settlement])
            return
        await settlement.delivery.handle.ack()
        self._listener.settled([settlement])

    async def _delay(self, settlement: Settlement, again: Outgoing, seconds: float) -> None:
        for message in settlement.messages:
            await self._tell(message)
        await asyncio.sleep(min(seconds, int(again.said.expiration or 0) / 1000))
        queue = self._queue or request_name(settlement.delivery.kind)
        waits = Outgoing("", queue, again.body, again.said)
        self.settle(Settlement(settlement.delivery, [waits], settlement.token))

    async def _tell(self, message: Outgoing) -> None:
        try:
            await self._outflow(message).post(message.body, headers=_headers(message.said))
        except PenstockError as error:
            log.debug("progress was not told", reason=str(error))

    def _outflow(self, message: Outgoing) -> Outflow:
        if not message.exchange:
            return self._fabric.push(message.key)
        return self._fabric.publisher(message.key, exchange=message.exchange)

    async def _hear_wishes(self) -> None:
        assert self._listener is not None
        try:
            await hear_wishes(self._url, self._listener.wished)
        except PenstockError as error:
            log.warning("nothing can be cancelled", reason=str(error))

    def _spawn(self, group: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        group.add(task)
        task.add_done_callback(group.discard)


def _key(reply_to: str | None) -> str | None:
    """Over AMQP 1.0 a reply-to is the address of a queue; over 0-9-1 it was a routing key."""
    for prefix in ("/queues/", "/queue/"):
        if reply_to is not None and reply_to.startswith(prefix):
            return unquote(reply_to.removeprefix(prefix))
    return reply_to


def _headers(said: Properties) -> dict[str, Any]:
    """What the client's patterns have no place for goes as a header."""
    headers = dict(said.headers or {})
    if said.reply_to is not None:
        headers[REPLY_TO] = said.reply_to
    return headers


def _properties(message: Message) -> Properties:
    time = message.timestamp
    return Properties(
        message.content_type,
        dict(message.headers) or None,
        PERSISTENT,
        correlation_id=message.correlation_id,
        reply_to=_key(message.reply_to),
        message_id=message.message_id,
        timestamp=None if time is None else int(time.timestamp()),
    )
