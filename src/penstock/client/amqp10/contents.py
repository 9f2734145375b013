"""What a message says, as programs have it and as AMQP 1.0 carries it.

Headers are application properties; those that are lists or maps, which these cannot be, are
annotations `x-header-NAME`, as Penstock's broker has it. A value that came by another client is
read as bytes: a text as UTF-8, another as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal as Number
from typing import Any, Final
from uuid import UUID

from penstock.client.body import JSON
from penstock.core.errors import PreconditionFailed
from penstock.wire.amqp10.errors import EncodeError
from penstock.wire.amqp10.message import (
    Header,
    Message,
    Properties,
    Sequences,
    Value,
    encode_message,
)
from penstock.wire.amqp10.values import Array, Decimal, Described, Symbol, Timestamp, UInt

COMPLEX: Final = "x-header-"
TYPE: Final = Symbol("x-basic-type")
ROUTING_KEY: Final = Symbol("x-routing-key")
OFFSET: Final = Symbol("x-stream-offset")

#: What the broker says of a message, and no header of its sender's.
_TOLD: Final = frozenset({TYPE, ROUTING_KEY, OFFSET, "x-exchange", "x-basic-cluster-id"})
_TTL_MAX: Final = 0xFFFF_FFFF


def write(
    body: bytes,
    properties: Properties,
    *,
    headers: Mapping[str, Any] | None = None,
    ttl: float | None = None,
    durable: bool = True,
    kind: str | None = None,
) -> bytes:
    """The bytes of a message; `kind` is what it is to programs, such as an error."""
    application: dict[str, Any] = {}
    annotations: dict[Any, Any] = {}
    for name, value in (headers or {}).items():
        if isinstance(value, list | tuple | dict):
            annotations[Symbol(COMPLEX + name)] = _given(value)
        else:
            application[name] = _given(value)
    if kind is not None:
        annotations[TYPE] = kind
    properties.creation_time = Timestamp(int(datetime.now(UTC).timestamp() * 1000))
    milliseconds = None if ttl is None else UInt(min(max(0, round(ttl * 1000)), _TTL_MAX))
    message = Message(
        body,
        header=Header(durable=durable, ttl=milliseconds),
        message_annotations=annotations or None,
        properties=properties,
        application_properties=application or None,
    )
    try:
        return encode_message(message)
    except EncodeError as error:
        raise PreconditionFailed(f"a header cannot be sent by AMQP 1.0: {error}") from error


def _given(value: Any) -> Any:
    match value:
        case datetime():
            return Timestamp(int(value.timestamp() * 1000))
        case Number():
            return str(value)
        case list() | tuple():
            return [_given(one) for one in value]
        case dict():
            return {str(key): _given(one) for key, one in value.items()}
    return value


def headers_of(message: Message) -> dict[str, Any]:
    found = {name: _taken(value) for name, value in (message.application_properties or {}).items()}
    for key, value in (message.message_annotations or {}).items():
        if isinstance(key, str) and key.startswith("x-") and key not in _TOLD:
            found.setdefault(key.removeprefix(COMPLEX), _taken(value))
    return found


def _taken(value: Any) -> Any:
    match value:
        case Timestamp():
            try:
                return datetime.fromtimestamp(value / 1000, UTC)
            except (OverflowError, ValueError, OSError):
                return int(value)
        case list():
            return [_taken(one) for one in value]
        case Array():
            return [_taken(one) for one in value.values]
        case dict():
            return {_key(key): _taken(one) for key, one in value.items()}
        case Described():
            return _taken(value.value)
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


def body_of(message: Message) -> tuple[bytes, str | None]:
    """The body as bytes, and the content type where the message does not say."""
    match message.body:
        case bytes() as data:
            return data, None
        case Value(None):
            return b"", None
        case Value(bytes() as data):
            return data, None
        case Value(str() as text):
            return text.encode(), None
        case Value(value):
            return _json(_taken(value)), JSON
        case Sequences(lists):
            return _json([_taken(one) for sequence in lists for one in sequence]), JSON
    raise TypeError(f"a message with a {type(message.body).__name__} for a body")


def _json(value: Any) -> bytes:
    return json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":")).encode()


def id_text(value: Any) -> str | None:
    """An id of any of its types, as a text."""
    if value is None or isinstance(value, str):
        return value if value is None else str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    return str(value)
