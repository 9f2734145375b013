"""Received messages, and the encoding of bodies.

All patterns and protocols have one type of message. `ack`, `reject`, `requeue`, `reply` and `fail`
use the protocol's `DeliveryHandle`. If a message needs no settlement, as in a subscription, they do
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from penstock.core.errors import PreconditionFailed

Headers = Mapping[str, Any]


class DeliveryHandle(Protocol):
    """How a protocol settles and replies to a message. Only the first settlement has an effect."""

    async def ack(self) -> None: ...

    async def reject(self, requeue: bool) -> None: ...

    async def reply(self, body: Body, headers: Mapping[str, Any] | None) -> None: ...

    async def fail(self, error: BaseException) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    body: bytes
    address: str  #: the routing key or topic, queue, stream or service
    content_type: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    message_id: str | None = None  #: the same on every copy that the sender sent again
    correlation_id: str | None = None
    reply_to: str | None = None
    priority: int | None = None  #: over AMQP 1.0 only
    timestamp: datetime | None = None  #: when it was sent, by the sender's clock
    redelivered: bool = False  #: it was delivered before, and not acknowledged
    offset: int | None = None  #: in the stream of a replay
    qos: int | None = None  #: over MQTT only
    retained: bool = False  #: over MQTT: stored by the broker before the subscription
    delivery: DeliveryHandle = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)

    async def ack(self) -> None:
        """The message is processed. Loops over messages do this."""
        await self.delivery.ack()

    async def reject(self) -> None:
        """The broker drops the message, or dead-letters it."""
        await self.delivery.reject(requeue=False)

    async def requeue(self) -> None:
        """The broker delivers the message again, to this or another consumer."""
        await self.delivery.reject(requeue=True)

    async def reply(self, body: Body = b"", *, headers: Mapping[str, Any] | None = None) -> None:
        await self.delivery.reply(body, headers)

    async def fail(self, error: BaseException) -> None:
        """Reply with an error: the requester gets a `RemoteError`."""
        await self.delivery.fail(error)


TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"

#: Bytes, a string, or any value that `json.dumps` accepts.
Body = Any


def encode_body(body: Body) -> tuple[bytes, str | None]:
    """The bytes and the content type: `text/plain` for strings, none for bytes, else JSON."""
    if isinstance(body, bytes):
        return body, None
    if isinstance(body, bytearray | memoryview):
        return bytes(body), None
    if isinstance(body, str):
        return body.encode(), TEXT
    try:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise PreconditionFailed(f"a body is bytes, a string or a JSON value: {error}") from error
    return text.encode(), JSON
