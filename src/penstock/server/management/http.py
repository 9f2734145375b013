"""Requests and responses as values: what `connection.py` reads and writes, and handlers see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

JSON: Final = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str  #: as it was sent, still percent-encoded, without the query
    query: Mapping[str, str]
    headers: Mapping[str, str]  #: by lower-case name
    peer: str  #: the address it came from
    read: Callable[[int], Awaitable[bytes]]  #: the body, refused when it is larger than that
    transport: asyncio.BaseTransport | None = None  #: the connection it came by


@dataclass(frozen=True, slots=True)
class Response:
    status: int = 200
    body: bytes | AsyncIterator[bytes | memoryview] = b""
    headers: Mapping[str, str] = field(default_factory=dict)


#: Done, and there is nothing more to say.
DONE: Final = Response(204)
CREATED: Final = Response(201)


def as_json(value: Any, status: int = 200) -> Response:
    return Response(status, encode_json(value), JSON)


def encode_json(value: Any) -> bytes:
    return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def _plain(value: object) -> object:
    """What field tables hold and JSON does not, as RabbitMQ shows it."""
    match value:
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case datetime():
            return int(value.timestamp())
        case Decimal():
            return float(value)
        case set() | frozenset() | tuple():
            return list(value)
    return str(value)
