"""A worker's broker over AMQP 0-9-1.

Requests are taken, answered and acknowledged on one channel, in transactions (`commits.py`).
Progress goes by another channel, wishes come by a third.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.client.amqp091.channel import Channel
from penstock.client.amqp091.connection import Connection
from penstock.client.amqp091.link import Link
from penstock.core.errors import PenstockError, WireSyntaxError
from penstock.core.logs import get_logger
from penstock.core.properties import PERSISTENT, Properties, decode_header
from penstock.jobs.queue.carrier import Delivery, Listener, Outgoing, Settlement
from penstock.jobs.queue.commits import Commits
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
        self._kinds = tuple(kinds)
        self._queue = queue
        self._responses = responses
        self._durability = durability
        self._prefetch = self._wanted = prefetch
        self._link = Link(address, name, self._prepare, patience=patience)
        self._listener: Listener
        self._commits = Commits()
        self._work: Channel | None = None
        self._progress: Channel | None = None
        self._consumers: list[str] = []
        self._consumed = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def epoch(self) -> int:
        return self._commits.epoch

    async def open(self, listener: Listener) -> None:
        self._listener = self._commits.listener = listener
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
        self._progress = await connection.channel()
        await hear_wishes(connection, self._listener.wished)
        channel = await connection.channel()
        channel.on_deliveries = self._take
        channel.on_closed = lambda error: self._lose(connection, error)
        channel.on_cancelled = lambda _: connection.abandon()  # its queue is gone: declare it again
        await channel.select()
        self._commits.begin(channel)
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
        self._work = None
        unsure = self._commits.lose()
        if not connection.lost.done():
            log.warning("the broker closed the channel of requests", reason=str(error))
            connection.abandon()
        self._listener.lost()
        self._listener.unsettled(unsure)

    # Taking.

    def _take(self, contents: list[Content]) -> None:
        epoch = self.epoch
        deliveries = []
        for content in contents:
            self._commits.took(content.tag)
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
        if not self._commits.held:
            self._commits.hold()
            self._start(self._change_pace())

    async def _change_pace(self) -> None:
        """While no commit is under way: RabbitMQ closes a channel that is asked anything else."""
        await self._commits.quiet()
        with suppress(PenstockError):  # a new connection begins at the pace that is wanted then
            await self._keep_pace()

    async def _keep_pace(self) -> None:
        """Consume at the pace that is wanted, however often that changes meanwhile."""
        self._commits.hold()
        try:
            while (channel := self._work) is not None and self._wanted != self._prefetch:
                while self._consumers:
                    await channel.cancel(self._consumers.pop())
                self._prefetch = self._wanted
                await self._consume(channel)
        finally:
            self._commits.release()

    # Settling.

    def settle(self, settlement: Settlement) -> None:
        self._commits.settle(settlement)

    def give_back(self, delivery: Delivery) -> None:
        self._commits.give_back(delivery)

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
            self._listener.unsettled([settlement])
            return
        waits = Outgoing("", retry_name(kind, level), again.body, again.said)
        messages = [*settlement.messages, waits]
        self.settle(Settlement(settlement.delivery, messages, settlement.token))

    async def flush(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self._commits.idle()

    def tell(self, message: Outgoing) -> None:
        channel = self._progress
        if channel is not None and channel.failure is None:
            channel.publish(message.exchange, message.key, message.body, message.said)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
