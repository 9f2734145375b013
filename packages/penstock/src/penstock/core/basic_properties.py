"""The content header of a message and its route, as AMQP 0-9-1 writes them: what is said of a body.

Bytes in, values out, and back; no I/O. Broker and clients share it, for millions of messages pass
through it on either side: properties are taken one by one, which costs half of what a loop over
their names does. A header is read whole or refused: whatever the input, decoding succeeds or raises
`WireSyntaxError`.

Short strings are text by agreement only: what is not UTF-8 passes unharmed as surrogates, as it
does in RabbitMQ.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from penstock.core.errors import UnexpectedFrame, WireSyntaxError
from penstock.core.field_table import decode_table, encode_table

# The property flags, in the order of the properties; the last two bits mean nothing in class basic.
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
CLUSTER_ID: Final = 0x0004

#: The delivery modes: kept in memory alone, and kept on disk.
TRANSIENT: Final = 1
PERSISTENT: Final = 2

#: How long a header without properties is.
MIN_HEADER_BYTES: Final = 14

#: How long a short string may be.
SHORTSTR_MAX: Final = 255

#: The beginning of a content header: class basic and the weight. The size of the body follows.
HEADER_PREFIX: Final = b"\x00\x3c\x00\x00"
#: The rest of a content header that has only a delivery mode: transient, or persistent.
MINIMAL_HEADER_TAILS: Final = (b"\x10\x00\x01", b"\x10\x00\x02")

_PREFIX: Final = Struct(">HHQH")
_BASIC: Final = 60
_RARE: Final = TYPE | USER_ID | APP_ID | CLUSTER_ID
#: Each number as a byte: the length of a short string.
_OCTETS: Final = tuple(bytes((each,)) for each in range(256))


@dataclass(slots=True)
class BasicProperties:
    """The properties of class basic; None is absent. Not frozen: that costs more than the rest."""

    content_type: str | None = None
    headers: dict[str, Any] | None = None
    delivery_mode: int | None = None
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
    cluster_id: str | None = None

    @property
    def persistent(self) -> bool:
        return self.delivery_mode == PERSISTENT


def encode_header(said: BasicProperties, size: int) -> bytes:
    """The content header for a body of `size` bytes."""
    flags = 0
    parts = [b""]
    if said.content_type is not None:
        flags |= CONTENT_TYPE
        parts.append(encode_shortstr(said.content_type))
    if said.content_encoding is not None:
        flags |= CONTENT_ENCODING
        parts.append(encode_shortstr(said.content_encoding))
    if said.headers is not None:
        flags |= HEADERS
        parts.append(encode_table(said.headers))
    if said.delivery_mode is not None:
        flags |= DELIVERY_MODE
        parts.append(_number(said.delivery_mode, 1, "delivery mode"))
    if said.priority is not None:
        flags |= PRIORITY
        parts.append(_number(said.priority, 1, "priority"))
    if said.correlation_id is not None:
        flags |= CORRELATION_ID
        parts.append(encode_shortstr(said.correlation_id))
    if said.reply_to is not None:
        flags |= REPLY_TO
        parts.append(encode_shortstr(said.reply_to))
    if said.expiration is not None:
        flags |= EXPIRATION
        parts.append(encode_shortstr(said.expiration))
    if said.message_id is not None:
        flags |= MESSAGE_ID
        parts.append(encode_shortstr(said.message_id))
    if said.timestamp is not None:
        flags |= TIMESTAMP
        parts.append(_number(said.timestamp, 8, "timestamp"))
    if said.type is not None:
        flags |= TYPE
        parts.append(encode_shortstr(said.type))
    if said.user_id is not None:
        flags |= USER_ID
        parts.append(encode_shortstr(said.user_id))
    if said.app_id is not None:
        flags |= APP_ID
        parts.append(encode_shortstr(said.app_id))
    if said.cluster_id is not None:
        flags |= CLUSTER_ID
        parts.append(encode_shortstr(said.cluster_id))
    parts[0] = _PREFIX.pack(_BASIC, 0, size, flags)
    return b"".join(parts)


def encode_minimal_header(size: int, persistent: bool) -> bytes:
    """The content header of a message that has only a delivery mode."""
    return HEADER_PREFIX + size.to_bytes(8, "big") + MINIMAL_HEADER_TAILS[persistent]


def decode_header(header: bytes) -> BasicProperties:
    """Every property of a content header."""
    if not header.startswith(b"\x00\x3c") or len(header) < MIN_HEADER_BYTES:
        raise header_class_error(header)
    flags = header[12] << 8 | header[13]
    at = MIN_HEADER_BYTES
    said = BasicProperties()
    try:
        if flags & CONTENT_TYPE:
            said.content_type, at = _text(header, at)
        if flags & CONTENT_ENCODING:
            said.content_encoding, at = _text(header, at)
        if flags & HEADERS:
            said.headers, at = decode_table(header, at)
        if flags & DELIVERY_MODE:
            said.delivery_mode = header[at]
            at += 1
        if flags & PRIORITY:
            said.priority = header[at]
            at += 1
        if flags & CORRELATION_ID:
            said.correlation_id, at = _text(header, at)
        if flags & REPLY_TO:
            said.reply_to, at = _text(header, at)
        if flags & EXPIRATION:
            said.expiration, at = _text(header, at)
        if flags & MESSAGE_ID:
            said.message_id, at = _text(header, at)
        if flags & TIMESTAMP:
            said.timestamp = int.from_bytes(header[at : at + 8], "big")
            at += 8
        if flags & _RARE:
            at = _decode_rare(header, at, flags, said)
    except IndexError:
        raise WireSyntaxError(f"content header ends within a property, at byte {at}") from None
    if at != len(header):  # nothing above looks whether it reads past the end
        raise WireSyntaxError(f"properties take {at} bytes of a header of {len(header)}")
    return said


def _decode_rare(header: bytes, at: int, flags: int, said: BasicProperties) -> int:
    if flags & TYPE:
        said.type, at = _text(header, at)
    if flags & USER_ID:
        said.user_id, at = _text(header, at)
    if flags & APP_ID:
        said.app_id, at = _text(header, at)
    if flags & CLUSTER_ID:
        said.cluster_id, at = _text(header, at)
    return at


def header_class_error(header: bytes) -> UnexpectedFrame | WireSyntaxError:
    """Why this is no content header of class basic."""
    if len(header) < MIN_HEADER_BYTES:
        return WireSyntaxError(
            f"content header of {len(header)} bytes, at least {MIN_HEADER_BYTES} are needed"
        )
    number = int.from_bytes(header[:2], "big")
    return UnexpectedFrame(f"expected content header for class 60, got one for class {number}")


def encode_route(exchange: str, routing_key: str) -> bytes:
    """The exchange and the routing key as a message keeps them: two short strings."""
    return encode_shortstr(exchange) + encode_shortstr(routing_key)


def decode_route(route: bytes) -> tuple[str, str]:
    exchange, at = decode_shortstr(route, 0)
    routing_key, at = decode_shortstr(route, at)
    if at != len(route):
        raise WireSyntaxError(f"{len(route) - at} bytes after the routing key")
    return exchange, routing_key


def encode_shortstr(text: str, what: str = "") -> bytes:
    """`what` is the text's name, for the error about one that cannot be sent."""
    try:
        content = text.encode("utf-8", "surrogateescape")
        return _OCTETS[len(content)] + content
    except UnicodeEncodeError:
        reason = "cannot be written as UTF-8"
    except IndexError:
        reason = f"is {len(content)} bytes long, at most {SHORTSTR_MAX} may be"
    raise WireSyntaxError(f"{what}{': ' if what else ''}{text[:32]!r} {reason}")


def decode_shortstr(data: bytes, pos: int) -> tuple[str, int]:
    start = pos + 1
    if start > len(data) or (stop := start + data[pos]) > len(data):
        raise WireSyntaxError(f"short string at byte {pos} runs past the end")
    return data[start:stop].decode("utf-8", "surrogateescape"), stop


def _text(data: bytes, at: int) -> tuple[str, int]:
    """As `decode_shortstr`, for who looks at the end whether all of it was there."""
    start = at + 1
    stop = start + data[at]
    return data[start:stop].decode("utf-8", "surrogateescape"), stop


def _number(value: int, size: int, what: str) -> bytes:
    try:
        return value.to_bytes(size, "big")
    except OverflowError:
        raise WireSyntaxError(f"{what} {value} does not fit in {size} bytes") from None
