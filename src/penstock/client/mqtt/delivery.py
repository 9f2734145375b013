"""A message as MQTT delivers it: reading it, settling it, answering it.

To settle is to acknowledge: MQTT has no word for a message that cannot be used or should go to
somebody else. A message that several inflows of a fabric wanted is acknowledged when the last of
them has settled it. After a break there is nothing to acknowledge: where the session lasts, the
broker sends the message again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paho.mqtt.client import MQTTMessage

from penstock.client.body import Body, encode_body
from penstock.client.errors import RemoteError
from penstock.client.message import Message
from penstock.client.mqtt.outlet import Outlet, Posting
from penstock.client.mqtt.properties import (
    ERROR,
    MESSAGE_ID,
    TYPE,
    encode_properties,
    read_headers,
)
from penstock.core.errors import Unsupported


class Receipt:
    """What the broker waits for: the word of all who got the message."""

    __slots__ = ("_acknowledge", "_wanted")

    def __init__(self, acknowledge: Callable[[], None], wanted: int) -> None:
        self._acknowledge = acknowledge
        self._wanted = wanted

    def settle(self) -> None:
        self._wanted -= 1
        if self._wanted == 0:
            self._acknowledge()


class Delivery:
    """Keeps `penstock.client.message.Delivery`."""

    __slots__ = ("_outlet", "_packet", "_receipt")

    def __init__(self, packet: MQTTMessage, receipt: Receipt | None, outlet: Outlet) -> None:
        self._packet = packet
        self._receipt = receipt
        self._outlet = outlet

    async def ack(self) -> None:
        receipt, self._receipt = self._receipt, None
        if receipt is not None:
            receipt.settle()

    async def reject(self, requeue: bool) -> None:
        if requeue:
            raise Unsupported(
                "MQTT cannot hand a message back: leave it unacknowledged, or pull over amqp://"
            )
        await self.ack()

    async def reply(self, body: Body, headers: Mapping[str, Any] | None) -> None:
        await self._answer(body, headers, None)

    async def fail(self, error: BaseException) -> None:
        if isinstance(error, RemoteError):
            kind, reason = error.kind, error.reason
        else:
            kind, reason = type(error).__name__, str(error)
        await self._answer({"error": kind, "reason": reason}, None, ERROR)

    async def _answer(
        self, body: Body, headers: Mapping[str, Any] | None, kind: str | None
    ) -> None:
        asked = self._packet.properties
        topic = getattr(asked, "ResponseTopic", None)
        if not topic:
            raise Unsupported("the message asks for no answer: it has no response topic")
        content, content_type = encode_body(body)
        properties = encode_properties(
            modern=True,
            content_type=content_type,
            headers=headers,
            correlation=getattr(asked, "CorrelationData", None),
            kind=kind,
        )
        await (await self._outlet.post(Posting(topic, content, properties)))


def read_message(packet: MQTTMessage, delivery: Delivery) -> Message:
    properties = packet.properties
    headers = read_headers(properties)
    message_id = headers.pop(MESSAGE_ID, None)
    correlation = getattr(properties, "CorrelationData", None)
    return Message(
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


def read_error(message: Message) -> RemoteError | None:
    """The error an answer carries, if it does."""
    if message.headers.get(TYPE) != ERROR:
        return None
    try:
        told = message.json()
        return RemoteError(str(told["error"]), str(told["reason"]))
    except (ValueError, TypeError, KeyError):
        return RemoteError("Error", message.body.decode(errors="replace"))


def _readable(correlation: bytes) -> str:
    try:
        return correlation.decode()
    except UnicodeDecodeError:
        return correlation.hex()
