"""The content header and the route of a message, as AMQP 0-9-1 encodes them.

Bytes in, values out, and back; no I/O. Broker and clients share it. Properties are coded one by
one, which takes half the time of a loop over their names. Decoding succeeds or raises
`WireSyntaxError`, whatever the input.

Short strings need not be UTF-8: other bytes become surrogates, as in RabbitMQ.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from penstock.core.errors import UnexpectedFrame, WireSyntaxError
from penstock.core.field_table import decode_table, encode_table

# Property flags, in the order of the properties. Class basic does not use the last two bits.
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

#: Delivery modes.
TRANSIENT: Final = 1
PERSISTENT: Final = 2

#: The length of a header without properties.
MIN_HEADER_BYTES: Final = 14

#: The longest short string.
SHORTSTR_MAX: Final = 255

#: The beginning of a content header: class basic and the weight. The size of the body follows.
HEADER_PREFIX: Final = b"\x00\x3c\x00\x00"
#: The rest of a content header that has only a delivery mode: transient, or persistent.
MINIMAL_HEADER_TAILS: Final = (b"\x10\x00\x01", b"\x10\x00\x02")

_PREFIX: Final = Struct(">HHQH")
_BASIC: Final = 60
_RARE: Final = TYPE | USER_ID | APP_ID | CLUSTER_ID
#: Each number as a byte, for the length of a short string.
_OCTETS: Final = tuple(bytes((each,)) for each in range(256))


@dataclass(slots=True)
class BasicProperties:
    """The properties of class basic; None means absent. Not frozen: that would double the cost."""

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


def encode_header(properties: BasicProperties, size: int) -> bytes:
    flags = 0
    parts = [b""]
    if properties.content_type is not None:
        flags |= CONTENT_TYPE
        parts.append(encode_shortstr(properties.content_type))
    if properties.content_encoding is not None:
        flags |= CONTENT_ENCODING
        parts.append(encode_shortstr(properties.content_encoding))
    if properties.headers is not None:
        flags |= HEADERS
        parts.append(encode_table(properties.headers))
    if properties.delivery_mode is not None:
        flags |= DELIVERY_MODE
        parts.append(_number(properties.delivery_mode, 1, "delivery mode"))
    if properties.priority is not None:
        flags |= PRIORITY
        parts.append(_number(properties.priority, 1, "priority"))
    if properties.correlation_id is not None:
        flags |= CORRELATION_ID
        parts.append(encode_shortstr(properties.correlation_id))
    if properties.reply_to is not None:
        flags |= REPLY_TO
        parts.append(encode_shortstr(properties.reply_to))
    if properties.expiration is not None:
        flags |= EXPIRATION
        parts.append(encode_shortstr(properties.expiration))
    if properties.message_id is not None:
        flags |= MESSAGE_ID
        parts.append(encode_shortstr(properties.message_id))
    if properties.timestamp is not None:
        flags |= TIMESTAMP
        parts.append(_number(properties.timestamp, 8, "timestamp"))
    if properties.type is not None:
        flags |= TYPE
        parts.append(encode_shortstr(properties.type))
    if properties.user_id is not None:
        flags |= USER_ID
        parts.append(encode_shortstr(properties.user_id))
    if properties.app_id is not None:
        flags |= APP_ID
        parts.append(encode_shortstr(properties.app_id))
    if properties.cluster_id is not None:
        flags |= CLUSTER_ID
        parts.append(encode_shortstr(properties.cluster_id))
    parts[0] = _PREFIX.pack(_BASIC, 0, size, flags)
    return b"".join(parts)


def encode_minimal_header(size: int, persistent: bool) -> bytes:
    """The content header of a message that has only a delivery mode."""
    return HEADER_PREFIX + size.to_bytes(8, "big") + MINIMAL_HEADER_TAILS[persistent]


def decode_header(header: bytes) -> BasicProperties:
    if not header.startswith(b"\x00\x3c") or len(header) < MIN_HEADER_BYTES:
        raise header_class_error(header)
    flags = header[12] << 8 | header[13]
    at = MIN_HEADER_BYTES
    properties = BasicProperties()
    try:
        if flags & CONTENT_TYPE:
            properties.content_type, at = _text(header, at)
        if flags & CONTENT_ENCODING:
            properties.content_encoding, at = _text(header, at)
        if flags & HEADERS:
            properties.headers, at = decode_table(header, at)
        if flags & DELIVERY_MODE:
            properties.delivery_mode = header[at]
            at += 1
        if flags & PRIORITY:
            properties.priority = header[at]
            at += 1
        if flags & CORRELATION_ID:
            properties.correlation_id, at = _text(header, at)
        if flags & REPLY_TO:
            properties.reply_to, at = _text(header, at)
        if flags & EXPIRATION:
            properties.expiration, at = _text(header, at)
        if flags & MESSAGE_ID:
            properties.message_id, at = _text(header, at)
        if flags & TIMESTAMP:
            properties.timestamp = int.from_bytes(header[at : at + 8], "big")
            at += 8
        if flags & _RARE:
            at = _decode_rare(header, at, flags, properties)
    except IndexError:
        raise WireSyntaxError(f"content header ends within a property, at byte {at}") from None
    if at != len(header):  # slices above do not check the end
        raise WireSyntaxError(f"properties take {at} bytes of a header of {len(header)}")
    return properties


def _decode_rare(header: bytes, at: int, flags: int, properties: BasicProperties) -> int:
    if flags & TYPE:
        properties.type, at = _text(header, at)
    if flags & USER_ID:
        properties.user_id, at = _text(header, at)
    if flags & APP_ID:
        properties.app_id, at = _text(header, at)
    if flags & CLUSTER_ID:
        properties.cluster_id, at = _text(header, at)
    return at


def header_class_error(header: bytes) -> UnexpectedFrame | WireSyntaxError:
    if len(header) < MIN_HEADER_BYTES:
        return WireSyntaxError(
            f"content header of {len(header)} bytes, at least {MIN_HEADER_BYTES} are needed"
        )
    number = int.from_bytes(header[:2], "big")
    return UnexpectedFrame(f"expected content header for class 60, got one for class {number}")


def encode_route(exchange: str, routing_key: str) -> bytes:
    """The exchange and the routing key as two short strings."""
    return encode_shortstr(exchange) + encode_shortstr(routing_key)


def decode_route(route: bytes) -> tuple[str, str]:
    exchange, at = decode_shortstr(route, 0)
    routing_key, at = decode_shortstr(route, at)
    if at != len(route):
        raise WireSyntaxError(f"{len(route) - at} bytes after the routing key")
    return exchange, routing_key


def encode_shortstr(text: str, what: str = "") -> bytes:
    """`what` names the text in errors."""
    try:
        content = text.encode("utf-8", "surrogateescape")
        return _OCTETS[len(content)] + content
    except UnicodeEncodeError:
        reason = "cannot be written as UTF-8"
    except IndexError:
        reason = f"is {len(content)} bytes long, the limit is {SHORTSTR_MAX}"
    raise WireSyntaxError(f"{what}{': ' if what else ''}{text[:32]!r} {reason}")


def decode_shortstr(data: bytes, pos: int) -> tuple[str, int]:
    start = pos + 1
    if start > len(data) or (stop := start + data[pos]) > len(data):
        raise WireSyntaxError(f"short string at byte {pos} runs past the end")
    return data[start:stop].decode("utf-8", "surrogateescape"), stop


def _text(data: bytes, at: int) -> tuple[str, int]:
    """As `decode_shortstr`, for callers that check the end themselves."""
    start = at + 1
    stop = start + data[at]
    return data[start:stop].decode("utf-8", "surrogateescape"), stop


def _number(value: int, size: int, what: str) -> bytes:
    try:
        return value.to_bytes(size, "big")
    except OverflowError:
        raise WireSyntaxError(f"{what} {value} does not fit in {size} bytes") from None
