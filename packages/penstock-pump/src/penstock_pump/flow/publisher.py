"""Posts and reports to a broker.

Whoever announces goes on when it is safe; many do at a time. With `split` the same fingerprint
always reaches the same of several exchanges, so that winnows can share the work.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

from penstock.client import Fabric
from penstock.client.amqp091.bulk_publisher import BulkPublisher
from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import AmqpClientConnection, AmqpRecoveringConnection
from penstock.client.message import JSON, encode_body
from penstock.core.basic_properties import (
    PERSISTENT,
    TRANSIENT,
    BasicProperties,
    encode_header,
    encode_route,
)
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.wire.amqp091.address import parse_amqp_url
from penstock.wire.amqp091.errors import AmqpConnectionLost
from penstock_pump.flow.message import PumpMessage
from penstock_pump.flow.subscription import declare_exchange, is_mqtt_url
from penstock_pump.plugins import Plugins
from penstock_pump.posts.codec import EncodedPost, PostCodec
from penstock_pump.posts.post import Post
from penstock_pump.posts.reports import PREFIX, PostOutcome, PostReport, write_report
from penstock_pump.posts.topics import mqtt_topic, routing_key, topic_words


@dataclass(frozen=True, slots=True)
class PublishTarget:
    """Where announcements go."""

    url: str
    exchange: str
    prefix: str | None = None  #: in place of the spelling's own
    subtopic: str | None = None  #: in place of the directories
    name_in_topic: bool = False
    split: int = 0
    ttl: float | None = None  #: seconds after which the broker may forget it
    persistent: bool = True  #: it outlives the broker's restart


class PostPublisher:
    def __init__(
        self, sending: PumpPublisher, address: PublishTarget, post_codec: PostCodec
    ) -> None:
        self._sending = sending
        self._address = address
        self._post_codec = post_codec
        self._mqtt = is_mqtt_url(address.url)

    async def announce(self, post: Post) -> None:
        """Returns when it is safe."""
        await self._sending.send(self.addressed(post))

    def addressed(self, post: Post) -> PumpOutgoingMessage:
        """An announcement as it travels."""
        address = self._address
        if address.subtopic is not None:
            words = address.subtopic.split(".")
        else:
            words = topic_words(post.relpath, with_name=address.name_in_topic)
        prefix = address.prefix or self._post_codec.prefix
        return self._written(self._exchange(post), prefix, words, self._post_codec.encode(post))

    async def report(self, report: PostReport) -> None:
        words = topic_words(report.post.relpath, with_name=self._address.name_in_topic)
        exchange = self._address.exchange
        await self._sending.send(self._written(exchange, PREFIX, words, write_report(report)))

    async def repeat(self, pump_message: PumpMessage, post: Post | None = None) -> None:
        """The same message again, as it came, to our exchange."""
        exchange = self._address.exchange if post is None else self._exchange(post)
        written = (
            pump_message.topic,
            pump_message.body,
            pump_message.content_type(),
            pump_message.headers,
        )
        await self._sending.send(self._outgoing(exchange, *written))

    def _exchange(self, post: Post) -> str:
        exchange, split = self._address.exchange, self._address.split
        return f"{exchange}{shard(post, split):02d}" if split > 1 else exchange

    def _written(
        self, exchange: str, prefix: str, words: list[str], encoded: EncodedPost
    ) -> PumpOutgoingMessage:
        if self._mqtt:
            topic = mqtt_topic(exchange, prefix, words)
        else:
            topic = routing_key(prefix, words)
        body, kind = encode_body(encoded.body)
        return self._outgoing(exchange, topic, body, kind, encoded.headers)

    def _outgoing(
        self, exchange: str, topic: str, body: bytes, kind: str | None, headers: Mapping[str, Any]
    ) -> PumpOutgoingMessage:
        ttl, persistent = self._address.ttl, self._address.persistent
        return PumpOutgoingMessage(exchange, topic, body, kind, headers, ttl, persistent)


def shard(post: Post, count: int) -> int:
    """Which of several a fingerprint belongs to; as Sarracenia computes it."""
    return sum(str(post.sum or post.relpath).encode()) % count


# Messages to exchanges, each until the broker has it safe.
#
# Over AMQP 0-9-1 many are under way on one channel, and leave in one write for each turn of the
# loop.
# When the connection breaks, what was not confirmed is sent again over the next, with the same
# message id: a receiver that minds can tell the copies.


@dataclass(frozen=True, slots=True)
class PumpOutgoingMessage:
    """A message as it leaves."""

    exchange: str
    topic: str
    body: bytes
    content_type: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    ttl: float | None = None  #: seconds after which the broker may forget it
    persistent: bool = True


class PumpPublisher(Protocol):
    async def send(self, message: PumpOutgoingMessage) -> None:
        """Returns when it is safe."""


class ExchangePublisher:
    """Keeps `PumpPublisher`; opened once, closed once."""

    def __init__(self, url: str, retry_seconds: float = 0.0) -> None:
        self._link = AmqpRecoveringConnection(
            parse_amqp_url(url), "pump sender", self._prepare, retry_seconds=retry_seconds
        )
        self._channel: AmqpClientChannel | None = None
        self._declared: set[str] = set()
        self._preparing = asyncio.Lock()
        self._ids = message_ids()

    async def open(self) -> None:
        await self._link.open()

    async def close(self) -> None:
        await self._link.close()

    async def send(self, message: PumpOutgoingMessage) -> None:
        said = amqp_properties(message, next(self._ids))
        while True:
            try:
                channel = await self._ready(message.exchange)
                await channel.publish_safely(message.exchange, message.topic, message.body, said)
                return
            except AmqpConnectionLost:
                continue

    async def _prepare(self, connection: AmqpClientConnection) -> None:
        self._declared.clear()
        self._channel = await connection.channel()
        await self._channel.confirm()

    async def _ready(self, exchange: str) -> AmqpClientChannel:
        """A channel that confirms, of a connection on which the exchange is declared."""
        channel = self._channel
        if channel is not None and channel.failure is None and exchange in self._declared:
            return channel
        async with self._preparing:
            connection = await self._link.connection()
            if self._channel is None or self._channel.failure is not None:
                await self._prepare(connection)  # a message was refused, and the channel with it
            if exchange not in self._declared:
                await declare_exchange(connection, exchange)
                self._declared.add(exchange)
            assert self._channel is not None
            return self._channel


class ClientPublisher:
    """Keeps `PumpPublisher`, over the client's patterns: MQTT and AMQP 1.0."""

    def __init__(self, fabric: Fabric, *, mqtt: bool) -> None:
        self._fabric = fabric
        self._mqtt = mqtt

    async def send(self, message: PumpOutgoingMessage) -> None:
        if self._mqtt:
            outflow = self._fabric.publisher(message.topic)
        else:
            outflow = self._fabric.publisher(message.topic, exchange=message.exchange)
        body: Any = message.body
        if message.content_type is not None:
            text = message.body.decode()
            body = json.loads(text) if message.content_type == JSON else text
        await outflow.send(body, headers=message.headers or None, ttl=message.ttl)


def amqp_properties(message: PumpOutgoingMessage, message_id: str) -> BasicProperties:
    """What is said about it over AMQP 0-9-1."""
    ttl = message.ttl
    return BasicProperties(
        message.content_type,
        dict(message.headers) or None,
        PERSISTENT if message.persistent else TRANSIENT,
        message_id=message_id,
        expiration=None if ttl is None else str(max(0, round(ttl * 1000))),
    )


def message_ids() -> Iterator[str]:
    ours = uuid.uuid4().hex[:20]
    return (f"{ours}{number:012x}" for number in itertools.count())


# Announcements by the hundred thousand: many in one write, and one word when all are safe.
#
# Where each announcement has somebody who waits for it, that costs more than a small file does.
# Whoever announces a whole tree needs to know only when all of it is safe. Blocking, and called in
# a thread.


class BulkPostPublisher:
    """Opened by the constructor; `retry_seconds` is how long a broker may be away."""

    def __init__(self, url: str, retry_seconds: float) -> None:
        self._publisher = BulkPublisher(
            parse_amqp_url(url), "pump post", mandatory=False, retry_seconds=retry_seconds
        )
        self._declared: set[str] = set()
        self._ids = message_ids()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._publisher.__exit__(kind, error, trace)

    def send(self, message: PumpOutgoingMessage) -> None:
        """Take a message; waits while too many are under way."""
        if message.exchange not in self._declared:
            self._publisher.declare_exchange(message.exchange, "topic")
            self._declared.add(message.exchange)
        said = amqp_properties(message, next(self._ids))
        self._publisher.publish(
            encode_route(message.exchange, message.topic),
            encode_header(said, len(message.body)),
            message.body,
        )

    def flush(self) -> None:
        """Returns when all of it is safe."""
        self._publisher.flush()


# Reports on their way back: sent, and never in the way of the file they are about.

log = get_logger(__name__)


class ReportPublisher:
    """Keeps `Told`."""

    def __init__(
        self,
        post_publisher: PostPublisher,
        host: str,
        user: str,
        reader: str = "",
        plugins: Plugins | None = None,
    ) -> None:
        self._post_publisher = post_publisher
        self._host = host
        self._user = user
        self._reader = reader
        self._plugins = plugins or Plugins()

    async def __call__(self, post: Post, outcome: PostOutcome, seconds: float) -> None:
        told = PostReport(
            post, outcome.code, outcome.message, self._host, self._user, seconds, self._reader
        )
        report = self._plugins.report(told)
        if report is None:
            return
        try:
            await self._post_publisher.report(report)
        except PenstockError as error:
            log.warning("no report", path=post.relpath, reason=str(error))
