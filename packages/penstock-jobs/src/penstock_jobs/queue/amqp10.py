"""A worker's and a requester's connection over AMQP 1.0, on the patterns of the client.

AMQP 1.0 as brokers implement it has no transactions: the response is confirmed first, then the
request is acknowledged. A worker that is killed in between leaves the request to be answered again;
receivers deduplicate by message id. Exchanges cannot be declared over AMQP 1.0, so they are
declared over 0-9-1 where the broker speaks it on the same port. Responses published while a
requester is disconnected are lost to it.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote

from penstock.client import (
    Fabric,
    FabricClosed,
    MessageReceiver,
    ReceivedMessage,
    connect,
)
from penstock.client.amqp091.connection import AmqpClientConnection
from penstock.client.amqp091.connection import connect as connect_amqp091
from penstock.client.amqp10.connection import Amqp10RecoveringConnection
from penstock.client.amqp10.consumer import queue_address
from penstock.client.amqp10.endpoint import parse_endpoint
from penstock.client.amqp10.publisher import Amqp10Publisher
from penstock.client.message import Body
from penstock.core.basic_properties import PERSISTENT, BasicProperties
from penstock.core.errors import NotFound, PenstockError, PreconditionFailed, Unsupported
from penstock.core.logs import get_logger
from penstock.wire.amqp091.address import parse_amqp_url
from penstock.wire.amqp10.message import (
    Amqp10Header,
    Amqp10Message,
    Amqp10Properties,
    encode_message,
)
from penstock.wire.amqp10.values import Timestamp, UByte
from penstock_jobs.formats import MessageFormat
from penstock_jobs.model import JobOptions, JobRequest
from penstock_jobs.queue.properties import REPLY_TO, RequestProperties
from penstock_jobs.queue.requester import (
    DeadLetterChoice,
    FailureCallback,
    ResponseCallback,
    send_request,
    traced_properties,
)
from penstock_jobs.queue.topology import (
    CONTROL,
    HISTORY,
    RESPONSES,
    TYPES,
    Durability,
    dead_name,
    declare,
    declare_control,
    declare_history,
    declare_response_queue,
    declare_response_router,
    declare_responses,
    request_name,
    response_queue,
)
from penstock_jobs.queue.worker_connection import (
    CATCH_UP_SECONDS,
    CancelRequest,
    HistoryMessage,
    JobDelivery,
    JobMessage,
    JobSettlement,
    WorkerListener,
    read_cancel_request,
    write_cancel_request,
)

log = get_logger(__name__)

_FLUSH_SECONDS: Final = 30.0
#: RabbitMQ before 4 closes the connection that attaches to a durable queue by its name.
_OPEN_SECONDS: Final = 10.0
#: How long a broker may take to open the stream of cancel requests.
_CONTROL_SECONDS: Final = 5.0
_CONTROL_MAX_AGE: Final = "7D"
_HISTORY_PREFETCH: Final = 500
#: AMQP 1.0 cannot declare exchanges and bindings.
_DECLARE: Final = "declare it with `penstock job declare --url amqp://…`"


async def declare_over_amqp091(
    url: str, declare: Callable[[AmqpClientConnection], Awaitable[None]]
) -> None:
    """Most brokers speak both protocols on one port. With others, what exists is used."""
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            address = parse_amqp_url(url.replace("+1.0://", "://", 1))
            connection = await connect_amqp091(address, "penstock jobs declarations")
            try:
                await declare(connection)
            finally:
                await connection.close()
    except (PenstockError, TimeoutError) as error:
        log.info("exchanges not declared over AMQP 0-9-1", reason=str(error))


class Amqp10WorkerConnection:
    """Implements `penstock_jobs.queue.worker_connection.WorkerConnection`."""

    def __init__(
        self,
        url: str,
        kinds: Sequence[str],
        prefetch: int,
        *,
        queue: str | None = None,
        responses: tuple[str | None, Sequence[str]] = (None, ()),
        durability: Durability = Durability.DURABLE,
        retry_seconds: float = 0.0,
    ) -> None:
        self._responses = responses
        self._durability = durability
        self.epoch = 1  # the client reconnects by itself
        self._kinds = tuple(kinds)
        self._prefetch = prefetch
        self._queue = queue
        self._url = url
        self._fabric: Fabric = connect(url, retry_seconds=retry_seconds)
        self._publisher = Amqp10JobPublisher(url, retry_seconds)
        self._listener: WorkerListener
        self._receiving = asyncio.Event()
        self._receiving.set()
        self._failed: asyncio.Future[Exception] | None = None
        self._tags = 0
        self._settling: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, listener: WorkerListener) -> None:
        self._listener = listener
        self._failed = asyncio.get_running_loop().create_future()
        try:
            await self._fabric.open()
            await self._publisher.open()
            await declare_over_amqp091(self._url, self._declare)
            caught_up = asyncio.Event()
            self._spawn(self._tasks, self._receive_cancel_requests(caught_up))
            receivers = {kind: await self._open_queue(kind) for kind in self._kinds}
            await _wait_for_cancel_requests(caught_up)
            for kind, receiver in receivers.items():
                self._spawn(self._tasks, self._receive(kind, receiver))
        except BaseException:
            await self.close()
            raise

    async def _declare(self, connection: AmqpClientConnection) -> None:
        for kind in self._kinds:
            await declare(connection, kind, self._durability, self._queue)
            await declare_responses(connection, kind, *self._responses, self._durability)

    async def close(self) -> None:
        for task in (*self._tasks, *self._settling):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._settling, return_exceptions=True)
        await self._publisher.close()
        await self._fabric.close()

    async def failed(self) -> Exception:
        assert self._failed is not None
        return await asyncio.shield(self._failed)

    def set_prefetch(self, prefetch: int) -> None:
        """The client grants credit, so this only pauses and resumes. Messages that the client has
        received by then, no more than there are slots, wait, or are requeued at the end."""
        if prefetch:
            self._receiving.set()
        else:
            self._receiving.clear()

    def settle(self, settlement: JobSettlement) -> None:
        self._spawn(self._settling, self._settle(settlement))

    def requeue(self, delivery: JobDelivery) -> None:
        self._spawn(self._settling, delivery.handle.requeue())

    def retry_later(self, settlement: JobSettlement, retry: JobMessage, seconds: float) -> None:
        """The request stays unacknowledged until the retry, so it is not lost if this worker is."""
        self._spawn(self._tasks, self._retry_later(settlement, retry, seconds))

    def publish_progress(self, message: JobMessage) -> None:
        self._spawn(self._tasks, self._publish_progress(message))

    async def flush(self) -> None:
        if self._settling:
            await asyncio.wait(self._settling, timeout=_FLUSH_SECONDS)

    async def _open_queue(self, kind: str) -> MessageReceiver:
        queue = self._queue or request_name(kind)
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                return await self._fabric.pull(queue, prefetch=self._prefetch).open()
        except TimeoutError:
            raise PreconditionFailed(
                f"the broker does not open the queue {queue} over AMQP 1.0: "
                "declare it with --compatible, or use amqp://"
            ) from None

    async def _receive(self, kind: str, receiver: MessageReceiver) -> None:
        assert self._failed is not None
        while True:
            try:
                await self._receiving.wait()
                message = await receiver.receive()
            except FabricClosed:
                return
            except PenstockError as error:
                if not self._failed.done():
                    self._failed.set_result(error)
                return
            self._tags += 1
            delivery = JobDelivery(
                kind,
                self._tags,
                self.epoch,
                message.body,
                _properties(message),
                message.redelivered,
                message,
            )
            self._listener.received([delivery])

    async def _settle(self, settlement: JobSettlement) -> None:
        try:
            for message in settlement.messages:
                await (await self._publisher.post(message))
        except PenstockError as error:
            log.warning("response not delivered", reason=str(error))
            await settlement.delivery.handle.requeue()
            self._listener.unconfirmed([settlement])
            return
        await settlement.delivery.handle.ack()
        self._listener.settled([settlement])

    async def _retry_later(
        self, settlement: JobSettlement, retry: JobMessage, seconds: float
    ) -> None:
        for message in settlement.messages:
            await self._publish_progress(message)
        await asyncio.sleep(min(seconds, int(retry.properties.expiration or 0) / 1000))
        queue = self._queue or request_name(settlement.delivery.kind)
        request = JobMessage("", queue, retry.body, retry.properties)
        self.settle(JobSettlement(settlement.delivery, [request], settlement.job))

    async def _publish_progress(self, message: JobMessage) -> None:
        try:
            await self._publisher.post(message)
        except PenstockError as error:
            log.debug("progress not published", reason=str(error))

    async def _receive_cancel_requests(self, caught_up: asyncio.Event) -> None:
        """From the first stored one. The mark is published after them, and creates the stream if it
        does not exist."""
        mark = json.dumps({"mark": uuid.uuid4().hex}).encode()
        try:
            async with _sent_to_control(self._url, mark) as fabric:
                async for message in fabric.replay(CONTROL, "first"):
                    if (cancel_request := read_cancel_request(message.body)) is not None:
                        self._listener.cancel_requested(cancel_request)
                    elif message.body == mark:
                        caught_up.set()
        except PenstockError as error:
            log.warning("cancel requests unavailable", reason=str(error))
        finally:
            caught_up.set()

    def _spawn(self, group: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        group.add(task)
        task.add_done_callback(group.discard)


async def _wait_for_cancel_requests(caught_up: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(CATCH_UP_SECONDS):
            await caught_up.wait()
    except TimeoutError:
        log.warning("cancel request replay timed out", stream=CONTROL)


class Amqp10JobPublisher:
    """Publishes messages with all their properties, such as the priority and the reply-to."""

    def __init__(self, url: str, retry_seconds: float) -> None:
        endpoint = parse_endpoint(url)
        self._connection = Amqp10RecoveringConnection(endpoint, "-jobs", None, retry_seconds)
        self._publishers: dict[str, Amqp10Publisher] = {}

    @property
    def is_rabbitmq_4(self) -> bool:
        return self._connection.is_rabbitmq_4

    async def open(self) -> None:
        await self._connection.open()

    async def close(self) -> None:
        for publisher in self._publishers.values():
            await publisher.close()
        await self._connection.close()

    async def post(self, message: JobMessage) -> asyncio.Future[None]:
        """The future is done when the broker has confirmed it."""
        await self._connection.open()
        is_queue = not message.exchange
        to: str | None = None
        address = queue_address(message.key)
        if message.exchange:
            address = f"/exchange/{quote(message.exchange, safe='')}"
            if self._connection.is_rabbitmq_4:  # a target has a fixed routing key there
                to, address = _exchange_address(message.exchange, message.key), _RELAY
        publisher = self._publishers.get(address)
        if publisher is None:
            publisher = self._publishers[address] = Amqp10Publisher(
                self._connection, address or None, mandatory=is_queue, makes=is_queue
            )
        reply_to = message.properties.reply_to
        if reply_to:
            reply_to = self._connection.queue_address(queue_address(reply_to))
        return await publisher.post(_payload(message, to, reply_to))


#: Of the anonymous relay, which routes by the address of each message.
_RELAY: Final = ""


def _exchange_address(exchange: str, key: str) -> str:
    address = f"/exchanges/{quote(exchange, safe='')}"
    return f"{address}/{quote(key, safe='')}" if key else address


def _payload(message: JobMessage, to: str | None, reply_to: str | None) -> bytes:
    """`to` and `reply_to` are addresses."""
    given = message.properties
    headers = dict(given.headers or {})
    if given.reply_to:  # RabbitMQ before 4 does not pass every reply-to on
        headers[REPLY_TO] = given.reply_to
    seconds = time.time() if given.timestamp is None else given.timestamp
    return encode_message(
        Amqp10Message(
            message.body,
            header=Amqp10Header(
                durable=given.persistent,
                priority=None if given.priority is None else UByte(given.priority),
            ),
            properties=Amqp10Properties(
                message_id=given.message_id or uuid.uuid4().hex,
                to=to,
                subject=message.key if message.exchange else None,
                reply_to=reply_to,
                correlation_id=given.correlation_id,
                content_type=given.content_type,
                creation_time=Timestamp(int(seconds * 1000)),
            ),
            application_properties=headers or None,
        )
    )


def _properties(message: ReceivedMessage) -> BasicProperties:
    return BasicProperties(
        message.content_type,
        dict(message.headers) or None,
        PERSISTENT,
        priority=message.priority,
        correlation_id=message.correlation_id,
        reply_to=_reply_key(message.reply_to),
        message_id=message.message_id,
        timestamp=None if message.timestamp is None else int(message.timestamp.timestamp()),
    )


def _reply_key(reply_to: str | None) -> str | None:
    """Over AMQP 1.0 a reply-to is the address of a queue; over 0-9-1 it was a routing key."""
    for prefix in ("/queues/", "/queue/"):
        if reply_to is not None and reply_to.startswith(prefix):
            return unquote(reply_to.removeprefix(prefix))
    return reply_to


@asynccontextmanager
async def _sent_to_control(url: str, body: Body) -> AsyncIterator[Fabric]:
    """Publish to the stream of cancel requests, on a connection of its own: RabbitMQ before 4
    closes the connection that asks for a stream, and from 4 on it does not create one."""
    await declare_over_amqp091(url, declare_control)
    async with connect(url, retry_seconds=_CONTROL_SECONDS) as fabric:
        try:
            async with asyncio.timeout(_CONTROL_SECONDS):
                await fabric.stream(CONTROL, max_age=_CONTROL_MAX_AGE).send(body)
        except TimeoutError:
            raise Unsupported("the broker has no streams over AMQP 1.0: use amqp://") from None
        yield fabric


class Amqp10HistorySource:
    """Implements `penstock_jobs.history.recorder.HistorySource`."""

    def __init__(self, url: str, retry_seconds: float = 0.0) -> None:
        self._url = url
        self._fabric: Fabric = connect(url, retry_seconds=retry_seconds)
        self._receiving: asyncio.Task[None] | None = None
        self._acknowledging: set[asyncio.Task[None]] = set()

    async def open(self, received: Callable[[list[HistoryMessage]], None]) -> None:
        await self._fabric.open()
        await declare_over_amqp091(self._url, declare_history)
        receiver = self._fabric.pull(HISTORY, prefetch=_HISTORY_PREFETCH)
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                await receiver.open()
        except (TimeoutError, NotFound):
            await self._fabric.close()
            raise NotFound(f"no queue {HISTORY}: {_DECLARE}") from None
        except BaseException:
            await self._fabric.close()
            raise
        self._receiving = asyncio.create_task(self._receive(receiver, received))

    async def close(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.gather(self._receiving, return_exceptions=True)
        await asyncio.gather(*self._acknowledging, return_exceptions=True)
        await self._fabric.close()

    async def _receive(
        self, receiver: MessageReceiver, received: Callable[[list[HistoryMessage]], None]
    ) -> None:
        with suppress(FabricClosed):
            async for message in receiver:
                acknowledge = partial(self._acknowledge, message)
                received([HistoryMessage(message.body, _properties(message), acknowledge)])

    def _acknowledge(self, message: ReceivedMessage) -> None:
        task = asyncio.create_task(message.ack())
        self._acknowledging.add(task)
        task.add_done_callback(self._acknowledging.discard)


class Amqp10JobRequester:
    """Implements `penstock_jobs.queue.requester.JobRequester`."""

    def __init__(
        self, url: str, durability: Durability = Durability.DURABLE, retry_seconds: float = 0.0
    ) -> None:
        self._url = url
        self._durability = durability
        self._declared: set[str] = set()
        self._publisher = Amqp10JobPublisher(url, retry_seconds)

    @property
    def is_rabbitmq_4(self) -> bool:
        return self._publisher.is_rabbitmq_4

    async def open(self) -> None:
        await self._publisher.open()

    async def close(self) -> None:
        await self._publisher.close()

    async def send(self, kind: str, body: bytes, properties: BasicProperties) -> None:
        await self._declare(kind)
        exchange = request_name(kind)
        with traced_properties(exchange, properties) as traced:
            await (await self._publisher.post(JobMessage(exchange, "", body, traced)))

    async def cancel(self, identity: str, run: int | None = None) -> None:
        body = write_cancel_request(CancelRequest(identity, time.time(), run))
        async with _sent_to_control(self._url, body):
            return

    async def dead(
        self, kinds: Collection[str] = TYPES, limit: int = 1_000
    ) -> list[tuple[JobRequest, str]]:
        choice = DeadLetterChoice(())
        await self._replay(kinds, limit, choice)
        return choice.letters

    async def replay(self, ids: Collection[str] | None = None, limit: int = 10_000) -> list[str]:
        choice = DeadLetterChoice(ids)
        await self._replay(TYPES, limit, choice)
        return choice.replayed

    async def _replay(self, kinds: Collection[str], limit: int, choice: DeadLetterChoice) -> None:
        """Read each queue up to a mark, published after the dead letters. A chosen one is submitted
        before it is acknowledged, so one that is submitted twice has the same run."""
        async with connect(self._url) as fabric:
            for kind in kinds:
                await self._declare(kind)
                queue = dead_name(kind)
                mark = uuid.uuid4().hex
                properties = BasicProperties(message_id=mark)
                await (await self._publisher.post(JobMessage("", queue, b"mark", properties)))
                receiver = await fabric.pull(queue, prefetch=limit + 1).open()
                read = 0
                while (message := await receiver.receive()).message_id != mark:
                    read += 1
                    given = _properties(message)
                    again = choice.read(message.body, given) if read <= limit else None
                    if again is not None:
                        await self.send(kind, message.body, again)
                        await message.ack()
                await message.ack()
                await receiver.close()  # requeues the others

    async def _declare(self, kind: str) -> None:
        if kind not in self._declared:
            await declare_over_amqp091(
                self._url, lambda connection: declare(connection, kind, self._durability)
            )
            self._declared.add(kind)


class Amqp10RequesterConnection:
    """Implements `penstock_jobs.queue.requester.RequesterConnection`."""

    def __init__(
        self, url: str, durability: Durability = Durability.DURABLE, retry_seconds: float = 0.0
    ) -> None:
        self._url = url
        self._token = uuid.uuid4().hex
        self._requester = Amqp10JobRequester(url, durability, retry_seconds)
        self._fabric: Fabric = connect(url, retry_seconds=retry_seconds)
        self._receiving: asyncio.Task[None] | None = None

    async def open(self, on_response: ResponseCallback, on_failure: FailureCallback) -> None:
        await self._requester.open()
        try:
            if self._requester.is_rabbitmq_4:  # its consumers cannot have exchanges as sources
                await declare_over_amqp091(self._url, self._declare_queue)
                receiver = self._fabric.pull(response_queue(self._token))
            else:
                await declare_over_amqp091(self._url, declare_response_router)
                receiver = self._fabric.subscribe(self._token, exchange=RESPONSES)
            async with asyncio.timeout(_OPEN_SECONDS):
                await receiver.open()
        except TimeoutError:
            await self.close()
            raise NotFound(f"no exchange {RESPONSES}: {_DECLARE}") from None
        except BaseException:
            await self.close()
            raise
        self._receiving = asyncio.create_task(self._receive(receiver, on_response, on_failure))

    async def _declare_queue(self, connection: AmqpClientConnection) -> None:
        await declare_response_queue(await connection.channel(), self._token)

    async def send(self, request: JobRequest, options: JobOptions, form: MessageFormat) -> None:
        given = RequestProperties(reply_to=self._token, options=options)
        await send_request(self._requester, request, form, given)

    async def cancel(self, identity: str) -> None:
        await self._requester.cancel(identity)

    async def close(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.gather(self._receiving, return_exceptions=True)
        await self._requester.close()
        await self._fabric.close()

    async def _receive(
        self, receiver: MessageReceiver, on_response: ResponseCallback, on_failure: FailureCallback
    ) -> None:
        try:
            async for message in receiver:
                on_response(message.body)
        except PenstockError as error:
            on_failure(error)
