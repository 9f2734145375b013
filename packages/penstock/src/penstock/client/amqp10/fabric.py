"""The patterns over AMQP 1.0.

What they are made of, for those who meet them from another client:

* publish/subscribe: `/exchange/amq.topic`, the key as the subject; a subscription is a source
  `/exchange/amq.topic/KEY`, durable and shared when it has a name.
* push/pull: `/queue/NAME`, which the broker makes if it is not there; durable messages.
* request/reply: the service's name is a queue that goes with the last who serves it; answers come
  to a dynamic node.
* streams: `/stream/NAME`, and a filter that says where to begin.

There are two connections, as there are over AMQP 0-9-1: a broker short of room may stop reading
from those who send, and those who receive should not wait for it.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any, Self
from urllib.parse import quote
from uuid import uuid4
from weakref import WeakSet

from penstock.client.amqp10.connection import Amqp10RecoveringConnection
from penstock.client.amqp10.consumer import (
    Amqp10Consumer,
    Amqp10RequestSource,
    Amqp10Source,
    Amqp10StreamSource,
    Amqp10SubscriptionSource,
    Amqp10WorkQueueSource,
    queue_address,
)
from penstock.client.amqp10.endpoint import parse_endpoint
from penstock.client.amqp10.message import encode_payload
from penstock.client.amqp10.publisher import Amqp10Publisher, Amqp10ReplySender
from penstock.client.amqp10.requester import Amqp10Requester
from penstock.client.fabric import (
    SUBSCRIBE_PREFETCH,
    TOPIC_EXCHANGE,
    WORK_PREFETCH,
    Fabric,
    StreamStart,
    stream_arguments,
)
from penstock.client.message import Body, Headers, ReceivedMessage, encode_body
from penstock.client.receiver import MessageReceiver
from penstock.client.sender import MessageSender
from penstock.core.errors import Unsupported
from penstock.wire.amqp10.message import Amqp10Properties


class Amqp10Fabric(Fabric):
    def __init__(
        self, url: str, *, tls: ssl.SSLContext | None = None, retry_seconds: float = 0.0
    ) -> None:
        endpoint = parse_endpoint(url)
        self._publish_connection, self._consume_connection = (
            Amqp10RecoveringConnection(endpoint, suffix, tls, retry_seconds)
            for suffix in ("-sender", "")
        )
        self._publishers: dict[str, Amqp10Publisher] = {}
        self._consumers: WeakSet[Amqp10Consumer] = WeakSet()
        self._replies = Amqp10ReplySender(self._publish_connection)
        self._requester = Amqp10Requester(self._publish_connection, self._replies)

    @property
    def blocked(self) -> bool:
        return any(publisher.blocked for publisher in self._publishers.values())

    def publisher(self, address: str, *, exchange: str = TOPIC_EXCHANGE) -> MessageSender:
        return self._create_sender(
            self._publisher_for(f"/exchange/{quote(exchange, safe='')}"), address
        )

    def subscribe(
        self,
        *patterns: str,
        name: str | None = None,
        exchange: str = TOPIC_EXCHANGE,
        prefetch: int = SUBSCRIBE_PREFETCH,
    ) -> MessageReceiver:
        return self._create_receiver(
            Amqp10SubscriptionSource(patterns or ("#",), exchange, name, prefetch)
        )

    def push(self, queue: str) -> MessageSender:
        return self._create_sender(self._publisher_for(queue_address(queue), makes=True))

    def pull(self, queue: str, *, prefetch: int = WORK_PREFETCH) -> MessageReceiver:
        return self._create_receiver(Amqp10WorkQueueSource(queue, prefetch))

    async def request(
        self,
        service: str,
        body: Body = b"",
        *,
        headers: Headers | None = None,
        timeout: float | None = 30.0,
    ) -> ReceivedMessage:
        return await self._requester.requests.request(service, body, headers, timeout)

    def reply(self, service: str, *, prefetch: int = WORK_PREFETCH) -> MessageReceiver:
        return self._create_receiver(Amqp10RequestSource(service, prefetch), replies=True)

    def stream(
        self,
        name: str,
        *,
        subjects: Sequence[str] = (),
        max_age: str | None = None,
        max_bytes: int | None = None,
    ) -> MessageSender:
        if subjects:
            raise Unsupported(
                "AMQP 1.0 cannot bind a stream to subjects: make it over an amqp:// URL first"
            )
        arguments = stream_arguments(max_age, max_bytes)
        address = f"/stream/{quote(name, safe='')}"
        return self._create_sender(self._publisher_for(address, makes=True, arguments=arguments))

    def replay(
        self, stream: str, start: StreamStart = "first", *, prefetch: int = SUBSCRIBE_PREFETCH
    ) -> MessageReceiver:
        return self._create_receiver(Amqp10StreamSource(stream, start, prefetch))

    async def open(self) -> Self:
        await self._publish_connection.open()
        return self

    async def close(self) -> None:
        for consumer in list(self._consumers):
            await consumer.close()
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
        """The outlet to this address: one for all who send to it, so that order is kept."""
        publisher = self._publishers.get(address)
        if publisher is None:
            publisher = self._publishers[address] = Amqp10Publisher(
                self._publish_connection, address, mandatory=makes, makes=makes, arguments=arguments
            )
        return publisher

    def _create_receiver(self, source: Amqp10Source, *, replies: bool = False) -> MessageReceiver:
        consumer = Amqp10Consumer(self._consume_connection, source, self._replies)
        self._consumers.add(consumer)
        return MessageReceiver(consumer, replies=replies)
