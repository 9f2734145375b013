"""Consuming across reconnects.

A consumer has a channel to its source until it is closed: when the channel ends, another is opened.
Deliveries wait in a buffer that is no longer than the prefetch. After a lost connection, the broker
delivers the messages of a queue again, so the buffer is cleared. Messages of other sources are not
delivered again, so they stay in the buffer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import (
    AmqpRecoveringConnection,
    RetryOnNewChannel,
    SetupChannel,
)
from penstock.client.amqp091.publisher import AmqpPublisher, message_properties
from penstock.client.errors import FabricClosed
from penstock.client.fabric import StreamStart
from penstock.client.message import Body, ReceivedMessage, encode_body
from penstock.client.receiver import DeliveryBuffer
from penstock.client.requester import ERROR_TYPE, error_body
from penstock.core.basic_properties import TRANSIENT, BasicProperties, decode_header
from penstock.core.errors import (
    AccessRefused,
    NotFound,
    PenstockError,
    PreconditionFailed,
    Unsupported,
    WireSyntaxError,
)
from penstock.core.logs import get_logger
from penstock.wire.amqp091.content import AmqpContent

log = get_logger(__name__)


class AmqpArrival(NamedTuple):
    channel: AmqpClientChannel
    content: AmqpContent
    properties: BasicProperties


class AmqpConsumer:
    """Implements `penstock.client.receiver.RecoveringConsumer`."""

    def __init__(
        self, connection: AmqpRecoveringConnection, source: AmqpSource, replies: AmqpPublisher
    ) -> None:
        self._connection = connection
        self._source = source
        self._replies = replies
        self._arrivals: DeliveryBuffer[AmqpArrival] = DeliveryBuffer()
        self._attached = asyncio.Event()
        self._ended = asyncio.Event()  #: the channel was closed or its consumer cancelled
        self._recovery: asyncio.Task[None] | None = None
        self._channel: AmqpClientChannel | None = None
        self._taken = 0  #: deliveries taken since the last acknowledgement that gives credit

    async def open(self) -> None:
        if self._recovery is None:
            self._recovery = asyncio.create_task(self._recover())
        await self._attached.wait()
        self._arrivals.check()

    async def receive(self) -> ReceivedMessage:
        if not self._attached.is_set():
            await self.open()
        arrival = await self._arrivals.take()
        # Nothing is awaited from here on, so a cancelled `receive` loses no message.
        tag = arrival.content.tag
        if not self._source.redelivers:
            self._give_credit(arrival)
            tag = 0
        return read_message(arrival, tag, self._replies)

    async def close(self) -> None:
        self._fail(FabricClosed("the fabric was closed"))
        self._ended.set()
        self._arrivals.clear()
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.gather(self._recovery, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()

    async def _recover(self) -> None:
        while True:
            try:
                channel = await self._connection.channel(self._attach)
            except PenstockError as error:
                self._fail(error)
                return
            self._attached.set()
            await self._ended.wait()
            if self._source.redelivers:
                self._arrivals.clear()
            await channel.close()

    async def _attach(self, channel: AmqpClientChannel) -> None:
        self._channel = channel
        self._taken = 0
        self._ended = ended = asyncio.Event()

        def deliver(contents: list[AmqpContent]) -> None:
            if channel is self._channel and not ended.is_set():
                for content in contents:
                    self._deliver(channel, content)

        channel.on_deliveries = deliver
        channel.on_closed = lambda _: ended.set()
        channel.on_cancelled = lambda _: ended.set()
        await channel.prefetch(self._source.prefetch)
        queue, arguments = await self._source.attach(channel)
        await channel.consume(queue, "", arguments)

    def _deliver(self, channel: AmqpClientChannel, content: AmqpContent) -> None:
        try:
            properties = decode_header(content.header)
        except WireSyntaxError as error:
            log.warning("delivery rejected", routing_key=content.key, reason=str(error))
            channel.reject(content.tag, requeue=False)
            return
        if self._source.admit(properties):
            self._arrivals.put(AmqpArrival(channel, content, properties))

    def _give_credit(self, arrival: AmqpArrival) -> None:
        """Acknowledge taken deliveries in batches, so that the broker sends more."""
        if arrival.channel is not self._channel:
            return
        self._taken += 1
        if self._taken * 2 >= self._source.prefetch:
            self._taken = 0
            arrival.channel.ack(arrival.content.tag, multiple=True)

    def _fail(self, error: PenstockError) -> None:
        self._arrivals.fail(error)
        self._attached.set()


# Sources: what each pattern declares and consumes.

STREAM_OFFSET: Final = "x-stream-offset"

Arguments = dict[str, Any]


class AmqpSource(Protocol):
    """What a consumer consumes. It is attached to every new channel, so it declares all it needs.

    A source that `redelivers` delivers unacknowledged messages again: the program acknowledges
    them. From another source, acknowledgements only give credit.
    """

    prefetch: int
    redelivers: bool

    async def attach(self, channel: AmqpClientChannel) -> tuple[str, Arguments]:
        """Declare what is needed; returns the queue and the arguments to consume it with."""

    def admit(self, properties: BasicProperties) -> bool:
        """Whether the program receives this message."""


class WorkQueueDeclaration:
    """A durable queue, or the existing queue of that name with any other arguments."""

    __slots__ = ("_found", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._found = False

    async def declare(self, channel: AmqpClientChannel) -> None:
        try:
            await channel.declare_queue(self.name, passive=self._found)
        except PreconditionFailed:
            if self._found:
                raise
            self._found = True
            raise RetryOnNewChannel from None
        except NotFound:
            if not self._found:
                raise
            self._found = False
            raise RetryOnNewChannel from None


class TopicExchangeDeclaration:
    """A durable topic exchange, or the existing exchange of that name.

    An existing one is used if it has other arguments, or if the user may not declare exchanges.
    Exchanges named `amq.` always exist.
    """

    __slots__ = ("_found", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._found = name.startswith("amq.")

    async def declare(self, channel: AmqpClientChannel) -> None:
        if self.name.startswith("amq."):
            return
        try:
            await channel.declare_exchange(self.name, "topic", passive=self._found)
        except (PreconditionFailed, AccessRefused):
            if self._found:
                raise
            self._found = True
            raise RetryOnNewChannel from None
        except NotFound:
            self._found = False  # the next attempt declares it again
            raise


class AmqpQueueSource:
    """Each message of a queue goes to one of its consumers."""

    redelivers = True

    def __init__(self, queue: str, prefetch: int, declare: SetupChannel) -> None:
        self.prefetch = prefetch
        self._queue = queue
        self._declare = declare

    async def attach(self, channel: AmqpClientChannel) -> tuple[str, Arguments]:
        await self._declare(channel)
        return self._queue, {}

    def admit(self, properties: BasicProperties) -> bool:
        return True


class AmqpSubscriptionSource:
    """Publish/subscribe: copies of the messages that match.

    With a name the queue is durable. Without one it is exclusive and ends with the connection, so
    messages that are published until the reconnect are missed.
    """

    def __init__(
        self, patterns: Sequence[str], exchange: str, name: str | None, prefetch: int
    ) -> None:
        self.prefetch = prefetch
        self.redelivers = name is not None
        self._patterns = patterns
        self._exchange = TopicExchangeDeclaration(exchange)
        self._queue = None if name is None else WorkQueueDeclaration(name)

    async def attach(self, channel: AmqpClientChannel) -> tuple[str, Arguments]:
        await self._exchange.declare(channel)
        if self._queue is None:
            declared = await channel.declare_queue("", durable=False, exclusive=True)
            queue = str(declared.queue)
        else:
            await self._queue.declare(channel)
            queue = self._queue.name
        for pattern in self._patterns:
            await channel.bind(queue, self._exchange.name, pattern)
        return queue, {}

    def admit(self, properties: BasicProperties) -> bool:
        return True


class AmqpStreamSource:
    """A stream from an offset; after a reconnect, from the message after the last one received."""

    redelivers = False

    def __init__(self, stream: str, start: StreamStart, prefetch: int) -> None:
        self.prefetch = prefetch
        self._stream = stream
        self._start = _offset_argument(start)
        self._last = -1

    async def attach(self, channel: AmqpClientChannel) -> tuple[str, Arguments]:
        await channel.declare_queue(self._stream, passive=True)
        begin = self._start if self._last < 0 else self._last + 1
        if self._start == "next":
            # After a reconnect, "next" would skip what was appended in between.
            self._start = datetime.now(UTC)
        return self._stream, {STREAM_OFFSET: begin}

    def admit(self, properties: BasicProperties) -> bool:
        offset = stream_offset(properties)
        if offset is None or offset <= self._last:
            return False
        self._last = offset
        return True


def stream_offset(properties: BasicProperties) -> int | None:
    offset = (properties.headers or {}).get(STREAM_OFFSET)
    return offset if isinstance(offset, int) else None


def _offset_argument(start: StreamStart) -> str | int | datetime:
    if isinstance(start, timedelta):
        return f"{round(start.total_seconds())}s"
    if isinstance(start, datetime):
        return start.astimezone(UTC)
    return start


# Deliveries.


class AmqpDelivery:
    """Implements `penstock.client.message.DeliveryHandle`. A tag of 0 needs no settlement.

    A delivery is settled on its own channel. If that is closed, the broker delivers the message
    again, and settling does nothing.
    """

    __slots__ = ("_channel", "_replies", "_request", "_tag")

    def __init__(
        self,
        channel: AmqpClientChannel,
        tag: int,
        request: BasicProperties,
        replies: AmqpPublisher,
    ) -> None:
        self._channel = channel
        self._tag = tag
        self._request = request
        self._replies = replies

    async def ack(self) -> None:
        tag, self._tag = self._tag, 0
        if tag:
            self._channel.ack(tag)

    async def reject(self, requeue: bool) -> None:
        tag, self._tag = self._tag, 0
        if tag:
            self._channel.reject(tag, requeue=requeue)

    async def reply(self, body: Body, headers: Mapping[str, Any] | None) -> None:
        await self._reply(body, headers, None)

    async def fail(self, error: BaseException) -> None:
        await self._reply(error_body(error), None, ERROR_TYPE)

    async def _reply(self, body: Body, headers: Mapping[str, Any] | None, kind: str | None) -> None:
        request = self._request
        if not request.reply_to:
            raise Unsupported("the message has no reply_to, so it cannot be replied to")
        content, content_type = encode_body(body)
        properties = message_properties(content_type, headers=headers, mode=TRANSIENT)
        properties.type = kind
        properties.correlation_id = request.correlation_id or request.message_id
        await (await self._replies.post(request.reply_to, content, properties))


def read_message(arrival: AmqpArrival, tag: int, replies: AmqpPublisher) -> ReceivedMessage:
    channel, content, properties = arrival
    headers = properties.headers or {}
    offset = stream_offset(properties)
    if STREAM_OFFSET in headers:
        headers = {name: value for name, value in headers.items() if name != STREAM_OFFSET}
    return ReceivedMessage(
        body=content.body,
        address=content.key,
        content_type=properties.content_type,
        headers=headers,
        message_id=properties.message_id,
        correlation_id=properties.correlation_id,
        reply_to=properties.reply_to,
        timestamp=_timestamp(properties.timestamp),
        redelivered=content.redelivered,
        offset=offset,
        delivery=AmqpDelivery(channel, tag, properties, replies),
    )


def _timestamp(seconds: int | None) -> datetime | None:
    """None for a time that Python cannot represent, such as one after the year 9999."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None
