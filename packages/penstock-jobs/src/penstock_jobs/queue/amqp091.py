"""A worker's connection over AMQP 0-9-1.

One channel consumes requests and settles them in transactions. A second channel publishes progress,
a third consumes cancel requests.
"""

from __future__ import annotations

import asyncio
import json
import math
import uuid
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.client.amqp091.channel import AmqpClientChannel, acknowledge_all
from penstock.client.amqp091.connection import AmqpClientConnection, AmqpRecoveringConnection
from penstock.core.basic_properties import PERSISTENT, BasicProperties, decode_header
from penstock.core.errors import PenstockError, ResourceExhausted, WireSyntaxError
from penstock.core.logs import get_logger
from penstock.wire.amqp091.address import AmqpAddress
from penstock.wire.amqp091.content import AmqpContent
from penstock.wire.amqp091.errors import AmqpConnectionLost
from penstock.wire.amqp091.methods import MethodArguments
from penstock_jobs.queue.topology import (
    CONTROL,
    Durability,
    declare,
    declare_control,
    declare_responses,
    declare_retry,
    request_name,
    retry_name,
)
from penstock_jobs.queue.worker_connection import (
    CATCH_UP_SECONDS,
    CancelRequest,
    JobDelivery,
    JobMessage,
    JobSettlement,
    WorkerListener,
    read_cancel_request,
)

log = get_logger(__name__)

_FLUSH_SECONDS: Final = 30.0
#: How often a connection is opened that the broker closes, and the pause between.
_OPEN_ATTEMPTS: Final = 6
_OPEN_SECONDS: Final = 0.5
_CONTROL_PREFETCH: Final = 500


class Amqp091WorkerConnection:
    """Implements `penstock_jobs.queue.worker_connection.WorkerConnection`."""

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
        """`queue` replaces the request queue of the type; `responses` is an exchange that replaces
        the response exchange of each type, and queues to bind to it."""
        self._kinds = tuple(kinds)
        self._queue = queue
        self._responses = responses
        self._durability = durability
        self._prefetch = self._wanted_prefetch = prefetch
        self._link = AmqpRecoveringConnection(
            address, name, self._prepare, retry_seconds=retry_seconds
        )
        self._listener: WorkerListener
        self._transactions = TransactionBatcher()
        self._requests: AmqpClientChannel | None = None
        self._progress: AmqpClientChannel | None = None
        self._consumers: list[str] = []
        self._consumer_number = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def epoch(self) -> int:
        return self._transactions.epoch

    async def open(self, listener: WorkerListener) -> None:
        """RabbitMQ closes the connection of a worker that reads a stream while another one declares
        it, with 506 or 541, so a worker that starts at the same moment connects again."""
        self._listener = self._transactions.listener = listener
        for remaining in reversed(range(_OPEN_ATTEMPTS)):
            try:
                await self._link.open()
                return
            except PenstockError as error:
                closed = isinstance(
                    error.__cause__ or error, ResourceExhausted | AmqpConnectionLost
                )
                if not (remaining and closed):
                    raise
            await asyncio.sleep(_OPEN_SECONDS)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._link.close()

    async def failed(self) -> Exception:
        assert self._link.failed is not None
        return await asyncio.shield(self._link.failed)

    async def _prepare(self, connection: AmqpClientConnection) -> None:
        for kind in self._kinds:
            await declare(connection, kind, self._durability, self._queue)
            await declare_responses(connection, kind, *self._responses, self._durability)
        self._progress = await connection.channel()
        await receive_cancel_requests(connection, self._listener.cancel_requested)
        channel = await connection.channel()
        channel.on_deliveries = self._receive
        channel.on_closed = lambda error: self._channel_closed(connection, error)
        channel.on_cancelled = lambda _: (
            connection.abandon()
        )  # reconnect to declare its queue again
        await channel.select()
        self._transactions.attach(channel)
        self._requests = channel
        self._consumers.clear()
        self._prefetch = 0
        await self._apply_prefetch()

    async def _consume(self, channel: AmqpClientChannel) -> None:
        """One consumer per type; its tag begins with the type and is unique on the channel."""
        if self._prefetch:
            await channel.prefetch(self._prefetch)
            for kind in self._kinds:
                self._consumer_number += 1
                consumer = f"{kind}.{self._consumer_number}"
                self._consumers.append(consumer)
                await channel.consume(self._queue or request_name(kind), consumer)

    def _channel_closed(self, connection: AmqpClientConnection, error: PenstockError) -> None:
        self._requests = None
        unconfirmed = self._transactions.detach()
        if not connection.lost.done():
            log.warning("request channel closed by broker", reason=str(error))
            connection.abandon()
        self._listener.connection_lost()
        self._listener.unconfirmed(unconfirmed)

    def _receive(self, contents: list[AmqpContent]) -> None:
        epoch = self.epoch
        deliveries = []
        for content in contents:
            self._transactions.add_delivery(content.tag)
            try:
                properties = decode_header(content.header)
            except WireSyntaxError:
                properties = BasicProperties(delivery_mode=PERSISTENT)
            deliveries.append(
                JobDelivery(
                    content.consumer.partition(".")[0],
                    content.tag,
                    epoch,
                    content.body,
                    properties,
                    content.redelivered,
                )
            )
        self._listener.received(deliveries)

    def set_prefetch(self, prefetch: int) -> None:
        self._wanted_prefetch = prefetch
        if not self._transactions.paused:
            self._transactions.paused = True
            self._start(self._change_prefetch())

    async def _change_prefetch(self) -> None:
        """Between commits: RabbitMQ closes a channel that gets another method during a commit."""
        await self._transactions.wait_committed()
        with suppress(PenstockError):  # a new connection starts with the wanted prefetch
            await self._apply_prefetch()

    async def _apply_prefetch(self) -> None:
        """The loop covers a prefetch that changes meanwhile."""
        self._transactions.paused = True
        try:
            while (
                channel := self._requests
            ) is not None and self._wanted_prefetch != self._prefetch:
                while self._consumers:
                    await channel.cancel(self._consumers.pop())
                self._prefetch = self._wanted_prefetch
                await self._consume(channel)
        finally:
            self._transactions.resume()

    def settle(self, settlement: JobSettlement) -> None:
        self._transactions.settle(settlement)

    def requeue(self, delivery: JobDelivery) -> None:
        self._transactions.requeue(delivery)

    def retry_later(self, settlement: JobSettlement, retry: JobMessage, seconds: float) -> None:
        self._start(self._retry_later(settlement, retry, seconds))

    async def _retry_later(
        self, settlement: JobSettlement, retry: JobMessage, seconds: float
    ) -> None:
        """The retry queue is declared each time, because it expires when it is not used."""
        kind = settlement.delivery.kind
        level = math.ceil(seconds)
        try:
            connection = await self._link.connection()
            channel = await connection.channel()
            await declare_retry(channel, kind, level, self._queue or request_name(kind))
            await channel.close()
        except PenstockError as error:
            # Without the queue the request would be lost, so it is requeued at once.
            log.warning("retry queue unavailable, request requeued", reason=str(error))
            self.requeue(settlement.delivery)
            self._listener.unconfirmed([settlement])
            return
        delayed = JobMessage("", retry_name(kind, level), retry.body, retry.properties)
        messages = [*settlement.messages, delayed]
        self.settle(JobSettlement(settlement.delivery, messages, settlement.job))

    async def flush(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self._transactions.wait_idle()

    def publish_progress(self, message: JobMessage) -> None:
        channel = self._progress
        if channel is not None and channel.failure is None:
            channel.publish(message.exchange, message.key, message.body, message.properties)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class TransactionBatcher:
    """Settles requests on a channel in transactions.

    A transaction has the final responses and the acknowledgements of their requests, so a killed
    worker leaves both or neither. Settlements that arrive during a commit form the next
    transaction. A delivery can be settled on its own channel only; each channel has an epoch.
    """

    listener: WorkerListener  #: set before a channel is attached

    def __init__(self) -> None:
        self.epoch = 0
        self.paused = False  #: no commit is started, so that the channel can be used otherwise
        self._channel: AmqpClientChannel | None = None
        self._unacknowledged: dict[int, None] = {}  # tags, in order
        self._ready: list[JobSettlement] = []
        self._requeued: list[JobDelivery] = []
        self._committing: list[JobSettlement] = []
        self._scheduled = False
        self._idle = asyncio.Event()  # nothing is left to settle
        self._idle.set()
        self._no_commit = asyncio.Event()
        self._no_commit.set()

    def attach(self, channel: AmqpClientChannel) -> None:
        self._channel = channel
        self._unacknowledged.clear()
        self.epoch += 1

    def detach(self) -> list[JobSettlement]:
        """The channel closed. Returns the settlements that are not confirmed."""
        self._channel = None
        self.epoch += 1
        unconfirmed = self._committing + self._ready
        self._committing, self._ready, self._requeued = [], [], []
        self._idle.set()
        self._no_commit.set()
        return unconfirmed

    def resume(self) -> None:
        self.paused = False
        if self._ready or self._requeued:
            self._schedule()

    async def wait_committed(self) -> None:
        await self._no_commit.wait()

    async def wait_idle(self) -> None:
        await self._idle.wait()

    def add_delivery(self, tag: int) -> None:
        self._unacknowledged[tag] = None

    def settle(self, settlement: JobSettlement) -> None:
        self._ready.append(settlement)
        self._schedule()

    def requeue(self, delivery: JobDelivery) -> None:
        if delivery.epoch == self.epoch:
            self._requeued.append(delivery)
            self._schedule()

    def _schedule(self) -> None:
        self._idle.clear()
        if not self._scheduled and not self.paused and self._no_commit.is_set():
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._commit)

    def _commit(self) -> None:
        """Commit everything that is ready, in one transaction and one write."""
        self._scheduled = False
        if self.paused:
            return
        channel, current = self._channel, self.epoch
        stale = [each for each in self._ready if each.delivery.epoch != current]
        batch = [each for each in self._ready if each.delivery.epoch == current]
        requeued, self._ready, self._requeued = self._requeued, [], []
        if stale:
            self.listener.unconfirmed(stale)
        if channel is None or not (batch or requeued):
            self._idle.set()
            return
        for settlement in batch:
            for message in settlement.messages:
                channel.publish(message.exchange, message.key, message.body, message.properties)
        acknowledge_all(channel, self._unacknowledged, {each.delivery.tag for each in batch})
        for delivery in requeued:
            self._unacknowledged.pop(delivery.tag, None)
            channel.reject(delivery.tag, requeue=True)
        self._committing = batch
        self._no_commit.clear()
        channel.commit().add_done_callback(self._committed)

    def _committed(self, answer: asyncio.Future[MethodArguments]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return  # `detach` has reported it
        batch, self._committing = self._committing, []
        self._no_commit.set()
        self.listener.settled(batch)
        if self._ready or self._requeued:
            self._schedule()
        else:
            self._idle.set()


async def receive_cancel_requests(
    connection: AmqpClientConnection, cancel_requested: Callable[[CancelRequest], None]
) -> None:
    """Consume the stream from its first message. Returns when the stored cancel requests are read:
    when a mark, published after them, is received."""
    mark = json.dumps({"mark": uuid.uuid4().hex}).encode()
    caught_up = asyncio.Event()
    try:
        await declare_control(connection)
        channel = await connection.channel()

        def receive(contents: list[AmqpContent]) -> None:
            for content in contents:
                if (cancel_request := read_cancel_request(content.body)) is not None:
                    cancel_requested(cancel_request)
                elif content.body == mark:
                    caught_up.set()
            channel.ack(contents[-1].tag, multiple=True)

        channel.on_deliveries = receive
        channel.publish(
            "", CONTROL, mark, BasicProperties("application/json", delivery_mode=PERSISTENT)
        )
        await channel.prefetch(_CONTROL_PREFETCH)
        await channel.consume(CONTROL, "cancel", {"x-stream-offset": "first"})
        async with asyncio.timeout(CATCH_UP_SECONDS):
            await caught_up.wait()
    except TimeoutError:
        log.warning("cancel request replay timed out", stream=CONTROL)
    except PenstockError as error:
        if connection.lost.done():
            raise
        log.warning("cancel requests unavailable: the broker has no streams", reason=str(error))
