"""Receiving across reconnects.

An inlet keeps a consumer on its source for as long as it is open: whenever a channel ends, a new
one is attached and goes on. Between the socket and the program lies a buffer no longer than the
prefetch. When a connection breaks, what a redelivering source had put there is dropped, for it
comes again; what another source had put there is all there is of it, and is kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from aiormq import Channel
from aiormq import exceptions as aiormq
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic

from penstock.client.amqp.connection import (
    AioPikaConnection,
    RetryOnNewChannel,
    close_quietly,
    is_transient,
    to_penstock_error,
)
from penstock.client.amqp.publisher import TRANSIENT, AmqpPublisher, encode_message
from penstock.client.errors import FabricClosed, RemoteError
from penstock.client.fabric import StreamStart
from penstock.client.message import Body, ReceivedMessage
from penstock.client.receiver import DeliveryBuffer
from penstock.core.errors import PenstockError, Unsupported
from penstock.core.logs import get_logger

log = get_logger(__name__)


class AmqpConsumer:
    """Keeps `penstock.client.receiver.RecoveringConsumer`."""

    def __init__(
        self, connection: AioPikaConnection, source: AmqpSource, replies: AmqpPublisher
    ) -> None:
        self._connection = connection
        self._source = source
        self._replies = replies
        self._arrivals: DeliveryBuffer[DeliveredMessage] = DeliveryBuffer()
        self._attached = asyncio.Event()
        self._over = asyncio.Event()  #: the present channel or its consumer has ended
        self._keeper: asyncio.Task[None] | None = None
        self._channel: Channel | None = None
        self._unsettled = 0  #: handed to the program since the last credit was given
        self._giving: set[asyncio.Task[None]] = set()  #: that credit, on its way

    async def open(self) -> None:
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep_attached())
        await self._attached.wait()
        self._arrivals.check()

    async def receive(self) -> ReceivedMessage:
        await self.open()
        delivered = await self._arrivals.take()
        # From here on nothing is awaited: whoever is cancelled while it waits has lost nothing.
        if self._source.redelivers:
            tag = delivered.delivery_tag or 0
        else:
            tag = 0
            self._give_credit(delivered)
        return read_message(delivered, AmqpDelivery(delivered, tag, self._replies))

    async def close(self) -> None:
        self._fail(FabricClosed("the fabric was closed"))
        tasks = [*self._giving, *([self._keeper] if self._keeper else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._channel is not None:
            await close_quietly(self._channel)
        self._arrivals.clear()

    async def _keep_attached(self) -> None:
        while True:
            try:
                channel = await self._connection.channel(self._attach)
            except Exception as error:
                self._fail(to_penstock_error(error))
                return
            self._attached.set()
            await self._over.wait()
            if self._source.redelivers:
                self._arrivals.clear()
            await close_quietly(channel)

    async def _attach(self, channel: Channel) -> None:
        """Begin to consume; `over` is set when the channel or the consumer has ended."""
        self._channel = channel
        self._unsettled = 0
        self._over = over = asyncio.Event()
        channel.closing.add_done_callback(lambda _: over.set())
        channel.on_consumer_cancel_callbacks.add(lambda _: over.set())
        await channel.basic_qos(prefetch_count=self._source.prefetch)
        queue, arguments = await self._source.attach(channel)
        await channel.basic_consume(queue, self._arrive, arguments=arguments)

    async def _arrive(self, delivered: DeliveredMessage) -> None:
        if delivered.channel is self._channel and self._source.admit(delivered):
            self._arrivals.put(delivered)

    def _give_credit(self, delivered: DeliveredMessage) -> None:
        """Acknowledge in bundles what the program has taken, so that more may come."""
        channel = self._channel
        if channel is None or delivered.channel is not channel:
            return
        self._unsettled += 1
        if self._unsettled * 2 >= self._source.prefetch:
            self._unsettled = 0
            credit = AmqpDelivery(delivered, delivered.delivery_tag or 0, self._replies)
            giving = asyncio.create_task(_send_credit(credit))
            self._giving.add(giving)
            giving.add_done_callback(self._giving.discard)

    def _fail(self, error: PenstockError) -> None:
        self._arrivals.fail(error)
        self._attached.set()


async def _send_credit(credit: AmqpDelivery) -> None:
    """A broker that will not have it ends the channel, and the next has credit of its own."""
    try:
        await credit.ack(upto=True)
    except Exception as error:
        log.debug("no credit given", reason=str(error))


# Where messages come from: what each pattern declares and consumes.
#
# A source is attached to every new channel in turn, so it declares all it needs each time and knows
# where to go on. Whether it `redelivers` decides how it is received: a source that does hands out
# again what was not acknowledged, so the receiver acknowledges when done; from one that does not,
# acknowledgements are only credit for more.

STREAM_OFFSET: Final = "x-stream-offset"

Arguments = dict[str, Any]


class AmqpSource(Protocol):
    """What an inlet draws from."""

    prefetch: int
    redelivers: bool

    async def attach(self, channel: Channel) -> tuple[str, Arguments]:
        """Declare what is needed; the queue to consume and the arguments to consume it with."""

    def admit(self, delivered: DeliveredMessage) -> bool:
        """Whether the program should see this message."""


class WorkQueueDeclaration:
    """A durable queue, declared so, or taken as it is found when it was declared otherwise."""

    __slots__ = ("_found", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._found = False

    async def declare(self, channel: Channel) -> None:
        try:
            await channel.queue_declare(self.name, durable=True, passive=self._found)
        except aiormq.ChannelPreconditionFailed:
            if self._found:
                raise
            self._found = True
            raise RetryOnNewChannel from None
        except aiormq.ChannelNotFoundEntity:
            if not self._found:
                raise
            self._found = False
            raise RetryOnNewChannel from None


class TopicExchangeDeclaration:
    """A topic exchange, declared so, or taken as it is found where it may not be declared.

    Those named `amq.` are always there.
    """

    __slots__ = ("_found", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._found = name.startswith("amq.")

    async def declare(self, channel: Channel) -> None:
        if self.name.startswith("amq."):
            return
        try:
            await channel.exchange_declare(
                self.name, exchange_type="topic", durable=True, passive=self._found
            )
        except (aiormq.ChannelPreconditionFailed, aiormq.ChannelAccessRefused):
            if self._found:
                raise
            self._found = True
            raise RetryOnNewChannel from None
        except aiormq.ChannelNotFoundEntity:
            self._found = False  # by the next attempt it may be there, or ours to make
            raise


class AmqpWorkQueueSource:
    """Push/pull: items of a work queue, each to one of those who pull."""

    redelivers = True

    def __init__(self, queue: str, prefetch: int) -> None:
        self.prefetch = prefetch
        self._queue = WorkQueueDeclaration(queue)

    async def attach(self, channel: Channel) -> tuple[str, Arguments]:
        await self._queue.declare(channel)
        return self._queue.name, {}

    def admit(self, delivered: DeliveredMessage) -> bool:
        return True


class AmqpRequestSource:
    """Request/reply: the requests to a service. The queue goes with the last who serves it, so
    that a request nobody would answer is returned at once."""

    redelivers = True

    def __init__(self, service: str, prefetch: int) -> None:
        self.prefetch = prefetch
        self._service = service

    async def attach(self, channel: Channel) -> tuple[str, Arguments]:
        await channel.queue_declare(self._service, durable=False, auto_delete=True)
        return self._service, {}

    def admit(self, delivered: DeliveredMessage) -> bool:
        return True


class AmqpSubscriptionSource:
    """Publish/subscribe: copies of what matches, from now on; or, with a name, since it was made.

    Without a name the queue is the connection's own and ends with it: what is published while the
    connection is broken is not seen.
    """

    def __init__(
        self, patterns: Sequence[str], exchange: str, name: str | None, prefetch: int
    ) -> None:
        self.prefetch = prefetch
        self.redelivers = name is not None
        self._patterns = patterns
        self._exchange = TopicExchangeDeclaration(exchange)
        self._queue = None if name is None else WorkQueueDeclaration(name)

    async def attach(self, channel: Channel) -> tuple[str, Arguments]:
        await self._exchange.declare(channel)
        if self._queue is None:
            declared = await channel.queue_declare("", exclusive=True, auto_delete=True)
            queue = str(declared.queue)
        else:
            await self._queue.declare(channel)
            queue = self._queue.name
        for pattern in self._patterns:
            await channel.queue_bind(queue, self._exchange.name, pattern)
        return queue, {}

    def admit(self, delivered: DeliveredMessage) -> bool:
        return True


class AmqpStreamSource:
    """A stream from a point on; after a break, from the message after the last one seen."""

    redelivers = False

    def __init__(self, stream: str, start: StreamStart, prefetch: int) -> None:
        self.prefetch = prefetch
        self._stream = stream
        self._start = _stream_offset(start)
        self._last = -1

    async def attach(self, channel: Channel) -> tuple[str, Arguments]:
        await channel.queue_declare(self._stream, durable=True, passive=True)
        begin = self._start if self._last < 0 else self._last + 1
        if self._start == "next":
            # Should the connection break before the first message, "next" would then mean later.
            self._start = datetime.now(UTC)
        return self._stream, {STREAM_OFFSET: begin}

    def admit(self, delivered: DeliveredMessage) -> bool:
        offset = offset_of(delivered)
        if offset is None or offset <= self._last:
            return False
        self._last = offset
        return True


def offset_of(delivered: DeliveredMessage) -> int | None:
    headers = delivered.header.properties.headers or {}
    offset = headers.get(STREAM_OFFSET)
    return offset if isinstance(offset, int) else None


async def declare_stream(
    channel: Channel,
    name: str,
    subjects: Sequence[str],
    exchange: str,
    max_age: str | None,
    max_bytes: int | None,
) -> None:
    arguments: Arguments = {"x-queue-type": "stream"}
    if max_age is not None:
        arguments["x-max-age"] = max_age
    if max_bytes is not None:
        arguments["x-max-length-bytes"] = max_bytes
    await channel.queue_declare(name, durable=True, arguments=arguments)
    for subject in subjects:
        await channel.queue_bind(name, exchange, subject)


def _stream_offset(start: StreamStart) -> str | int | datetime:
    if isinstance(start, timedelta):
        return f"{round(start.total_seconds())}s"
    if isinstance(start, datetime):
        return start.astimezone(UTC)
    return start


# A message as AMQP 0-9-1 delivers it: reading it, settling it, answering it.
#
# A delivery can be settled only on the channel that brought it. When that is gone there is nothing
# to settle: the broker hands the message out again, which is what was promised.

#: The `type` property of an answer that is an error.
ERROR_TYPE: Final = "penstock.error"


class AmqpDelivery:
    """Keeps `penstock.client.message.DeliveryHandle`; tag 0 means there is nothing to settle."""

    __slots__ = ("_delivered", "_replies", "_tag")

    def __init__(self, delivered: DeliveredMessage, tag: int, replies: AmqpPublisher) -> None:
        self._delivered = delivered
        self._tag = tag
        self._replies = replies

    async def ack(self, *, upto: bool = False) -> None:
        tag, self._tag = self._tag, 0
        if tag:
            try:
                await self._delivered.channel.basic_ack(tag, multiple=upto, wait=False)
            except BaseException as error:
                _ignore_closed_channel(error)

    async def reject(self, requeue: bool) -> None:
        tag, self._tag = self._tag, 0
        if tag:
            try:
                await self._delivered.channel.basic_reject(tag, requeue=requeue, wait=False)
            except BaseException as error:
                _ignore_closed_channel(error)

    async def reply(self, body: Body, headers: Mapping[str, Any] | None) -> None:
        await self._answer(*encode_message(body, headers=headers, mode=TRANSIENT))

    async def fail(self, error: BaseException) -> None:
        if isinstance(error, RemoteError):
            kind, reason = error.kind, error.reason
        else:
            kind, reason = type(error).__name__, str(error)
        content, properties = encode_message({"error": kind, "reason": reason}, mode=TRANSIENT)
        properties.message_type = ERROR_TYPE
        await self._answer(content, properties)

    async def _answer(self, content: bytes, properties: Basic.Properties) -> None:
        asked = self._delivered.header.properties
        if not asked.reply_to:
            raise Unsupported("the message asks for no answer: it has no reply_to")
        properties.correlation_id = asked.correlation_id or asked.message_id
        await (await self._replies.post(asked.reply_to, content, properties))


def read_message(delivered: DeliveredMessage, delivery: AmqpDelivery) -> ReceivedMessage:
    properties = delivered.header.properties
    timestamp = properties.timestamp
    headers = {
        name: value for name, value in (properties.headers or {}).items() if name != STREAM_OFFSET
    }
    return ReceivedMessage(
        body=delivered.body,
        address=delivered.routing_key or "",
        content_type=properties.content_type,
        headers=headers,
        message_id=properties.message_id,
        correlation_id=properties.correlation_id,
        reply_to=properties.reply_to,
        timestamp=timestamp if isinstance(timestamp, datetime) else None,
        redelivered=bool(delivered.redelivered),
        offset=offset_of(delivered),
        delivery=delivery,
    )


def read_error(delivered: DeliveredMessage) -> RemoteError | None:
    """The error an answer carries, if it does."""
    if delivered.header.properties.message_type != ERROR_TYPE:
        return None
    try:
        told = json.loads(delivered.body)
        return RemoteError(str(told["error"]), str(told["reason"]))
    except (ValueError, TypeError, KeyError):
        return RemoteError("Error", delivered.body.decode(errors="replace"))


def _ignore_closed_channel(error: BaseException) -> None:
    """The channel went before the word could: the message will be handed out again."""
    if not is_transient(error):
        raise error
    log.debug("not settled, the channel is gone", reason=str(error))
