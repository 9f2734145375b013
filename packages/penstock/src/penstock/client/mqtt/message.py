"""MQTT messages: properties, settlement and replies.

MQTT has acknowledgements only, no rejection. A message that several receivers of a fabric got is
acknowledged when all have settled it. After a reconnect there is nothing to acknowledge: a
persistent session delivers the message again.

Headers are user properties: strings, and a list is one that occurs several times. The message id is
the user property `message-id`, the type of a reply is `type`. MQTT 3.1.1 carries a body only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from penstock.client.message import Body, Headers, ReceivedMessage, encode_body
from penstock.client.mqtt.publisher import MqttPublisher, UnacknowledgedMessage
from penstock.client.requester import ERROR_TYPE, error_body
from penstock.core.errors import PreconditionFailed, Unsupported


class SharedAcknowledgement:
    """Acknowledges a message when all its receivers have settled it."""

    __slots__ = ("_acknowledge", "_wanted")

    def __init__(self, acknowledge: Callable[[], None], wanted: int) -> None:
        self._acknowledge = acknowledge
        self._wanted = wanted

    def settle(self) -> None:
        self._wanted -= 1
        if self._wanted == 0:
            self._acknowledge()


class MqttDelivery:
    """Implements `penstock.client.message.DeliveryHandle`."""

    __slots__ = ("_packet", "_publisher", "_receipt")

    def __init__(
        self, packet: MQTTMessage, receipt: SharedAcknowledgement | None, publisher: MqttPublisher
    ) -> None:
        self._packet = packet
        self._receipt = receipt
        self._publisher = publisher

    async def ack(self) -> None:
        receipt, self._receipt = self._receipt, None
        if receipt is not None:
            receipt.settle()

    async def reject(self, requeue: bool) -> None:
        if requeue:
            raise Unsupported(
                "MQTT cannot requeue a message: leave it unacknowledged, or pull over amqp://"
            )
        await self.ack()

    async def reply(self, body: Body, headers: Mapping[str, Any] | None) -> None:
        await self._reply(body, headers, None)

    async def fail(self, error: BaseException) -> None:
        await self._reply(error_body(error), None, ERROR_TYPE)

    async def _reply(self, body: Body, headers: Mapping[str, Any] | None, kind: str | None) -> None:
        request = self._packet.properties
        topic = getattr(request, "ResponseTopic", None)
        if not topic:
            raise Unsupported("the message has no response topic, so it cannot be replied to")
        content, content_type = encode_body(body)
        properties = encode_properties(
            is_v5=True,
            content_type=content_type,
            headers=headers,
            correlation=getattr(request, "CorrelationData", None),
            kind=kind,
        )
        await (await self._publisher.post(UnacknowledgedMessage(topic, content, properties)))


def read_message(packet: MQTTMessage, delivery: MqttDelivery) -> ReceivedMessage:
    properties = packet.properties
    headers = read_headers(properties)
    message_id = headers.pop(MESSAGE_ID, None)
    correlation = getattr(properties, "CorrelationData", None)
    return ReceivedMessage(
        body=bytes(packet.payload),
        address=packet.topic,
        content_type=getattr(properties, "ContentType", None),
        headers=headers,
        message_id=message_id if isinstance(message_id, str) else None,
        correlation_id=None if correlation is None else _readable(correlation),
        reply_to=getattr(properties, "ResponseTopic", None),
        redelivered=bool(packet.dup),
        qos=packet.qos,
        retained=bool(packet.retain),
        delivery=delivery,
    )


def _readable(correlation: bytes) -> str:
    try:
        return correlation.decode()
    except UnicodeDecodeError:
        return correlation.hex()


MESSAGE_ID: Final = "message-id"
TYPE: Final = "type"


def encode_properties(
    *,
    is_v5: bool,
    content_type: str | None = None,
    headers: Headers | None = None,
    ttl: float | None = None,
    message_id: str | None = None,
    reply_to: str | None = None,
    correlation: bytes | None = None,
    kind: str | None = None,
) -> Properties | None:
    if not is_v5:
        if headers or ttl is not None or message_id or reply_to:
            raise Unsupported(
                "MQTT 3.1.1 carries a body only: headers, a ttl, a message id and replies need "
                "MQTT 5 (remove ?version=3.1.1) or amqp://"
            )
        return None
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    if content_type is not None:
        properties.ContentType = content_type
        properties.PayloadFormatIndicator = 1  # text and JSON are UTF-8
    if ttl is not None:
        properties.MessageExpiryInterval = max(0, math.ceil(ttl))
    if reply_to is not None:
        properties.ResponseTopic = reply_to
    if correlation is not None:
        properties.CorrelationData = correlation
    pairs = list(_pairs(headers or {}))
    pairs += [(name, text) for name, text in ((MESSAGE_ID, message_id), (TYPE, kind)) if text]
    if pairs:
        properties.UserProperty = pairs
    return properties


def read_headers(properties: Properties | None) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    for name, value in getattr(properties, "UserProperty", ()):
        if name not in headers:
            headers[name] = value
        elif isinstance(headers[name], list):
            headers[name].append(value)
        else:
            headers[name] = [headers[name], value]
    return headers


def _pairs(headers: Headers) -> Iterable[tuple[str, str]]:
    for name, value in headers.items():
        for each in value if isinstance(value, list | tuple) else (value,):
            if not isinstance(each, str | int | float):
                raise PreconditionFailed(
                    f"header {name!r}: MQTT carries strings and numbers, not {type(each).__name__}"
                )
            yield name, str(each)
