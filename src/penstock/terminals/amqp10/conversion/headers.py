"""Annotations and application properties of AMQP 1.0, as the headers of AMQP 0-9-1."""

from __future__ import annotations

from typing import Any, Final

from penstock.terminals.amqp10.conversion.basic import Basic
from penstock.terminals.amqp10.conversion.values import plain, survives
from penstock.wire.amqp10.codec import decode_whole
from penstock.wire.amqp10.errors import DecodeError, EncodeError
from penstock.wire.amqp10.values import Array, Symbol

CC: Final = "x-cc"
TYPE: Final = "x-basic-type"
CLUSTER_ID: Final = "x-basic-cluster-id"
#: Headers that are tables or arrays, which application properties cannot be.
COMPLEX: Final = "x-header-"

#: What the broker says itself, and takes from nobody.
BROKERS: Final = frozenset({"x-exchange", "x-routing-key", "x-stream-offset"})
_RESERVED: Final = frozenset(
    {"CC", "BCC", "x-mqtt-properties", "x-message-id", "x-correlation-id", "x-reply-to-topic"}
)
_BESIDE: Final = "x-amqp-1.0-"


def carried_name(key: Any, value: Any) -> str | None:
    """The header that an annotation becomes, if it does."""
    if not isinstance(key, Symbol) or not key.startswith("x-") or len(key) > 255:
        return None
    if key in BROKERS or key in (CC, TYPE, CLUSTER_ID) or key.startswith("x-opt-rabbitmq-"):
        return None
    if not key.startswith(COMPLEX):
        return str(key) if application_name(key) else None
    name = str(key[len(COMPLEX) :])
    if not isinstance(value, list | dict | Array) or name[:2] == "x-":
        return None
    return name if name and application_name(name) else None


def annotations_in(encoded: bytes, basic: Basic, headers: dict[str, Any]) -> bool:
    """Put annotations into the headers; says whether they come back exact."""
    exact = True
    for key, value in decode_whole(encoded).items():
        if key in BROKERS:
            continue
        if key == CC and (keys := _texts(value)):
            headers["CC"] = keys
            exact &= isinstance(value, list)
        elif key == TYPE and (short := _short(value)):
            basic.type = short
        elif key == CLUSTER_ID and (short := _short(value)):
            basic.cluster_id = short
        else:
            name = carried_name(key, value)
            exact &= name is not None and _put(name, value, headers) and survives(value)
    return exact


def application_in(encoded: bytes, headers: dict[str, Any]) -> bool:
    """Put application properties into the headers; says whether they come back exact."""
    exact = True
    for key, value in decode_whole(encoded).items():
        if not isinstance(key, str):
            raise DecodeError(f"an application property is named by a {type(key).__name__}")
        name = str(key)
        exact &= application_name(name) and _put(name, value, headers) and survives(value)
        exact &= name[:2] != "x-" and type(key) is str
    return exact


def application_name(name: str) -> bool:
    """Whether what has this name becomes a header: not if it would mean something there."""
    return not (name in _RESERVED or name.startswith(_BESIDE) or len(name.encode()) > 255)


def _put(name: str, value: Any, headers: dict[str, Any]) -> bool:
    try:
        headers[name] = plain(value)
    except EncodeError:
        return False
    return True


def _texts(value: Any) -> list[str] | None:
    found = list(value.values) if isinstance(value, Array) else value
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        return None
    return [str(one) for one in found]


def _short(value: Any) -> bytes | None:
    if not isinstance(value, str) or len(content := value.encode()) > 255:
        return None
    return bytes((len(content),)) + content
