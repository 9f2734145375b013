"""The fabric over AMQP 1.0.

* publish/subscribe: `/exchange/amq.topic` with the key as subject; a subscription is a source
  `/exchange/amq.topic/KEY`, durable and shared if it has a name.
* push/pull: `/queue/NAME`, which the broker creates if it does not exist; durable messages.
* request/reply: a queue named as the service, deleted with its last consumer; replies arrive at a
  dynamic node.
* streams: `/stream/NAME`, and a filter for the offset.

There are two connections, as over AMQP 0-9-1.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any, Self
from urllib.parse import quote
from uuid import uuid4

from penstock.client.amqp10.connection import Amqp10RecoveringConnection
from penstock.client.amqp10.consumer import (
    Amqp10Consumer,
    Amqp10NodeSource,
    Amqp10Source,
    Amqp10StreamSource,
    Amqp10SubscriptionSource,
    queue_address,
)
from penstock.client.amqp10.endpoint import parse_endpoint
from penstock.client.amqp10.message import encode_payload
from penstock.client.amqp10.publisher import Amqp10Publisher, Amqp10ReplySender
from penstock.client.amqp10.requester import Amqp10Requester
from penstock.client.fabric import TOPIC_EXCHANGE, Fabric, StreamStart
from penstock.client.message import Body, Headers, ReceivedMessage, encode_body
from penstock.client.sender import MessageSender
from penstock.core.errors import Unsupported
from penstock.wire.amqp10.message import Amqp10Properties
from penstock.wire.amqp10.performatives import LINK_DETACH, LinkSource


class Amqp10Fabric(Fabric):
    def __init__(
        self, url: str, *, tls: ssl.SSLContext | None = None, retry_seconds: float = 0.0
    ) -> None:
        super().__init__()
        endpoint = parse_endpoint(url)
        self._publish_connection, self._consume_connection = (
            Amqp10RecoveringConnection(endpoint, suffix, tls, retry_seconds)
            for suffix in ("-sender", "")
        )
        self._publishers: dict[str, Amqp10Publisher] = {}
        self._replies = Amqp10ReplySender(self._publish_connection)
        self._requester = Amqp10Requester(self._publish_connection, self._replies)

    @property
    def blocked(self) -> bool:
        return any(publisher.blocked for publisher in self._publishers.values())

    def publisher(self, address: str, *, exchange: str = TOPIC_EXCHANGE) -> MessageSender:
        publisher = self._publisher_for(f"/exchange/{quote(exchange, safe='')}")
        return self._traced(self._create_sender(publisher, address), f"{exchange}:{address}")

    def push(self, queue: str) -> MessageSender:
        publisher = self._publisher_for(queue_address(queue), makes=True)
        return self._traced(self._create_sender(publisher), queue)

    async def open(self) -> Self:
        await self._publish_connection.open()
        return self

    def _subscription(
        self, patterns: Sequence[str], exchange: str, name: str | None, prefetch: int
    ) -> Amqp10Consumer:
        return self._consumer(Amqp10SubscriptionSource(patterns, exchange, name, prefetch))

    def _queue(self, queue: str, prefetch: int) -> Amqp10Consumer:
        return self._consumer(Amqp10NodeSource(queue, prefetch, LinkSource(queue_address(queue))))

    async def _request(
        self, service: str, body: Body, headers: Headers | None, timeout: float | None
    ) -> ReceivedMessage:
        return await self._requester.requests.request(service, body, headers, timeout)

    def _requests(self, service: str, prefetch: int) -> Amqp10Consumer:
        # The queue is deleted with its last consumer.
        terminus = LinkSource(queue_address(service), expiry_policy=LINK_DETACH)
        return self._consumer(Amqp10NodeSource(service, prefetch, terminus))

    def _stream_sender(
        self, name: str, subjects: Sequence[str], arguments: dict[str, Any]
    ) -> MessageSender:
        if subjects:
            raise Unsupported(
                "AMQP 1.0 cannot bind a stream to subjects: declare it over an amqp:// URL first"
            )
        address = f"/stream/{quote(name, safe='')}"
        publisher = self._publisher_for(address, makes=True, arguments=arguments)
        return self._traced(self._create_sender(publisher), name)

    def _stream(self, stream: str, start: StreamStart, prefetch: int) -> Amqp10Consumer:
        return self._consumer(Amqp10StreamSource(stream, start, prefetch))

    async def _close(self) -> None:
        await self._requester.close()
        await self._replies.close()
        for publisher in self._publishers.values():
            await publisher.close()
        await self._consume_connection.close()
        await self._publish_connection.close()

    def _create_sender(
        self, publisher: Amqp10Publisher, subject: str | None = None
    ) -> MessageSender:
        async def post(
            body: Body, headers: Headers | None, ttl: float | None, message_id: str | None
        ) -> Any:
            content, content_type = encode_body(body)
            properties = Amqp10Properties(
                message_id=message_id or uuid4().hex, subject=subject, content_type=content_type
            )
            return await publisher.post(
                encode_payload(content, properties, headers=headers, ttl=ttl)
            )

        return MessageSender(post)

    def _publisher_for(
        self, address: str, *, makes: bool = False, arguments: dict[str, Any] | None = None
    ) -> Amqp10Publisher:
        """One publisher for all senders to an address, so that their order is preserved."""
        publisher = self._publishers.get(address)
        if publisher is None:
            publisher = self._publishers[address] = Amqp10Publisher(
                self._publish_connection, address, mandatory=makes, makes=makes, arguments=arguments
            )
        return publisher

    def _consumer(self, source: Amqp10Source) -> Amqp10Consumer:
        return Amqp10Consumer(self._consume_connection, source, self._replies)
