"""The fabric over AMQP 0-9-1, for Penstock and RabbitMQ.

* publish/subscribe: topic exchange `amq.topic`; a subscription is an exclusive queue, or a durable
  one if it has a name.
* push/pull: a durable queue, persistent messages to the default exchange, confirms,
  acknowledgements.
* request/reply: an auto-delete queue named as the service, direct reply-to.
* streams: a durable queue with `x-queue-type: stream`.

There are two connections. A broker that is short of memory or disk stops reading from publishers.
Acknowledgements free memory, so they must not be queued behind publishes.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any, Final, Self

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import AmqpRecoveringConnection, SetupChannel
from penstock.client.amqp091.consumer import (
    AmqpConsumer,
    AmqpQueueSource,
    AmqpSource,
    AmqpStreamSource,
    AmqpSubscriptionSource,
    TopicExchangeDeclaration,
    WorkQueueDeclaration,
)
from penstock.client.amqp091.publisher import AmqpPublisher, create_sender
from penstock.client.amqp091.requester import AmqpRequester
from penstock.client.fabric import TOPIC_EXCHANGE, Fabric, StreamStart
from penstock.client.message import Body, Headers, ReceivedMessage
from penstock.client.sender import MessageSender
from penstock.wire.amqp091.address import parse_amqp_url

HEARTBEAT_SECONDS: Final = 10


class AmqpFabric(Fabric):
    def __init__(
        self, url: str, *, tls: ssl.SSLContext | None = None, retry_seconds: float = 0.0
    ) -> None:
        super().__init__()
        address = parse_amqp_url(url, heartbeat=HEARTBEAT_SECONDS)
        self._publish_connection, self._consume_connection = (
            AmqpRecoveringConnection(address, name, tls=tls, retry_seconds=retry_seconds)
            for name in ("penstock sender", "penstock receiver")
        )
        self._publishers: dict[tuple[str, str], AmqpPublisher] = {}
        self._replies = AmqpPublisher(self._publish_connection, "")
        self._requester = AmqpRequester(self._publish_connection, self._replies)

    @property
    def amqp(self) -> AmqpRecoveringConnection:
        return self._publish_connection

    @property
    def blocked(self) -> bool:
        return self._publish_connection.blocked

    def publisher(self, address: str, *, exchange: str = TOPIC_EXCHANGE) -> MessageSender:
        setup = TopicExchangeDeclaration(exchange).declare
        sender = create_sender(self._publisher_for("topic", exchange, exchange, setup), address)
        return self._traced(sender, f"{exchange}:{address}")

    def push(self, queue: str) -> MessageSender:
        setup = WorkQueueDeclaration(queue).declare
        publisher = self._publisher_for("queue", queue, "", setup, mandatory=True)
        return self._traced(create_sender(publisher, queue), queue)

    async def open(self) -> Self:
        await self._publish_connection.open()
        return self

    def _subscription(
        self, patterns: Sequence[str], exchange: str, name: str | None, prefetch: int
    ) -> AmqpConsumer:
        return self._consumer(AmqpSubscriptionSource(patterns, exchange, name, prefetch))

    def _queue(self, queue: str, prefetch: int) -> AmqpConsumer:
        declare = WorkQueueDeclaration(queue).declare
        return self._consumer(AmqpQueueSource(queue, prefetch, declare))

    async def _request(
        self, service: str, body: Body, headers: Headers | None, timeout: float | None
    ) -> ReceivedMessage:
        return await self._requester.requests.request(service, body, headers, timeout)

    def _requests(self, service: str, prefetch: int) -> AmqpConsumer:
        async def declare(channel: AmqpClientChannel) -> None:
            # Deleted with its last consumer, so that a request to no program is returned.
            await channel.declare_queue(service, durable=False, auto_delete=True)

        return self._consumer(AmqpQueueSource(service, prefetch, declare))

    def _stream_sender(
        self, name: str, subjects: Sequence[str], arguments: dict[str, Any]
    ) -> MessageSender:
        async def setup(channel: AmqpClientChannel) -> None:
            await channel.declare_queue(name, arguments=arguments)
            for subject in subjects:
                await channel.bind(name, TOPIC_EXCHANGE, subject)

        publisher = self._publisher_for("stream", name, "", setup, mandatory=True)
        return self._traced(create_sender(publisher, name), name)

    def _stream(self, stream: str, start: StreamStart, prefetch: int) -> AmqpConsumer:
        return self._consumer(AmqpStreamSource(stream, start, prefetch))

    async def _close(self) -> None:
        await self._requester.close()
        for publisher in (*self._publishers.values(), self._replies):
            await publisher.close()
        await self._consume_connection.close()
        await self._publish_connection.close()

    def _publisher_for(
        self, kind: str, name: str, exchange: str, setup: SetupChannel, *, mandatory: bool = False
    ) -> AmqpPublisher:
        """One publisher for all senders to a destination, so that their order is preserved."""
        publisher = self._publishers.get((kind, name))
        if publisher is None:
            publisher = self._publishers[kind, name] = AmqpPublisher(
                self._publish_connection, exchange, setup, mandatory=mandatory
            )
        return publisher

    def _consumer(self, source: AmqpSource) -> AmqpConsumer:
        return AmqpConsumer(self._consume_connection, source, self._replies)
