"""The fabric: messaging patterns over the protocols of a broker.

*Publish/subscribe*: every subscriber whose pattern matches gets a copy. *Push/pull*: each message
of a queue goes to one consumer. *Request/reply*: a request to a service by name, a reply or an
error. *Streams*: appended messages can be replayed from any offset. Nothing has to be declared
before use.

Each protocol implements `Fabric` in its own package; `connect` chooses one by the URL.
"""

from __future__ import annotations

import ssl
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime, timedelta
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast
from urllib.parse import urlsplit
from weakref import WeakSet

from penstock.client.errors import UnknownScheme
from penstock.client.message import Body, Headers, ReceivedMessage
from penstock.client.receiver import MessageReceiver, RecoveringConsumer
from penstock.client.sender import MessageSender
from penstock.client.service import RequestService, ServiceHandler
from penstock.core.errors import Unsupported
from penstock.core.telemetry import message_spans

if TYPE_CHECKING:
    from penstock.client.amqp091.connection import AmqpRecoveringConnection
    from penstock.client.mqtt.fabric import MqttFabric
    from penstock.client.traced import TracedReceiver

#: The topic exchange of publish/subscribe, unless another is given.
TOPIC_EXCHANGE: Final = "amq.topic"
#: Subscriptions and replays are read fast; the buffer should outlast a round trip.
SUBSCRIBE_PREFETCH: Final = 500
#: Work is slow, and a message that one worker holds cannot be processed by another.
WORK_PREFETCH: Final = 10

#: Where a replay begins: "first", "last", "next", an offset, a time, or a duration ago ("1h").
StreamStart = str | int | datetime | timedelta


class Fabric(ABC):
    """A connection to a broker that reconnects, and the patterns over it."""

    def __init__(self) -> None:
        self._consumers: WeakSet[RecoveringConsumer] = WeakSet()
        self._spans = message_spans()

    @property
    def amqp(self) -> AmqpRecoveringConnection:
        """The connection of an `amqp://` fabric, for the full AMQP 0-9-1 model."""
        raise Unsupported("this fabric does not speak AMQP 0-9-1: connect to an amqp:// URL")

    @property
    def mqtt(self) -> MqttFabric:
        """The fabric of an `mqtt://` URL, with the options that only MQTT has."""
        raise Unsupported("this fabric does not speak MQTT: connect to an mqtt:// URL")

    @property
    @abstractmethod
    def blocked(self) -> bool:
        """Whether the broker has blocked publishers. Senders then wait."""

    async def publish(
        self,
        address: str,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
        exchange: str = TOPIC_EXCHANGE,
    ) -> None:
        """Send a copy to all present subscribers of the address: words separated by dots."""
        sender = self.publisher(address, exchange=exchange)
        await sender.send(body, headers=headers, ttl=ttl, message_id=message_id)

    @abstractmethod
    def publisher(self, address: str, *, exchange: str = TOPIC_EXCHANGE) -> MessageSender:
        """`publish`, for many messages."""

    def subscribe(
        self,
        *patterns: str,
        name: str | None = None,
        exchange: str = TOPIC_EXCHANGE,
        prefetch: int = SUBSCRIBE_PREFETCH,
    ) -> MessageReceiver:
        """Copies of published messages: `*` matches one word, `#` any number.

        With a name the subscription is durable: it also gets what is published while no program
        receives from it, and programs that use the same name share the messages.
        """
        consumer = self._subscription(patterns or ("#",), exchange, name, prefetch)
        return self._receiver(consumer, name or exchange)

    @abstractmethod
    def push(self, queue: str) -> MessageSender: ...

    def pull(self, queue: str, *, prefetch: int = WORK_PREFETCH) -> MessageReceiver:
        return self._receiver(self._queue(queue, prefetch), queue)

    async def request(
        self,
        service: str,
        body: Body = b"",
        *,
        headers: Headers | None = None,
        timeout: float | None = 30.0,
    ) -> ReceivedMessage:
        if self._spans is None:
            return await self._request(service, body, headers, timeout)
        from penstock.client.traced import traced_request

        return await traced_request(
            self._spans,
            lambda carried: self._request(service, body, carried, timeout),
            service,
            headers,
        )

    def reply(self, service: str, *, prefetch: int = WORK_PREFETCH) -> MessageReceiver:
        """Requests to reply to with `await request.reply(…)`."""
        return self._receiver(self._requests(service, prefetch), service, replies=True)

    def serve(
        self, service: str, handler: ServiceHandler, *, concurrency: int = WORK_PREFETCH
    ) -> RequestService:
        """Replies to requests with the results of the handler, several at a time."""
        requests = self.reply(service, prefetch=concurrency)
        if self._spans is None:
            return RequestService(service, requests, handler)
        from penstock.client.traced import TracedService

        return TracedService(service, cast("TracedReceiver", requests), handler)

    def stream(
        self,
        name: str,
        *,
        subjects: Sequence[str] = (),
        max_age: str | None = None,
        max_bytes: int | None = None,
    ) -> MessageSender:
        """A stream to append to; it also stores what is published to the subjects."""
        arguments: dict[str, Any] = {"x-queue-type": "stream"}
        if max_age is not None:
            arguments["x-max-age"] = max_age
        if max_bytes is not None:
            arguments["x-max-length-bytes"] = max_bytes
        return self._stream_sender(name, subjects, arguments)

    def replay(
        self, stream: str, start: StreamStart = "first", *, prefetch: int = SUBSCRIBE_PREFETCH
    ) -> MessageReceiver:
        """The messages of a stream, each once and in order, then those appended later."""
        return self._receiver(self._stream(stream, start, prefetch), stream)

    @abstractmethod
    async def open(self) -> Self: ...

    async def close(self) -> None:
        for consumer in list(self._consumers):
            await consumer.close()
        await self._close()

    # The part of a protocol.

    @abstractmethod
    def _subscription(
        self, patterns: Sequence[str], exchange: str, name: str | None, prefetch: int
    ) -> RecoveringConsumer: ...

    @abstractmethod
    def _queue(self, queue: str, prefetch: int) -> RecoveringConsumer: ...

    @abstractmethod
    async def _request(
        self, service: str, body: Body, headers: Headers | None, timeout: float | None
    ) -> ReceivedMessage: ...

    @abstractmethod
    def _requests(self, service: str, prefetch: int) -> RecoveringConsumer: ...

    @abstractmethod
    def _stream_sender(
        self, name: str, subjects: Sequence[str], arguments: dict[str, Any]
    ) -> MessageSender: ...

    @abstractmethod
    def _stream(self, stream: str, start: StreamStart, prefetch: int) -> RecoveringConsumer: ...

    @abstractmethod
    async def _close(self) -> None: ...

    def _receiver(
        self, consumer: RecoveringConsumer, source: str, *, replies: bool = False
    ) -> MessageReceiver:
        self._consumers.add(consumer)
        if self._spans is None:
            return MessageReceiver(consumer, replies=replies)
        from penstock.client.traced import TracedReceiver

        return TracedReceiver(consumer, self._spans, source, replies=replies)

    def _traced(
        self,
        sender: MessageSender,
        destination: str,
        *,
        has_headers: bool = True,
        has_ids: bool = True,
    ) -> MessageSender:
        """The sender, with a span for each message if the program uses OpenTelemetry."""
        if self._spans is None:
            return sender
        from penstock.client.traced import traced_sender

        return traced_sender(
            self._spans, sender, destination, has_headers=has_headers, has_ids=has_ids
        )

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


#: The implementation for each URL scheme, imported when it is first used.
FABRICS_BY_SCHEME: Final = {
    "amqp": "penstock.client.amqp091.fabric:AmqpFabric",
    "amqps": "penstock.client.amqp091.fabric:AmqpFabric",
    "amqp+1.0": "penstock.client.amqp10.fabric:Amqp10Fabric",
    "amqps+1.0": "penstock.client.amqp10.fabric:Amqp10Fabric",
    "mqtt": "penstock.client.mqtt.fabric:MqttFabric",
    "mqtts": "penstock.client.mqtt.fabric:MqttFabric",
    "ws": "penstock.client.mqtt.fabric:MqttFabric",
    "wss": "penstock.client.mqtt.fabric:MqttFabric",
}


def connect(
    url: str,
    *,
    tls: ssl.SSLContext | None = None,
    retry_seconds: float = 0.0,
    patience: float | None = None,
) -> Fabric:
    """The fabric of a URL, opened by `async with` or `await … .open()`.

    If the broker is unreachable, opening retries for `retry_seconds` and then raises
    `BrokerUnreachable`. Later, the fabric reconnects until it is closed. `patience` is the former
    name of `retry_seconds`.
    """
    if patience is not None:
        warnings.warn("patience= is now retry_seconds=", DeprecationWarning, stacklevel=2)
        retry_seconds = patience
    scheme = urlsplit(url).scheme
    if scheme in ("padres", "padress"):
        raise UnknownScheme(
            f"{url!r}: content-based publish/subscribe has a client of its own, "
            "penstock.client.padres.PadresClient"
        )
    if scheme not in FABRICS_BY_SCHEME:
        known = ", ".join(f"{scheme}://" for scheme in FABRICS_BY_SCHEME)
        raise UnknownScheme(f"{url!r}: the client supports {known}")
    module, _, name = FABRICS_BY_SCHEME[scheme].partition(":")
    implementation = getattr(import_module(module), name)
    fabric: Fabric = implementation(url, tls=tls, retry_seconds=retry_seconds)
    return fabric
