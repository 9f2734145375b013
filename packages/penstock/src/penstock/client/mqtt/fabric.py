"""The fabric over MQTT.

* publish/subscribe: topics and topic filters, QoS 1 by default; a subscription with a name is the
  session of that client id, which is persistent.
* request/reply: the service name is a topic, and its programs share `$share/penstock/NAME`;
  response topic and correlation data of MQTT 5.

MQTT has no queues and no streams: those patterns raise `Unsupported` and name the alternative. A
fabric is one MQTT client: one connection, one client id, one session.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any, Final, NoReturn, Self

from penstock.client.fabric import (
    SUBSCRIBE_PREFETCH,
    TOPIC_EXCHANGE,
    Fabric,
    StreamStart,
)
from penstock.client.message import Body, Headers, ReceivedMessage, encode_body
from penstock.client.mqtt.endpoint import parse_endpoint
from penstock.client.mqtt.message import encode_properties
from penstock.client.mqtt.publisher import UnacknowledgedMessage
from penstock.client.mqtt.requester import MqttRequester
from penstock.client.mqtt.session import MqttClientSession, MqttConsumer
from penstock.client.mqtt.topics import SHARE_PREFIX, check_filter, check_topic
from penstock.client.receiver import MessageReceiver
from penstock.client.sender import MessageSender
from penstock.core.errors import PreconditionFailed, Unsupported

#: The group of the shared subscriptions of services.
GROUP: Final = "penstock"


class MqttFabric(Fabric):
    """Adds the options of MQTT, `qos` and `retain`."""

    def __init__(
        self, url: str, *, tls: ssl.SSLContext | None = None, retry_seconds: float = 0.0
    ) -> None:
        super().__init__()
        self._endpoint = parse_endpoint(url)
        self._tls = tls
        self._retry_seconds = retry_seconds
        self._session = MqttClientSession(self._endpoint, tls, retry_seconds)
        self._requester = MqttRequester(self._session)

    @property
    def mqtt(self) -> Self:
        return self

    @property
    def blocked(self) -> bool:
        """Never: a broker that is short of memory acknowledges late."""
        return False

    async def publish(
        self,
        address: str,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
        exchange: str = TOPIC_EXCHANGE,
        qos: int = 1,
        retain: bool = False,
    ) -> None:
        """With `retain`, the broker stores the message for later subscribers to its topic; an empty
        body clears it."""
        publisher = self.publisher(address, exchange=exchange, qos=qos, retain=retain)
        await publisher.send(body, headers=headers, ttl=ttl, message_id=message_id)

    def publisher(
        self, address: str, *, exchange: str = TOPIC_EXCHANGE, qos: int = 1, retain: bool = False
    ) -> MessageSender:
        _check_exchange(exchange)
        _check_qos(qos)
        check_topic(address)

        async def post(
            body: Body, headers: Headers | None, ttl: float | None, message_id: str | None
        ) -> asyncio.Future[None]:
            content, content_type = encode_body(body)
            properties = encode_properties(
                is_v5=self._endpoint.is_v5,
                content_type=content_type,
                headers=headers,
                ttl=ttl,
                message_id=message_id,
            )
            posting = UnacknowledgedMessage(address, content, properties, qos, retain)
            return await self._session.publisher.post(posting)

        return self._traced(
            MessageSender(post), address, has_headers=self._endpoint.is_v5, has_ids=False
        )

    def subscribe(
        self,
        *patterns: str,
        name: str | None = None,
        exchange: str = TOPIC_EXCHANGE,
        prefetch: int = SUBSCRIBE_PREFETCH,
        qos: int = 1,
    ) -> MessageReceiver:
        """Topic filters: `+` is one level, a last `#` any number; `$share/GROUP/FILTER` shares.

        With a name the subscription is durable: it is the session of the client id of that name.
        One client can use it at a time; the next one takes it over.
        """
        filters = patterns or ("#",)
        consumer = self._subscription(filters, exchange, name, prefetch, qos)
        return self._receiver(consumer, name or filters[0])

    def push(self, queue: str) -> NoReturn:
        raise Unsupported(
            "MQTT has no queues: push over amqp://, or publish to a topic whose messages workers "
            f"share by subscribing to $share/GROUP/{queue}"
        )

    async def open(self) -> Self:
        await self._session.open()
        return self

    def _subscription(
        self, patterns: Sequence[str], exchange: str, name: str | None, prefetch: int, qos: int = 1
    ) -> MqttConsumer:
        _check_exchange(exchange)
        _check_qos(qos)
        for pattern in patterns:
            check_filter(pattern)
        session = self._session
        if name is not None:
            session = MqttClientSession(self._endpoint.named(name), self._tls, self._retry_seconds)
        return MqttConsumer(session, patterns, qos=qos, prefetch=prefetch, owns=name is not None)

    def _queue(self, queue: str, prefetch: int) -> NoReturn:
        raise Unsupported(
            "MQTT has no queues: pull over amqp://, or share the messages of a topic by "
            f"subscribing to $share/GROUP/{queue}"
        )

    async def _request(
        self, service: str, body: Body, headers: Headers | None, timeout: float | None
    ) -> ReceivedMessage:
        self._require_v5()
        check_topic(service)
        return await self._requester.request(service, body, headers, timeout)

    def _requests(self, service: str, prefetch: int) -> MqttConsumer:
        self._require_v5()
        check_topic(service)
        pattern = f"{SHARE_PREFIX}{GROUP}/{service}"
        return MqttConsumer(self._session, (pattern,), qos=1, prefetch=prefetch)

    def _stream_sender(
        self, name: str, subjects: Sequence[str], arguments: dict[str, Any]
    ) -> NoReturn:
        raise Unsupported(
            "MQTT has no streams to append to: over amqp://, make a stream store what is "
            f"published, as in stream({name!r}, subjects=[…]), and publish here"
        )

    def _stream(self, stream: str, start: StreamStart, prefetch: int) -> NoReturn:
        raise Unsupported(
            f"MQTT has no replay: replay {stream!r} over amqp://, or from the management API; a "
            "retained message is the last of its topic"
        )

    async def _close(self) -> None:
        await self._session.close()

    def _require_v5(self) -> None:
        if not self._endpoint.is_v5:
            raise Unsupported(
                "MQTT 3.1.1 has no requests: remove ?version=3.1.1 to use MQTT 5, or use amqp://"
            )


def _check_qos(qos: int) -> None:
    if qos not in (0, 1, 2):
        raise PreconditionFailed(f"qos {qos!r} should be 0, 1 or 2")


def _check_exchange(exchange: str) -> None:
    if exchange != TOPIC_EXCHANGE:
        raise Unsupported(
            f"MQTT has no exchanges: publish to {exchange!r} over amqp://; the broker's settings "
            "name the exchange of MQTT"
        )
