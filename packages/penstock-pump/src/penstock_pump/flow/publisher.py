"""Publishers of posts and reports: messages to exchanges, each confirmed by the broker.

Over AMQP 0-9-1 many messages are unconfirmed at a time on one channel, written once per pass of the
loop. After a reconnect, unconfirmed messages are published again with the same message id, so
receivers can deduplicate. With `split` a fingerprint (v2) or a path (sr3) always goes to the same
of several exchanges, so that several winnows can share the work.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Protocol, Self

from penstock.client import Fabric
from penstock.client.amqp091.bulk_publisher import BulkPublisher
from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import AmqpClientConnection, AmqpRecoveringConnection
from penstock.client.message import JSON, encode_body
from penstock.client.url import BrokerProtocol, protocol_of
from penstock.core.basic_properties import (
    PERSISTENT,
    TRANSIENT,
    BasicProperties,
    encode_header,
    encode_route,
)
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.core.telemetry import message_spans
from penstock.wire.amqp091.address import parse_amqp_url
from penstock.wire.amqp091.errors import AmqpConnectionLost
from penstock_pump.flow.message import PumpMessage
from penstock_pump.flow.subscription import declare_exchange
from penstock_pump.plugins import Plugins
from penstock_pump.posts.codec import EncodedPost, PostCodec
from penstock_pump.posts.post import Post
from penstock_pump.posts.reports import PREFIX, PostOutcome, PostReport, write_report
from penstock_pump.posts.topics import mqtt_topic, routing_key, topic_words

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PublishTarget:
    url: str
    exchange: str
    prefix: str | None = None  #: replaces the prefix of the format
    subtopic: str | None = None  #: replaces the directories
    topic: str | None = None  #: replaces prefix and directories
    headers: Mapping[str, str] = field(default_factory=dict)  #: added to posts
    name_in_topic: bool = False
    escape_blanks: bool = True  #: in topics, as v2; sr3 does not
    split: int = 0
    split_by_path: bool = False  #: as sr3; else by checksum, as v2
    ttl: float | None = None  #: seconds after which the broker may drop the message
    persistent: bool = True
    base_url: str | None = None  #: replaces that of posts


@dataclass(frozen=True, slots=True)
class PumpOutgoingMessage:
    exchange: str
    topic: str
    body: bytes
    content_type: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    ttl: float | None = None  #: seconds after which the broker may drop the message
    persistent: bool = True


class PumpPublisher(Protocol):
    async def send(self, message: PumpOutgoingMessage) -> None:
        """Returns when the broker has confirmed the message."""


class PostPublisher:
    def __init__(
        self, publisher: PumpPublisher, target: PublishTarget, post_codec: PostCodec
    ) -> None:
        self._publisher = publisher
        self._target = target
        self._post_codec = post_codec
        self._mqtt = protocol_of(target.url) is BrokerProtocol.MQTT
        #: Called with each post that the broker has confirmed.
        self.on_posted: Callable[[Post], Awaitable[None]] | None = None
        #: Further brokers that posts go to. If one fails, all get the post again.
        self.copies: Sequence[PostPublisher] = ()

    async def announce(self, post: Post) -> None:
        """Returns when the broker has confirmed the post."""
        await self._publisher.send(self.encode(post))
        for each in self.copies:
            await each.announce(post)
        if self.on_posted is not None:
            await self.on_posted(post)

    def encode(self, post: Post) -> PumpOutgoingMessage:
        target = self._target
        if target.base_url is not None:
            post = replace(post, base_url=target.base_url)
        if target.headers:
            post = replace(post, extra={**post.extra, **target.headers})
        if target.subtopic is not None:
            words = target.subtopic.split(".")
        else:
            words = topic_words(
                post.relpath, with_name=target.name_in_topic, escape_blanks=target.escape_blanks
            )
        prefix = self._post_codec.prefix if target.prefix is None else target.prefix
        if target.topic is not None:
            prefix, words = target.topic, []
        return self._encoded(self._exchange(post), prefix, words, self._post_codec.encode(post))

    async def report(self, report: PostReport) -> None:
        words = topic_words(report.post.relpath, with_name=self._target.name_in_topic)
        exchange = self._target.exchange
        await self._publisher.send(self._encoded(exchange, PREFIX, words, write_report(report)))

    async def forward(self, pump_message: PumpMessage, post: Post | None = None) -> None:
        """Publish an unchanged copy of a message to our exchange."""
        exchange = self._target.exchange if post is None else self._exchange(post)
        topic = pump_message.topic
        if self._mqtt:  # the first level is the exchange that it came from
            topic = f"{exchange}/{topic.partition('/')[2]}"
        message = (topic, pump_message.body, pump_message.content_type(), pump_message.headers)
        await self._publisher.send(self._outgoing(exchange, *message))
        for each in self.copies:
            await each.forward(pump_message, post)
        if self.on_posted is not None and post is not None:
            await self.on_posted(post)

    def _exchange(self, post: Post) -> str:
        target = self._target
        if target.split < 2:
            return target.exchange
        return f"{target.exchange}{shard(post, target.split, by_path=target.split_by_path):02d}"

    def _encoded(
        self, exchange: str, prefix: str, words: list[str], encoded: EncodedPost
    ) -> PumpOutgoingMessage:
        if self._mqtt:
            topic = mqtt_topic(exchange, prefix, words)
        else:
            topic = routing_key(prefix, words)
        body, content_type = encode_body(encoded.body)
        if content_type is not None:  # Sarracenia's posts name no character set
            content_type = content_type.partition(";")[0]
        return self._outgoing(exchange, topic, body, content_type, encoded.headers)

    def _outgoing(
        self,
        exchange: str,
        topic: str,
        body: bytes,
        content_type: str | None,
        headers: Mapping[str, Any],
    ) -> PumpOutgoingMessage:
        ttl, persistent = self._target.ttl, self._target.persistent
        return PumpOutgoingMessage(exchange, topic, body, content_type, headers, ttl, persistent)


def shard(post: Post, count: int, *, by_path: bool = False) -> int:
    """Which of several exchanges a post belongs to, as Sarracenia computes it."""
    key = post.relpath.lstrip("/") if by_path else str(post.sum or post.relpath)
    return sum(key.encode()) % count


class ExchangePublisher:
    """A `PumpPublisher` over AMQP 0-9-1; opened once, closed once."""

    def __init__(self, url: str, retry_seconds: float = 0.0) -> None:
        self._link = AmqpRecoveringConnection(
            parse_amqp_url(url), "pump sender", self._prepare, retry_seconds=retry_seconds
        )
        self._channel: AmqpClientChannel | None = None
        self._declared: set[str] = set()
        self._preparing = asyncio.Lock()
        self._ids = message_ids()
        self._spans = message_spans()

    async def open(self) -> None:
        await self._link.open()

    async def close(self) -> None:
        await self._link.close()

    async def send(self, message: PumpOutgoingMessage) -> None:
        message_id = next(self._ids)
        if self._spans is None:
            await self._send(message, message_id)
        else:
            destination = f"{message.exchange}:{message.topic}"
            with self._spans.publishing(destination, message.headers, message_id) as headers:
                await self._send(replace(message, headers=headers), message_id)

    async def _send(self, message: PumpOutgoingMessage, message_id: str) -> None:
        properties = amqp_properties(message, message_id)
        while True:
            try:
                channel = await self._ready(message.exchange)
                await channel.publish_confirmed(
                    message.exchange, message.topic, message.body, properties
                )
                return
            except AmqpConnectionLost:
                continue

    async def _prepare(self, connection: AmqpClientConnection) -> None:
        self._declared.clear()
        self._channel = await connection.channel()
        await self._channel.confirm()

    async def _ready(self, exchange: str) -> AmqpClientChannel:
        """A channel in confirm mode, on a connection that has declared the exchange."""
        channel = self._channel
        if channel is not None and channel.failure is None and exchange in self._declared:
            return channel
        async with self._preparing:
            connection = await self._link.connection()
            if self._channel is None or self._channel.failure is not None:
                await self._prepare(connection)  # the broker refused a message
            if exchange not in self._declared:
                await declare_exchange(connection, exchange)
                self._declared.add(exchange)
            assert self._channel is not None
            return self._channel


class ClientPublisher:
    """A `PumpPublisher` over the client: MQTT and AMQP 1.0."""

    def __init__(self, fabric: Fabric, *, mqtt: bool) -> None:
        self._fabric = fabric
        self._mqtt = mqtt

    async def send(self, message: PumpOutgoingMessage) -> None:
        if self._mqtt:
            sender = self._fabric.publisher(message.topic)
        else:
            sender = self._fabric.publisher(message.topic, exchange=message.exchange)
        body: Any = message.body
        if message.content_type is not None:
            text = message.body.decode()
            body = json.loads(text) if message.content_type == JSON else text
        await sender.send(body, headers=message.headers or None, ttl=message.ttl)


def amqp_properties(message: PumpOutgoingMessage, message_id: str) -> BasicProperties:
    ttl = message.ttl
    return BasicProperties(
        message.content_type,
        dict(message.headers) or None,
        PERSISTENT if message.persistent else TRANSIENT,
        message_id=message_id,
        expiration=None if ttl is None else str(max(0, round(ttl * 1000))),
    )


def message_ids() -> Iterator[str]:
    prefix = uuid.uuid4().hex[:20]
    return (f"{prefix}{number:012x}" for number in itertools.count())


class BulkPostPublisher:
    """Publishes whole trees: many posts in one write, one confirmation for all of them. To wait for
    each post would cost more than announcing a small file. Blocking; the constructor connects."""

    def __init__(self, url: str, retry_seconds: float) -> None:
        self._publisher = BulkPublisher(
            parse_amqp_url(url), "pump post", mandatory=False, retry_seconds=retry_seconds
        )
        self._declared: set[str] = set()
        self._ids = message_ids()
        self._spans = message_spans()

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
        """Waits while too many messages are unconfirmed."""
        if message.exchange not in self._declared:
            self._publisher.declare_exchange(message.exchange, "topic")
            self._declared.add(message.exchange)
        message_id = next(self._ids)
        if self._spans is not None:
            destination = f"{message.exchange}:{message.topic}"
            with self._spans.publishing(destination, message.headers, message_id) as headers:
                message = replace(message, headers=headers)
        properties = amqp_properties(message, message_id)
        self._publisher.publish(
            encode_route(message.exchange, message.topic),
            encode_header(properties, len(message.body)),
            message.body,
        )

    def flush(self) -> None:
        """Returns when the broker has confirmed all messages."""
        self._publisher.flush()


class ReportPublisher:
    """An `OutcomeCallback`: a report that cannot be published never delays its file."""

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
        code, message = outcome.code, outcome.message
        report = await self._plugins.report(
            PostReport(post, code, message, self._host, self._user, seconds, self._reader)
        )
        if report is None:
            return
        try:
            await self._post_publisher.report(report)
        except PenstockError as error:
            log.warning("report not published", path=post.relpath, reason=str(error))
