"""What is said about a message beside its body: content headers of AMQP 0-9-1, read and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from penstock.core.errors import WireSyntaxError
from penstock.core.tables import decode_table, encode_table

# The property flags, in the order of the properties.
CONTENT_TYPE: Final = 0x8000
CONTENT_ENCODING: Final = 0x4000
HEADERS: Final = 0x2000
DELIVERY_MODE: Final = 0x1000
PRIORITY: Final = 0x0800
CORRELATION_ID: Final = 0x0400
REPLY_TO: Final = 0x0200
EXPIRATION: Final = 0x0100
MESSAGE_ID: Final = 0x0080
TIMESTAMP: Final = 0x0040
TYPE: Final = 0x0020
USER_ID: Final = 0x0010
APP_ID: Final = 0x0008

_PREFIX: Final = Struct(">HHQH")
_BASIC: Final = 60
_LONG: Final = Struct(">Q")
_PERSISTENT: Final = 2
_SHORTEST: Final = 14
_BEHIND: Final = TYPE | USER_ID | APP_ID
#: Each number as a byte: the length of a short string.
_OCTETS: Final = tuple(bytes((each,)) for each in range(256))


@dataclass(slots=True)
class Properties:
    """The properties of class basic; None is absent. Not frozen: that costs more than the rest."""

    content_type: str | None = None
    headers: Mapping[str, Any] | None = None
    persistent: bool = True
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None  #: milliseconds
    message_id: str | None = None
    timestamp: int | None = None  #: seconds since 1970
    content_encoding: str | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None


def write_header(size: int, said: Properties) -> bytes:
    """The payload of a content header, for a body of so many bytes."""
    # One by one: a loop over their names would cost twice as much, for every message.
    flags = 0
    parts = [b""]
    if said.content_type is not None:
        flags |= CONTENT_TYPE
        parts.append(short_string(said.content_type))
    if said.content_encoding is not None:
        flags |= CONTENT_ENCODING
        parts.append(short_string(said.content_encoding))
    if said.headers:
        flags |= HEADERS
        parts.append(encode_table(said.headers))
    if said.persistent:
        flags |= DELIVERY_MODE
        parts.append(b"\x02")
    if said.priority:
        flags |= PRIORITY
        parts.append(bytes((said.priority,)))
    if said.correlation_id is not None:
        flags |= CORRELATION_ID
        parts.append(short_string(said.correlation_id))
    if said.reply_to is not None:
        flags |= REPLY_TO
        parts.append(short_string(said.reply_to))
    if said.expiration is not None:
        flags |= EXPIRATION
        parts.append(short_string(said.expiration))
    if said.message_id is not None:
        flags |= MESSAGE_ID
        parts.append(short_string(said.message_id))
    if said.timestamp is not None:
        flags |= TIMESTAMP
        parts.append(_LONG.pack(said.timestamp))
    if said.type is not None:
        flags |= TYPE
        parts.append(short_string(said.type))
    if said.user_id is not None:
        flags |= USER_ID
        parts.append(short_string(said.user_id))
    if said.app_id is not None:
        flags |= APP_ID
        parts.append(short_string(said.app_id))
    parts[0] = _PREFIX.pack(_BASIC, 0, size, flags)
    return b"".join(parts)


def read_header(header: bytes) -> Properties:
    """What a content header says. One that lies about its own lengths is an error."""
    if len(header) < _SHORTEST:
        raise WireSyntaxError(f"a content header of {len(header)} bytes")
    flags = header[12] << 8 | header[13]
    at = _SHORTEST
    content_type = encoding = correlation = reply = expiration = message = None
    kind = user = app = None
    headers: dict[str, Any] | None = None
    mode = priority = timestamp = None
    try:
        if flags & CONTENT_TYPE:
            content_type, at = _read_short(header, at)
        if flags & CONTENT_ENCODING:
            encoding, at = _read_short(header, at)
        if flags & HEADERS:
            headers, at = decode_table(header, at)
        if flags & DELIVERY_MODE:
            mode = header[at]
            at += 1
        if flags & PRIORITY:
            priority = header[at]
            at += 1
        if flags & CORRELATION_ID:
            correlation, at = _read_short(header, at)
        if flags & REPLY_TO:
            reply, at = _read_short(header, at)
        if flags & EXPIRATION:
            expiration, at = _read_short(header, at)
        if flags & MESSAGE_ID:
            message, at = _read_short(header, at)
        if flags & TIMESTAMP:
            timestamp = _LONG.unpack_from(header, at)[0]
            at += 8
        if flags & _BEHIND:
            if flags & TYPE:
                kind, at = _read_short(header, at)
            if flags & USER_ID:
                user, at = _read_short(header, at)
            if flags & APP_ID:
                app, at = _read_short(header, at)
    except (IndexError, StructError) as error:
        raise WireSyntaxError(f"properties that cannot be read: {error}") from error
    if at > len(header):
        raise WireSyntaxError("properties that run past the end of their header")
    return Properties(
        content_type, headers, mode == _PERSISTENT, priority, correlation, reply, expiration,
        message, timestamp, encoding, kind, user, app,
    )  # fmt: skip


def write_route(exchange: str, key: str) -> bytes:
    """Where a message goes, as a publish says it: two short strings."""
    return short_string(exchange) + short_string(key)


def read_route(route: bytes) -> tuple[str, str]:
    """The exchange and the routing key."""
    try:
        exchange, at = _read_short(route, 0)
        key, at = _read_short(route, at)
    except IndexError:
        at = -1
    if at != len(route):
        raise WireSyntaxError("a route that is not two short strings")
    return exchange, key


def short_string(text: str, what: str = "") -> bytes:
    """`what` is the text's name, for the error about one that cannot be sent."""
    try:
        content = text.encode("utf-8", "surrogateescape")
        return _OCTETS[len(content)] + content
    except UnicodeEncodeError:
        reason = "cannot be written as UTF-8"
    except IndexError:
        reason = f"is {len(content)} bytes long, at most 255 may be"
    raise WireSyntaxError(f"{what}{': ' if what else ''}{text[:32]!r} {reason}")


def _read_short(data: bytes, at: int) -> tuple[str, int]:
    """Text by agreement only: what is not UTF-8 passes unharmed as surrogates."""
    start = at + 1
    stop = start + data[at]
    return data[start:stop].decode("utf-8", "surrogateescape"), stop
