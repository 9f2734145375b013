"""A worker's broker over AMQP 1.0, by the client's patterns.

AMQP 1.0 as brokers speak it has no transactions: a final response is safe first, and then its
request is acknowledged. A worker that is killed between the two leaves the request to be answered
again; whoever minds goes by the id. Exchanges cannot be declared this way: an `amqp://` worker or
client has to have been there before, once.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import unquote
from uuid import uuid4

from penstock.client import (
    Fabric,
    FabricClosed,
    MessageReceiver,
    MessageSender,
    ReceivedMessage,
    connect,
)
from penstock.client.message import Body
from penstock.core.basic_properties import PERSISTENT, BasicProperties
from penstock.core.errors import NotFound, PenstockError, PreconditionFailed, Unsupported
from penstock.core.logs import get_logger
from penstock_jobs.formats import MessageFormat, write_request
from penstock_jobs.model import JobOptions, JobRequest, write_options
from penstock_jobs.queue.properties import REPLY_TO
from penstock_jobs.queue.requester import FailureCallback, ResponseCallback
from penstock_jobs.queue.topology import CONTROL, RESPONSES, request_name
from penstock_jobs.queue.worker_connection import (
    CancelRequest,
    JobDelivery,
    JobMessage,
    JobSettlement,
    WorkerListener,
    read_cancel_request,
    write_cancel_request,
)

log = get_logger(__name__)

_FLUSH_SECONDS: Final = 30.0
#: RabbitMQ before 4 closes the connection of whoever asks for a durable queue by its name.
_OPEN_SECONDS: Final = 10.0


class Amqp10WorkerConnection:
    """Keeps `penstock_jobs.queue.worker_connection.WorkerConnection`."""

    def __init__(
        self,
        url: str,
        kinds: Sequence[str],
        prefetch: int,
        *,
        queue: str | None = None,
        retry_seconds: float = 0.0,
    ) -> None:
        self.epoch = 1  # the client mends its connections unseen
        self._kinds = tuple(kinds)
        self._prefetch = prefetch
        self._queue = queue
        self._url = url
        self._fabric: Fabric = connect(url, retry_seconds=retry_seconds)
        self._listener: WorkerListener | None = None
        self._outflows: dict[tuple[str, str], MessageSender] = {}
        self._flowing = asyncio.Event()  # requests are taken
        self._flowing.set()
        self._failed: asyncio.Future[Exception] | None = None
        self._tags = 0
        self._settling: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, listener: WorkerListener) -> None:
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

    def settle(self, settlement: JobSettlement) -> None:
        self._spawn(self._settling, self._settle(settlement))

    def give_back(self, delivery: JobDelivery) -> None:
        self._spawn(self._settling, delivery.handle.requeue())

    def delay(self, settlement: JobSettlement, again: JobMessage, seconds: float) -> None:
        """The request stays ours until its time is over: nothing is lost if we are by then."""
        self._spawn(self._tasks, self._delay(settlement, again, seconds))

    def tell(self, message: JobMessage) -> None:
        self._spawn(self._tasks, self._tell(message))

    async def flush(self) -> None:
        if self._settling:
            await asyncio.wait(self._settling, timeout=_FLUSH_SECONDS)

    async def _pull(self, kind: str) -> MessageReceiver:
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

    async def _receive(self, kind: str, inflow: MessageReceiver) -> None:
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
            self._listener.taken([JobDelivery(kind, self._tags, 1, body, said, again, message)])

    async def _settle(self, settlement: JobSettlement) -> None:
        assert self._listener is not None
        try:
            for message in settlement.messages:
                said = message.said
                await self._outflow(message).send(
                    message.body, headers=_headers_of(said), message_id=said.message_id
                )
        except PenstockError as error:
            log.warning("an answer found no way", reason=str(error))
            await settlement.delivery.handle.requeue()
            self._listener.unsettled([settlement])
            return
        await settlement.delivery.handle.ack()
        self._listener.settled([settlement])

    async def _delay(self, settlement: JobSettlement, again: JobMessage, seconds: float) -> None:
        for message in settlement.messages:
            await self._tell(message)
        await asyncio.sleep(min(seconds, int(again.said.expiration or 0) / 1000))
        queue = self._queue or request_name(settlement.delivery.kind)
        waits = JobMessage("", queue, again.body, again.said)
        self.settle(JobSettlement(settlement.delivery, [waits], settlement.token))

    async def _tell(self, message: JobMessage) -> None:
        try:
            await self._outflow(message).post(message.body, headers=_headers_of(message.said))
        except PenstockError as error:
            log.debug("progress was not told", reason=str(error))

    def _outflow(self, message: JobMessage) -> MessageSender:
        if not message.exchange:
            return self._fabric.push(message.key)
        return self._fabric.publisher(message.key, exchange=message.exchange)

    async def _hear_wishes(self) -> None:
        assert self._listener is not None
        try:
            await receive_cancel_requests(self._url, self._listener.cancel_requested)
        except PenstockError as error:
            log.warning("nothing can be cancelled", reason=str(error))

    def _spawn(self, group: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        group.add(task)
        task.add_done_callback(group.discard)


def _reply_key(reply_to: str | None) -> str | None:
    """Over AMQP 1.0 a reply-to is the address of a queue; over 0-9-1 it was a routing key."""
    for prefix in ("/queues/", "/queue/"):
        if reply_to is not None and reply_to.startswith(prefix):
            return unquote(reply_to.removeprefix(prefix))
    return reply_to


def _headers_of(said: BasicProperties) -> dict[str, Any]:
    """What the client's patterns have no place for goes as a header."""
    headers = dict(said.headers or {})
    if said.reply_to is not None:
        headers[REPLY_TO] = said.reply_to
    return headers


def _properties(message: ReceivedMessage) -> BasicProperties:
    time = message.timestamp
    return BasicProperties(
        message.content_type,
        dict(message.headers) or None,
        PERSISTENT,
        correlation_id=message.correlation_id,
        reply_to=_reply_key(message.reply_to),
        message_id=message.message_id,
        timestamp=None if time is None else int(time.timestamp()),
    )


# Wishes about jobs over AMQP 1.0, by a connection of their own.
#
# They are kept in a stream. A broker that has none by this protocol closes the connection of
# whoever asks for one, as RabbitMQ does before 4; that must not be the connection that work comes
# by.

#: So long a broker may take to say that it has the stream.
_CONTROL_SECONDS: Final = 5.0
_CONTROL_MAX_AGE: Final = "7D"


async def send_cancel_request(url: str, cancel_request: CancelRequest) -> None:
    async with _sent_to_control(url, write_cancel_request(cancel_request)):
        return


async def receive_cancel_requests(
    url: str, cancel_requested: Callable[[CancelRequest], None]
) -> None:
    """From the first that is kept, and for good."""
    # Said by whoever comes: the stream is made by it, if it is not there.
    async with _sent_to_control(url, {"mark": uuid4().hex}) as fabric:
        async for message in fabric.replay(CONTROL, "first"):
            if (cancel_request := read_cancel_request(message.body)) is not None:
                cancel_requested(cancel_request)


@asynccontextmanager
async def _sent_to_control(url: str, what: Body) -> AsyncIterator[Fabric]:
    async with connect(url, retry_seconds=_CONTROL_SECONDS) as fabric:
        try:
            async with asyncio.timeout(_CONTROL_SECONDS):
                await fabric.stream(CONTROL, max_age=_CONTROL_MAX_AGE).send(what)
        except TimeoutError:
            raise Unsupported("this broker has no streams over AMQP 1.0: use amqp://") from None
        yield fabric


# A requester's place on a broker over AMQP 1.0, by the client's patterns.
#
# Exchanges cannot be declared this way: an `amqp://` worker or client has to have been there
# before, once. Responses that come while the connection is broken are not heard, and priorities are
# for brokers that are told of them over `amqp://`.


class Amqp10RequesterConnection:
    """Keeps `penstock_jobs.queue.requester.RequesterConnection`."""

    def __init__(self, url: str, retry_seconds: float = 0.0) -> None:
        self._url = url
        self._token = uuid.uuid4().hex
        self._fabric: Fabric = connect(url, retry_seconds=retry_seconds)
        self._listening: asyncio.Task[None] | None = None

    async def open(self, hear: ResponseCallback, fail: FailureCallback) -> None:
        await self._fabric.open()
        inflow = self._fabric.subscribe(self._token, exchange=RESPONSES)
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                await inflow.open()
        except TimeoutError:
            await self._fabric.close()
            raise NotFound(f"there is no exchange {RESPONSES}: start a worker first") from None
        except BaseException:
            await self._fabric.close()
            raise
        self._listening = asyncio.create_task(self._listen(inflow, hear, fail))

    async def send(self, request: JobRequest, options: JobOptions, form: MessageFormat) -> None:
        written = write_request(request, form)
        headers = write_options(options) | {REPLY_TO: self._token}
        requests = self._fabric.publisher("", exchange=request_name(request.type))
        await requests.send(written.body, headers=headers)

    async def cancel(self, identity: str) -> None:
        await send_cancel_request(self._url, CancelRequest(identity, time.time()))

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        await self._fabric.close()

    async def _listen(
        self, inflow: MessageReceiver, hear: ResponseCallback, fail: FailureCallback
    ) -> None:
        try:
            async for message in inflow:  # until it is closed
                hear(message.body)
        except PenstockError as error:
            fail(error)
