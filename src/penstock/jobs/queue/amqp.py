"""A worker's broker over AMQP 0-9-1.

Requests are taken, answered and acknowledged on one channel, in transactions: a final response and
the acknowledgement of its request happen together, so a worker that is killed leaves either both or
neither. While one commit is under way, what ends meanwhile gathers for the next. Progress goes by
another channel, wishes come by a third.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from pamqp import commands

from penstock.client.amqp091.channel import Channel
from penstock.client.amqp091.connection import Connection
from penstock.client.amqp091.link import Link
from penstock.core.errors import PenstockError, WireSyntaxError
from penstock.core.logs import get_logger
from penstock.core.properties import PERSISTENT, Properties, decode_header
from penstock.jobs.queue.carrier import Delivery, Listener, Outgoing, Settlement
from penstock.jobs.queue.control import hear_wishes
from penstock.jobs.queue.topology import (
    Durability,
    declare,
    declare_responses,
    declare_retry,
    request_name,
    response_name,
    retry_name,
)
from penstock.wire.amqp091.address import Address
from penstock.wire.amqp091.messages import Content

log = get_logger(__name__)

_FLUSH_SECONDS: Final = 30.0


class AmqpCarrier:
    """Keeps `penstock.jobs.queue.carrier.Carrier`."""

    def __init__(
        self,
        address: Address,
        kinds: Sequence[str],
        prefetch: int,
        *,
        queue: str | None = None,
        responses: tuple[str | None, Sequence[str]] = (None, ()),
        durability: Durability = Durability.DURABLE,
        patience: float = 0.0,
        name: str = "penstock job worker",
    ) -> None:
        """`queue` is where requests are taken from, if not from the usual one of their type;
        `responses` an exchange to send them to instead, and queues to bind to it."""
        self.epoch = 0
        self._kinds = tuple(kinds)
        self._queue = queue
        self._responses = responses
        self._durability = durability
        self._prefetch = self._wanted = prefetch
        self._link = Link(address, name, self._prepare, patience=patience)
        self._listener: Listener | None = None
        self._work: Channel | None = None
        self._progress: Channel | None = None
        self._unacknowledged: dict[int, None] = {}  # tags, in order
        self._ready: list[Settlement] = []
        self._returns: list[Delivery] = []
        self._committing: list[Settlement] = []
        self._scheduled = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._pacing = False  # consumers change: no commit may be under way meanwhile
        self._consumers: list[str] = []
        self._consumed = 0
        self._uncommitted = asyncio.Event()  # no commit is under way
        self._uncommitted.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, listener: Listener) -> None:
        self._listener = listener
        await self._link.open()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._link.close()

    async def failed(self) -> Exception:
        assert self._link.failed is not None
        return await asyncio.shield(self._link.failed)

    # A connection.

    async def _prepare(self, connection: Connection) -> None:
        exchange, queues = self._responses
        for kind in self._kinds:
            await declare(connection, kind, self._durability, self._queue)
            await declare_responses(
                connection, exchange or response_name(kind), queues, self._durability
            )
        self._unacknowledged.clear()
        self._progress = await connection.channel()
        assert self._listener is not None
        await hear_wishes(connection, self._listener.wished)
        channel = await connection.channel()
        channel.on_deliveries = self._take
        channel.on_closed = lambda error: self._lose(connection, error)
        channel.on_cancelled = lambda _: connection.abandon()  # its queue is gone: declare it again
        await channel.select()
        self.epoch += 1
        self._work = channel
        self._consumers.clear()
        self._prefetch = 0
        await self._keep_pace()

    async def _consume(self, channel: Channel) -> None:
        """A consumer for each type, named after it; no name comes twice on a channel."""
        if self._prefetch:
            await channel.prefetch(self._prefetch)
            for kind in self._kinds:
                self._consumed += 1
                consumer = f"{kind}.{self._consumed}"
                self._consumers.append(consumer)
                await channel.consume(self._queue or request_name(kind), consumer)

    def _lose(self, connection: Connection, error: PenstockError) -> None:
        """The channel went: what was not committed is not ours any more."""
        self._work = None
        self.epoch += 1
        unsure = self._committing + self._ready
        self._committing, self._ready, self._returns = [], [], []
        self._idle.set()
        self._uncommitted.set()
        if not connection.lost.done():
            log.warning("the broker closed the channel of requests", reason=str(error))
            connection.abandon()
        assert self._listener is not None
        self._listener.lost()
        self._listener.unsettled(unsure)

    # Taking.

    def _take(self, contents: list[Content]) -> None:
        assert self._listener is not None
        epoch = self.epoch
        deliveries = []
        for content in contents:
            self._unacknowledged[content.tag] = None
            try:
                said = decode_header(content.header)
            except WireSyntaxError:
                said = Properties(delivery_mode=PERSISTENT)
            deliveries.append(
                Delivery(
                    content.consumer.partition(".")[0],
                    content.tag,
                    epoch,
                    content.body,
                    said,
                    content.redelivered,
                )
            )
        self._listener.taken(deliveries)

    def pace(self, prefetch: int) -> None:
        self._wanted = prefetch
        if not self._pacing:
            self._pacing = True
            self._start(self._change_pace())

    async def _change_pace(self) -> None:
        """While no commit is under way: RabbitMQ closes a channel that is asked anything else."""
        await self._uncommitted.wait()
        with suppress(PenstockError):  # a new connection begins at the pace that is wanted then
            await self._keep_pace()

    async def _keep_pace(self) -> None:
        """Consume at the pace that is wanted, however often that changes meanwhile."""
        self._pacing = True
        try:
            while (channel := self._work) is not None and self._wanted != self._prefetch:
                while self._consumers:
                    await channel.cancel(self._consumers.pop())
                self._prefetch = self._wanted
                await self._consume(channel)
        finally:
            self._pacing = False
            if self._ready or self._returns:
                self._schedule()

    # Settling.

    def settle(self, settlement: Settlement) -> None:
        self._ready.append(settlement)
        self._schedule()

    def give_back(self, delivery: Delivery) -> None:
        if delivery.epoch == self.epoch:
            self._returns.append(delivery)
            self._schedule()

    def delay(self, settlement: Settlement, again: Outgoing, seconds: float) -> None:
        self._start(self._delay(settlement, again, seconds))

    async def _delay(self, settlement: Settlement, again: Outgoing, seconds: float) -> None:
        """The queue of the delay is declared anew each time: it goes when it is not used."""
        kind = settlement.delivery.kind
        level = math.ceil(seconds)
        try:
            connection = await self._link.connection()
            channel = await connection.channel()
            await declare_retry(channel, kind, level, self._queue or request_name(kind))
            await channel.close()
        except PenstockError as error:
            # Without a connection it comes again anyway; without the queue it would be lost.
            log.warning("a failed job is tried again at once", reason=str(error))
            self.give_back(settlement.delivery)
            assert self._listener is not None
            self._listener.unsettled([settlement])
            return
        waits = Outgoing("", retry_name(kind, level), again.body, again.said)
        messages = [*settlement.messages, waits]
        self.settle(Settlement(settlement.delivery, messages, settlement.token))

    def _schedule(self) -> None:
        self._idle.clear()
        if not self._scheduled and not self._pacing and self._uncommitted.is_set():
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._commit)

    def _commit(self) -> None:
        """Everything that is ready, in one transaction and one write."""
        self._scheduled = False
        if self._pacing:
            return
        channel, listener = self._work, self._listener
        assert listener is not None
        current = self.epoch
        stale = [each for each in self._ready if each.delivery.epoch != current]
        batch = [each for each in self._ready if each.delivery.epoch == current]
        returns, self._ready, self._returns = self._returns, [], []
        if stale:
            listener.unsettled(stale)
        if channel is None or not (batch or returns):
            self._idle.set()
            return
        for settlement in batch:
            for each in settlement.messages:
                channel.publish(each.exchange, each.key, each.body, each.said)
        self._acknowledge(channel, {each.delivery.tag for each in batch})
        for delivery in returns:
            self._unacknowledged.pop(delivery.tag, None)
            channel.reject(delivery.tag, requeue=True)
        self._committing = batch
        self._uncommitted.clear()
        channel.commit().add_done_callback(self._committed)

    def _acknowledge(self, channel: Channel, tags: set[int]) -> None:
        """As many as can be by one word."""
        upto = 0
        for tag in self._unacknowledged:
            if tag not in tags:
                break
            upto = tag
        if upto:
            channel.ack(upto, multiple=True)
        for tag in tags:
            del self._unacknowledged[tag]
            if tag > upto:
                channel.ack(tag)

    def _committed(self, answer: asyncio.Future[commands.Tx.CommitOk]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return  # `_lose` has told, or will
        batch, self._committing = self._committing, []
        self._uncommitted.set()
        assert self._listener is not None
        self._listener.settled(batch)
        if self._ready or self._returns:
            self._schedule()
        else:
            self._idle.set()

    async def flush(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self._idle.wait()

    def tell(self, message: Outgoing) -> None:
        channel = self._progress
        if channel is not None and channel.failure is None:
            channel.publish(message.exchange, message.key, message.body, message.said)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
