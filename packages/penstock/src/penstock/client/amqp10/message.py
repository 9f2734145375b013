"""AMQP 1.0 messages: encoding, settlement and replies.

Headers are application properties. Lists and maps are annotations `x-header-NAME`, as in Penstock's
broker, because application properties cannot have them. The body of a value section becomes bytes:
a string as UTF-8, other values as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal as Number
from typing import Any, Final
from uuid import UUID, uuid4

from penstock.client.amqp10.publisher import Amqp10ReplySender
from penstock.client.message import JSON, Body, ReceivedMessage, encode_body
from penstock.client.requester import ERROR_TYPE, error_body
from penstock.core.errors import PreconditionFailed, Unsupported
from penstock.core.trace_context import TRACEPARENT, TRACESTATE
from penstock.wire.amqp10.errors import EncodeError
from penstock.wire.amqp10.links import IncomingDelivery
from penstock.wire.amqp10.message import (
    Amqp10Header,
    Amqp10Message,
    Amqp10Properties,
    AmqpSequences,
    AmqpValue,
    encode_message,
)
from penstock.wire.amqp10.performatives import ACCEPTED, DeliveryState, Modified, Rejected
from penstock.wire.amqp10.values import Array, Decimal, Described, Symbol, Timestamp, UInt

COMPLEX_HEADER_PREFIX: Final = "x-header-"
TYPE: Final = Symbol("x-basic-type")
ROUTING_KEY: Final = Symbol("x-routing-key")
STREAM_OFFSET: Final = Symbol("x-stream-offset")

#: Annotations of the broker that are not headers.
_BROKER_ANNOTATIONS: Final = frozenset(
    {TYPE, ROUTING_KEY, STREAM_OFFSET, "x-exchange", "x-basic-cluster-id"}
)
_TTL_MAX: Final = 0xFFFF_FFFF


def encode_payload(
    body: bytes,
    properties: Amqp10Properties,
    *,
    headers: Mapping[str, Any] | None = None,
    ttl: float | None = None,
    durable: bool = True,
    kind: str | None = None,
) -> bytes:
    """`kind` is the type of the message, such as an error."""
    application: dict[str, Any] = {}
    annotations: dict[Any, Any] = {}
    for name, value in (headers or {}).items():
        if isinstance(value, list | tuple | dict):
            annotations[Symbol(COMPLEX_HEADER_PREFIX + name)] = _to_amqp(value)
        else:
            application[name] = _to_amqp(value)
    if kind is not None:
        annotations[TYPE] = kind
    properties.creation_time = Timestamp(int(datetime.now(UTC).timestamp() * 1000))
    milliseconds = None if ttl is None else UInt(min(max(0, round(ttl * 1000)), _TTL_MAX))
    message = Amqp10Message(
        body,
        header=Amqp10Header(durable=durable, ttl=milliseconds),
        message_annotations=annotations or None,
        properties=properties,
        application_properties=application or None,
    )
    try:
        return encode_message(message)
    except EncodeError as error:
        raise PreconditionFailed(f"AMQP 1.0 cannot encode a header: {error}") from error


def _to_amqp(value: Any) -> Any:
    match value:
        case datetime():
            return Timestamp(int(value.timestamp() * 1000))
        case Number():
            return str(value)
        case list() | tuple():
            return [_to_amqp(one) for one in value]
        case dict():
            return {str(key): _to_amqp(one) for key, one in value.items()}
    return value


def headers_of(message: Amqp10Message) -> dict[str, Any]:
    found = {
        name: _from_amqp(value) for name, value in (message.application_properties or {}).items()
    }
    for key, value in (message.message_annotations or {}).items():
        if not isinstance(key, str) or key in _BROKER_ANNOTATIONS:
            continue
        if key.startswith("x-") or key in (TRACEPARENT, TRACESTATE):
            found.setdefault(key.removeprefix(COMPLEX_HEADER_PREFIX), _from_amqp(value))
    return found


def _from_amqp(value: Any) -> Any:
    match value:
        case Timestamp():
            try:
                return datetime.fromtimestamp(value / 1000, UTC)
            except (OverflowError, ValueError, OSError):
                return int(value)
        case list():
            return [_from_amqp(one) for one in value]
        case Array():
            return [_from_amqp(one) for one in value.values]
        case dict():
            return {_key(key): _from_amqp(one) for key, one in value.items()}
        case Described():
            return _from_amqp(value.value)
        case bool() | bytes() | UUID() | Decimal() | None:
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case str():
            return str(value)
    return value


def _key(key: Any) -> Any:
    return str(key) if isinstance(key, str) else key


def body_of(message: Amqp10Message) -> tuple[bytes, str | None]:
    """The body as bytes, and the content type of a body that was converted."""
    match message.body:
        case bytes() as data:
            return data, None
        case AmqpValue(None):
            return b"", None
        case AmqpValue(bytes() as data):
            return data, None
        case AmqpValue(str() as text):
            return text.encode(), None
        case AmqpValue(value):
            return _json(_from_amqp(value)), JSON
        case AmqpSequences(lists):
            return _json([_from_amqp(one) for sequence in lists for one in sequence]), JSON
    raise TypeError(f"unknown message body: {type(message.body).__name__}")


def _json(value: Any) -> bytes:
    return json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":")).encode()


def id_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value if value is None else str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    return str(value)


class Amqp10Delivery:
    """Implements `penstock.client.message.DeliveryHandle`.

    A delivery is settled on its own connection. If that is lost, the broker delivers the message
    again, and settling does nothing.
    """

    __slots__ = ("_delivery", "_message", "_on_settled", "_replies")

    def __init__(
        self,
        message: Amqp10Message,
        delivery: IncomingDelivery | None,
        on_settled: Callable[[IncomingDelivery, DeliveryState], None],
        replies: Amqp10ReplySender,
    ) -> None:
        self._message = message
        self._delivery = delivery  #: None if it needs no settlement
        self._on_settled = on_settled
        self._replies = replies

    async def ack(self) -> None:
        self._settle(ACCEPTED)

    async def reject(self, requeue: bool) -> None:
        self._settle(Modified(delivery_failed=True) if requeue else Rejected())

    async def reply(self, body: Body, headers: Mapping[str, Any] | None) -> None:
        await self._reply(body, headers, None)

    async def fail(self, error: BaseException) -> None:
        await self._reply(error_body(error), None, ERROR_TYPE)

    def _settle(self, state: DeliveryState) -> None:
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            self._on_settled(delivery, state)

    async def _reply(self, body: Body, headers: Mapping[str, Any] | None, kind: str | None) -> None:
        request = self._message.properties
        if request is None or not request.reply_to:
            raise Unsupported("the message has no reply-to, so it cannot be replied to")
        content, content_type = encode_body(body)
        properties = Amqp10Properties(
            message_id=uuid4().hex,
            to=request.reply_to,
            correlation_id=request.correlation_id or request.message_id,
            content_type=content_type,
        )
        payload = encode_payload(content, properties, headers=headers, durable=False, kind=kind)
        await self._replies.send(request.reply_to, payload)


def read_message(message: Amqp10Message, delivery: Amqp10Delivery) -> ReceivedMessage:
    properties = message.properties or Amqp10Properties()
    annotations = message.message_annotations or {}
    body, content_type = body_of(message)
    offset = annotations.get(STREAM_OFFSET)
    return ReceivedMessage(
        body=body,
        address=str(annotations.get(ROUTING_KEY) or properties.subject or properties.to or ""),
        content_type=content_type if properties.content_type is None else properties.content_type,
        headers=headers_of(message),
        message_id=id_text(properties.message_id),
        correlation_id=id_text(properties.correlation_id),
        reply_to=properties.reply_to,
        priority=None if message.header is None else message.header.priority,
        timestamp=_to_datetime(properties.creation_time),
        redelivered=message.header is not None and bool(message.header.delivery_count),
        offset=int(offset) if isinstance(offset, int) else None,
        delivery=delivery,
    )


def _to_datetime(milliseconds: int | None) -> datetime | None:
    if milliseconds is None:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
