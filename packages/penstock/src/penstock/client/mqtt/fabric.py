"""The patterns over MQTT.

What they are made of, for those who meet them from another client:

* publish/subscribe: topics and topic filters as MQTT has them, acknowledged (quality 1) unless one
  says otherwise; a subscription with a name is a session of that client id, which lasts.
* request/reply: the service's name is a topic; those who serve it share `$share/penstock/NAME`;
  response topic and correlation data of MQTT 5.

MQTT keeps nothing for those who are not there, and has no streams: what needs that is refused, with
what to use instead. A fabric is one MQTT client: one connection, one client id, one session.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Final, NoReturn, Self
from weakref import WeakSet

from penstock.client.fabric import (
    SUBSCRIBE_PREFETCH,
    TOPIC_EXCHANGE,
    WORK_PREFETCH,
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
        self._endpoint = parse_endpoint(url)
        self._tls = tls
        self._retry_seconds = retry_seconds
        self._session = MqttClientSession(self._endpoint, tls, retry_seconds)
        self._requester = MqttRequester(self._session)
        self._consumers: WeakSet[MqttConsumer] = WeakSet()

    @property
    def mqtt(self) -> Self:
        return self

    @property
    def blocked(self) -> bool:
        """MQTT has no word for it: a broker that is short of room acknowledges late."""
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
        """With `retain`, the broker keeps it for those who subscribe later, until the next one;
        an empty body clears it."""
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

        return MessageSender(post)

    def subscribe(
        self,
        *patterns: str,
        name: str | None = None,
        exchange: str = TOPIC_EXCHANGE,
        prefetch: int = SUBSCRIBE_PREFETCH,
        qos: int = 1,
    ) -> MessageReceiver:
        """Topic filters: `+` is one level, a last `#` any number; `$share/GROUP/FILTER` shares.

        With a name the subscription lasts: it is the session of the client id of that name. Only
        one can use it at a time; the next one takes it over.
        """
        _check_exchange(exchange)
        _check_qos(qos)
        for pattern in patterns:
            check_filter(pattern)
        session = self._session
        if name is not None:
            session = MqttClientSession(self._endpoint.named(name), self._tls, self._retry_seconds)
        consumer = MqttConsumer(
            session, patterns or ("#",), qos=qos, prefetch=prefetch, owns=name is not None
        )
        self._consumers.add(consumer)
        return MessageReceiver(consumer)

    def push(self, queue: str) -> NoReturn:
        raise Unsupported(
            "MQTT keeps no work for those who are not there: push over amqp://, or publish to a "
            f"topic that workers share by subscribing to $share/GROUP/{queue}"
        )

    def pull(self, queue: str, *, prefetch: int = WORK_PREFETCH) -> NoReturn:
        raise Unsupported(
            "MQTT has no queues: pull over amqp://, or share what is published to a topic by "
            f"subscribing to $share/GROUP/{queue}"
        )

    async def request(
        self,
        service: str,
        body: Body = b"",
        *,
        headers: Headers | None = None,
        timeout: float | None = 30.0,
    ) -> ReceivedMessage:
        self._need_answers()
        check_topic(service)
        return await self._requester.request(service, body, headers, timeout)

    def reply(self, service: str, *, prefetch: int = WORK_PREFETCH) -> MessageReceiver:
        self._need_answers()
        check_topic(service)
        pattern = f"{SHARE_PREFIX}{GROUP}/{service}"
        consumer = MqttConsumer(self._session, (pattern,), qos=1, prefetch=prefetch)
        self._consumers.add(consumer)
        return MessageReceiver(consumer, replies=True)

    def stream(
        self,
        name: str,
        *,
        subjects: Sequence[str] = (),
        max_age: str | None = None,
        max_bytes: int | None = None,
    ) -> NoReturn:
        raise Unsupported(
            "MQTT has no streams to append to: over amqp://, make the stream keep what is "
            f"published, as in stream({name!r}, subjects=[…]), and publish here"
        )

    def replay(
        self, stream: str, start: StreamStart = "first", *, prefetch: int = SUBSCRIBE_PREFETCH
    ) -> NoReturn:
        raise Unsupported(
            f"MQTT cannot go back in time: replay {stream!r} over amqp://, or from the "
            "management API; a retained message is the last of its topic"
        )

    async def open(self) -> Self:
        await self._session.open()
        return self

    async def close(self) -> None:
        for consumer in list(self._consumers):
            await consumer.close()
        await self._session.close()

    def _need_answers(self) -> None:
        if not self._endpoint.is_v5:
            raise Unsupported(
                "MQTT 3.1.1 has no requests: leave ?version=3.1.1 away to speak MQTT 5, "
                "or use amqp://"
            )


def _check_qos(qos: int) -> None:
    if qos not in (0, 1, 2):
        raise PreconditionFailed(f"qos {qos!r} should be 0, 1 or 2")


def _check_exchange(exchange: str) -> None:
    if exchange != TOPIC_EXCHANGE:
        raise Unsupported(
            f"MQTT has no exchanges: to reach {exchange!r}, use amqp://; "
            "which one MQTT leads to is the broker's setting"
        )
