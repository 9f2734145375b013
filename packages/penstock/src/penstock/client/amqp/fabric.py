"""The patterns over AMQP 0-9-1.

What they are made of, for those who meet them from another client:

* publish/subscribe: topic exchange `amq.topic`; a subscription is an exclusive queue, or a durable
  one when it has a name.
* push/pull: a durable queue by the default exchange, persistent messages, confirms, acks.
* request/reply: an auto-delete queue named as the service, direct reply-to.
* streams: a durable queue with `x-queue-type: stream`.

There are two connections: a broker short of room stops reading from those who send, and then
acknowledgements on the same connection, which would make room, would wait as well.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NoReturn, Self
from weakref import WeakSet

import aio_pika
from aiormq import Channel

from penstock.client.amqp.connection import AioPikaConnection, SetupChannel
from penstock.client.amqp.consumer import (
    AmqpConsumer,
    AmqpRequestSource,
    AmqpSource,
    AmqpStreamSource,
    AmqpSubscriptionSource,
    AmqpWorkQueueSource,
    TopicExchangeDeclaration,
    WorkQueueDeclaration,
    declare_stream,
)
from penstock.client.amqp.publisher import AmqpPublisher, create_sender
from penstock.client.amqp.requester import AmqpRequester
from penstock.client.fabric import (
    SUBSCRIBE_PREFETCH,
    WORK_PREFETCH,
    Headers,
    ServiceHandler,
    StreamStart,
)
from penstock.client.message import Body, ReceivedMessage
from penstock.client.receiver import SettlingReceiver
from penstock.client.sender import ConfirmedSender
from penstock.client.service import HandlerService
from penstock.core.errors import Unsupported

TOPIC: Final = "amq.topic"


class AmqpFabric:
    """Keeps `penstock.client.fabric.Fabric`."""

    def __init__(
        self, url: str, *, tls: ssl.SSLContext | None = None, patience: float = 0.0
    ) -> None:
        self._publish_connection = AioPikaConnection(url, "sender", tls, patience)
        self._consume_connection = AioPikaConnection(url, "receiver", tls, patience)
        self._publishers: dict[tuple[str, str], AmqpPublisher] = {}
        self._consumers: WeakSet[AmqpConsumer] = WeakSet()
        self._replies = AmqpPublisher(self._publish_connection, "")
        self._requester = AmqpRequester(self._publish_connection, self._replies)

    @property
    def amqp(self) -> aio_pika.RobustConnection:
        return self._publish_connection.connection

    @property
    def mqtt(self) -> NoReturn:
        raise Unsupported("this fabric speaks AMQP: connect to an mqtt:// URL for MQTT")

    @property
    def blocked(self) -> bool:
        return self._publish_connection.blocked

    async def publish(
        self,
        address: str,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
        exchange: str = TOPIC,
    ) -> None:
        publisher = self.publisher(address, exchange=exchange)
        await publisher.send(body, headers=headers, ttl=ttl, message_id=message_id)

    def publisher(self, address: str, *, exchange: str = TOPIC) -> ConfirmedSender:
        declare = TopicExchangeDeclaration(exchange).declare
        return create_sender(self._publisher_for("topic", exchange, exchange, declare), address)

    def subscribe(
        self,
        *patterns: str,
        name: str | None = None,
        exchange: str = TOPIC,
        prefetch: int = SUBSCRIBE_PREFETCH,
    ) -> SettlingReceiver:
        return self._create_receiver(
            AmqpSubscriptionSource(patterns or ("#",), exchange, name, prefetch)
        )

    def push(self, queue: str) -> ConfirmedSender:
        publisher = self._publisher_for(
            "queue", queue, "", WorkQueueDeclaration(queue).declare, mandatory=True
        )
        return create_sender(publisher, queue)

    def pull(self, queue: str, *, prefetch: int = WORK_PREFETCH) -> SettlingReceiver:
        return self._create_receiver(AmqpWorkQueueSource(queue, prefetch))

    async def request(
        self,
        service: str,
        body: Body = b"",
        *,
        headers: Headers | None = None,
        timeout: float | None = 30.0,
    ) -> ReceivedMessage:
        return await self._requester.request(service, body, headers, timeout)

    def reply(self, service: str, *, prefetch: int = WORK_PREFETCH) -> SettlingReceiver:
        return self._create_receiver(AmqpRequestSource(service, prefetch), answers=True)

    def serve(
        self, service: str, handler: ServiceHandler, *, concurrency: int = WORK_PREFETCH
    ) -> HandlerService:
        return HandlerService(service, self.reply(service, prefetch=concurrency), handler)

    def stream(
        self,
        name: str,
        *,
        subjects: Sequence[str] = (),
        max_age: str | None = None,
        max_bytes: int | None = None,
    ) -> ConfirmedSender:
        async def prepare(channel: Channel) -> None:
            await declare_stream(channel, name, subjects, TOPIC, max_age, max_bytes)

        return create_sender(self._publisher_for("stream", name, "", prepare, mandatory=True), name)

    def replay(
        self, stream: str, start: StreamStart = "first", *, prefetch: int = SUBSCRIBE_PREFETCH
    ) -> SettlingReceiver:
        return self._create_receiver(AmqpStreamSource(stream, start, prefetch))

    async def open(self) -> Self:
        await self._publish_connection.open()
        return self

    async def close(self) -> None:
        for consumer in list(self._consumers):
            await consumer.close()
        await self._requester.close()
        for publisher in (*self._publishers.values(), self._replies):
            await publisher.close()
        await self._consume_connection.close()
        await self._publish_connection.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _publisher_for(
        self, kind: str, name: str, exchange: str, prepare: SetupChannel, *, mandatory: bool = False
    ) -> AmqpPublisher:
        """The outlet to this destination: one for all who send to it, so that order is kept."""
        publisher = self._publishers.get((kind, name))
        if publisher is None:
            publisher = AmqpPublisher(
                self._publish_connection, exchange, prepare, mandatory=mandatory
            )
            self._publishers[kind, name] = publisher
        return publisher

    def _create_receiver(self, source: AmqpSource, *, answers: bool = False) -> SettlingReceiver:
        consumer = AmqpConsumer(self._consume_connection, source, self._replies)
        self._consumers.add(consumer)
        return SettlingReceiver(consumer, answers=answers)
