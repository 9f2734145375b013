"""A worker's broker over AMQP 0-9-1.

Requests are taken, answered and acknowledged on one channel, in transactions (`amqp091.py`).
Progress goes by another channel, wishes come by a third.
"""

from __future__ import annotations

import asyncio
import json
import math
import uuid
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import AmqpClientConnection, AmqpRecoveringConnection
from penstock.core.basic_properties import PERSISTENT, BasicProperties, decode_header
from penstock.core.errors import PenstockError, WireSyntaxError
from penstock.core.logs import get_logger
from penstock.wire.amqp091.address import AmqpAddress
from penstock.wire.amqp091.content import AmqpContent
from penstock.wire.amqp091.methods import MethodArguments
from penstock_jobs.queue.topology import (
    CONTROL,
    Durability,
    declare,
    declare_control,
    declare_responses,
    declare_retry,
    request_name,
    response_name,
    retry_name,
)
from penstock_jobs.queue.worker_connection import (
    CancelRequest,
    JobDelivery,
    JobMessage,
    JobSettlement,
    WorkerListener,
    read_cancel_request,
)

log = get_logger(__name__)

_FLUSH_SECONDS: Final = 30.0


class Amqp091WorkerConnection:
    """Keeps `penstock_jobs.queue.worker_connection.WorkerConnection`."""

    def __init__(
        self,
        address: AmqpAddress,
        kinds: Sequence[str],
        prefetch: int,
        *,
        queue: str | None = None,
        responses: tuple[str | None, Sequence[str]] = (None, ()),
        durability: Durability = Durability.DURABLE,
        retry_seconds: float = 0.0,
        name: str = "penstock job worker",
    ) -> None:
        """`queue` is where requests are taken from, if not from the usual one of their type;
        `responses` an exchange to send them to instead, and queues to bind to it."""
        self._kinds = tuple(kinds)
        self._queue = queue
        self._responses = responses
        self._durability = durability
        self._prefetch = self._wanted = prefetch
        self._link = AmqpRecoveringConnection(
            address, name, self._prepare, retry_seconds=retry_seconds
        )
        self._listener: WorkerListener
        self._commits = TransactionBatcher()
        self._work: AmqpClientChannel | None = None
        self._progress: AmqpClientChannel | None = None
        self._consumers: list[str] = []
        self._consumed = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def epoch(self) -> int:
        return self._commits.epoch

    async def open(self, listener: WorkerListener) -> None:
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

    async def _prepare(self, connection: AmqpClientConnection) -> None:
        exchange, queues = self._responses
        for kind in self._kinds:
            await declare(connection, kind, self._durability, self._queue)
            await declare_responses(
                connection, exchange or response_name(kind), queues, self._durability
            )
        self._progress = await connection.channel()
        await receive_cancel_requests(connection, self._listener.cancel_requested)
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

    async def _consume(self, channel: AmqpClientChannel) -> None:
        """A consumer for each type, named after it; no name comes twice on a channel."""
        if self._prefetch:
            await channel.prefetch(self._prefetch)
            for kind in self._kinds:
                self._consumed += 1
                consumer = f"{kind}.{self._consumed}"
                self._consumers.append(consumer)
                await channel.consume(self._queue or request_name(kind), consumer)

    def _lose(self, connection: AmqpClientConnection, error: PenstockError) -> None:
        self._work = None
        unsure = self._commits.lose()
        if not connection.lost.done():
            log.warning("the broker closed the channel of requests", reason=str(error))
            connection.abandon()
        self._listener.lost()
        self._listener.unsettled(unsure)

    # Taking.

    def _take(self, contents: list[AmqpContent]) -> None:
        epoch = self.epoch
        deliveries = []
        for content in contents:
            self._commits.took(content.tag)
            try:
                said = decode_header(content.header)
            except WireSyntaxError:
                said = BasicProperties(delivery_mode=PERSISTENT)
            deliveries.append(
                JobDelivery(
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

    def settle(self, settlement: JobSettlement) -> None:
        self._commits.settle(settlement)

    def give_back(self, delivery: JobDelivery) -> None:
        self._commits.give_back(delivery)

    def delay(self, settlement: JobSettlement, again: JobMessage, seconds: float) -> None:
        self._start(self._delay(settlement, again, seconds))

    async def _delay(self, settlement: JobSettlement, again: JobMessage, seconds: float) -> None:
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
        waits = JobMessage("", retry_name(kind, level), again.body, again.said)
        messages = [*settlement.messages, waits]
        self.settle(JobSettlement(settlement.delivery, messages, settlement.token))

    async def flush(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self._commits.idle()

    def tell(self, message: JobMessage) -> None:
        channel = self._progress
        if channel is not None and channel.failure is None:
            channel.publish(message.exchange, message.key, message.body, message.said)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


# What ends on a channel of requests, by transactions.
#
# A final response and the acknowledgement of its request happen together, so a worker that is
# killed leaves either both or neither. While one commit is under way, what ends meanwhile gathers
# for the next. Over another channel what was handed out before cannot be settled: each has its
# epoch.


class TransactionBatcher:
    #: Whom it tells what was settled, and what may not have been; there is one before a channel.
    listener: WorkerListener

    def __init__(self) -> None:
        self.epoch = 0
        self.held = False  #: none is begun
        self._channel: AmqpClientChannel | None = None
        self._unacknowledged: dict[int, None] = {}  # tags, in order
        self._ready: list[JobSettlement] = []
        self._returns: list[JobDelivery] = []
        self._under_way: list[JobSettlement] = []
        self._scheduled = False
        self._idle = asyncio.Event()  # there is nothing to settle
        self._idle.set()
        self._quiet = asyncio.Event()  # no commit is under way
        self._quiet.set()

    # A channel.

    def begin(self, channel: AmqpClientChannel) -> None:
        self._channel = channel
        self._unacknowledged.clear()
        self.epoch += 1

    def lose(self) -> list[JobSettlement]:
        """The channel went: what was not committed is not ours any more. What may be settled."""
        self._channel = None
        self.epoch += 1
        unsure = self._under_way + self._ready
        self._under_way, self._ready, self._returns = [], [], []
        self._idle.set()
        self._quiet.set()
        return unsure

    def hold(self) -> None:
        """Begin no commit until it is released: the channel is to be asked something else."""
        self.held = True

    def release(self) -> None:
        self.held = False
        if self._ready or self._returns:
            self._schedule()

    async def quiet(self) -> None:
        """Returns when no commit is under way."""
        await self._quiet.wait()

    async def idle(self) -> None:
        """Returns when nothing is left to be settled."""
        await self._idle.wait()

    # What is to be settled.

    def took(self, tag: int) -> None:
        self._unacknowledged[tag] = None

    def settle(self, settlement: JobSettlement) -> None:
        self._ready.append(settlement)
        self._schedule()

    def give_back(self, delivery: JobDelivery) -> None:
        if delivery.epoch == self.epoch:
            self._returns.append(delivery)
            self._schedule()

    def _schedule(self) -> None:
        self._idle.clear()
        if not self._scheduled and not self.held and self._quiet.is_set():
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._commit)

    def _commit(self) -> None:
        """Everything that is ready, in one transaction and one write."""
        self._scheduled = False
        if self.held:
            return
        channel, current = self._channel, self.epoch
        stale = [each for each in self._ready if each.delivery.epoch != current]
        batch = [each for each in self._ready if each.delivery.epoch == current]
        returns, self._ready, self._returns = self._returns, [], []
        if stale:
            self.listener.unsettled(stale)
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
        self._under_way = batch
        self._quiet.clear()
        channel.commit().add_done_callback(self._committed)

    def _acknowledge(self, channel: AmqpClientChannel, tags: set[int]) -> None:
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

    def _committed(self, answer: asyncio.Future[MethodArguments]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return  # it was lost with its channel
        batch, self._under_way = self._under_way, []
        self._quiet.set()
        self.listener.settled(batch)
        if self._ready or self._returns:
            self._schedule()
        else:
            self._idle.set()


# Hearing the wishes about jobs: those of the past, and then each as it comes.

#: How long the wishes of the past may take to be read, before work begins without them.
_CATCH_UP_SECONDS: Final = 10.0
_CONTROL_PREFETCH: Final = 500


async def receive_cancel_requests(
    connection: AmqpClientConnection, cancel_requested: Callable[[CancelRequest], None]
) -> None:
    """From the first that is kept. Returns when those of the past are known: when a mark of our
    own, put behind them, has come back."""
    mark = json.dumps({"mark": uuid.uuid4().hex}).encode()
    caught_up = asyncio.Event()
    try:
        await declare_control(connection)
        channel = await connection.channel()

        def hear(contents: list[AmqpContent]) -> None:
            for content in contents:
                if (cancel_request := read_cancel_request(content.body)) is not None:
                    cancel_requested(cancel_request)
                elif content.body == mark:
                    caught_up.set()
            channel.ack(contents[-1].tag, multiple=True)

        channel.on_deliveries = hear
        channel.publish(
            "", CONTROL, mark, BasicProperties("application/json", delivery_mode=PERSISTENT)
        )
        await channel.prefetch(_CONTROL_PREFETCH)
        await channel.consume(CONTROL, "wishes", {"x-stream-offset": "first"})
        async with asyncio.timeout(_CATCH_UP_SECONDS):
            await caught_up.wait()
    except TimeoutError:
        log.warning("wishes to cancel are not all known yet", stream=CONTROL)
    except PenstockError as error:
        if connection.lost.done():
            raise
        log.warning("nothing can be cancelled: this broker has no streams", reason=str(error))
