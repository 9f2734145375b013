"""The content header of a message, and its route: what a publisher says about a body.

The header travels through the broker as the bytes the publisher sent. `flags_of` is what every
publish pays: it walks the header by lengths, so a malformed one is refused at the door, and picks
up the few facts that drivers ask of every message. The names and values inside the headers table
are not read there; whoever needs them calls `decode_header`, which raises `WireSyntaxError` for a
table that lies.

Short strings are text by agreement only: what is not UTF-8 passes unharmed as surrogates, as it
does in RabbitMQ.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from penstock.broker.contract import EXPIRES, PERSISTENT, PRIORITY, SELECTS
from penstock.core.errors import UnexpectedFrame, WireSyntaxError
from penstock.core.tables import decode_table, encode_table

_PREFIX: Final = Struct(">HHQH")
_BASIC: Final = 60

# The property flags, high byte first; the last two bits mean nothing in class basic.
_CONTENT_TYPE: Final = 0x8000
_CONTENT_ENCODING: Final = 0x4000
_HEADERS: Final = 0x2000
_DELIVERY_MODE: Final = 0x1000
_PRIORITY: Final = 0x0800
_TIMESTAMP: Final = 0x0040

#: What follows the priority, by flag and attribute: short strings, and among them the timestamp.
_TAIL: Final = (
    (0x0400, "correlation_id"),
    (0x0200, "reply_to"),
    (0x0100, "expiration"),
    (0x0080, "message_id"),
    (_TIMESTAMP, "timestamp"),
    (0x0020, "type"),
    (0x0010, "user_id"),
    (0x0008, "app_id"),
    (0x0004, "cluster_id"),
)


@dataclass(slots=True)
class Properties:
    """The properties of class basic; None is absent."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: dict[str, Any] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None  #: seconds since 1970
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


def flags_of(header: bytes) -> int:
    """The contract's message flags; raises unless the header's properties fill it exactly."""
    if not header.startswith(b"\x00\x3c"):
        raise _wrong_class(header)
    flags = 0
    pos = 14
    try:
        present = header[12]
        if present & 0x80:  # content type
            pos += header[pos] + 1
        if present & 0x40:  # content encoding
            pos += header[pos] + 1
        if present & 0x20:  # headers
            start = pos + 4
            pos = start + int.from_bytes(header[pos:start], "big")
            if header.find(b"CC", start, pos) >= 0 and _may_select(header, start, pos):
                flags = SELECTS
        if present & 0x10:  # delivery mode
            if header[pos] == 2:
                flags |= PERSISTENT
            pos += 1
        if present & 0x08:  # priority; zero is no different from none
            if header[pos]:
                flags |= PRIORITY
            pos += 1
        rest = header[13]
        if rest & 0xFC or present & 0x07:
            if present & 0x01:
                flags |= EXPIRES
            pos = _skip_tail(header, pos, present << 8 | rest)
    except IndexError:
        raise WireSyntaxError(f"content header ends within a property, at byte {pos}") from None
    if pos != len(header):
        raise WireSyntaxError(f"properties take {pos} bytes of a header of {len(header)}")
    return flags


def priority_of(header: bytes) -> int:
    """The priority alone, 0 for none, of a header that `flags_of` has accepted."""
    present = header[12]
    if not present & 0x08:
        return 0
    pos = 14
    if present & 0x80:  # content type
        pos += header[pos] + 1
    if present & 0x40:  # content encoding
        pos += header[pos] + 1
    if present & 0x20:  # headers
        pos += 4 + int.from_bytes(header[pos : pos + 4], "big")
    if present & 0x10:  # delivery mode
        pos += 1
    return header[pos]


def _may_select(header: bytes, start: int, stop: int) -> bool:
    """Whether CC or BCC may be among the headers.

    Whether it is truly a key, and of the outermost table, is the exchange's to see: here it is
    enough never to miss one.
    """
    return header.find(b"\x02CC", start, stop) >= 0 or header.find(b"\x03BCC", start, stop) >= 0


def _skip_tail(header: bytes, pos: int, present: int) -> int:
    for flag, _ in _TAIL:
        if present & flag:
            pos += 8 if flag == _TIMESTAMP else header[pos] + 1
    return pos


def _wrong_class(header: bytes) -> UnexpectedFrame | WireSyntaxError:
    if len(header) < 14:
        return WireSyntaxError(f"content header of {len(header)} bytes, at least 14 are needed")
    number = int.from_bytes(header[:2], "big")
    return UnexpectedFrame(f"expected content header for class 60, got one for class {number}")


def decode_header(header: bytes) -> Properties:
    """Every property of a content header."""
    if len(header) < 14 or header[1] != _BASIC or header[0]:
        raise _wrong_class(header)
    present = header[12] << 8 | header[13]
    properties = Properties()
    pos = 14
    if present & _CONTENT_TYPE:
        properties.content_type, pos = read_shortstr(header, pos)
    if present & _CONTENT_ENCODING:
        properties.content_encoding, pos = read_shortstr(header, pos)
    if present & _HEADERS:
        properties.headers, pos = decode_table(header, pos)
    if present & _DELIVERY_MODE:
        properties.delivery_mode, pos = _read_octet(header, pos)
    if present & _PRIORITY:
        properties.priority, pos = _read_octet(header, pos)
    for flag, name in _TAIL:
        if not present & flag:
            continue
        if flag == _TIMESTAMP:
            if pos + 8 > len(header):
                raise WireSyntaxError(f"timestamp at byte {pos} runs past the end of the header")
            properties.timestamp = int.from_bytes(header[pos : pos + 8], "big")
            pos += 8
        else:
            text, pos = read_shortstr(header, pos)
            setattr(properties, name, text)
    if pos != len(header):
        raise WireSyntaxError(f"properties take {pos} bytes of a header of {len(header)}")
    return properties


def encode_header(properties: Properties, size: int) -> bytes:
    """The content header for a body of `size` bytes."""
    present = 0
    parts: list[bytes] = []
    if properties.content_type is not None:
        present |= _CONTENT_TYPE
        parts.append(shortstr(properties.content_type))
    if properties.content_encoding is not None:
        present |= _CONTENT_ENCODING
        parts.append(shortstr(properties.content_encoding))
    if properties.headers is not None:
        present |= _HEADERS
        parts.append(encode_table(properties.headers))
    if properties.delivery_mode is not None:
        present |= _DELIVERY_MODE
        parts.append(_number(properties.delivery_mode, 1, "delivery mode"))
    if properties.priority is not None:
        present |= _PRIORITY
        parts.append(_number(properties.priority, 1, "priority"))
    for flag, name in _TAIL:
        value = getattr(properties, name)
        if value is not None:
            present |= flag
            parts.append(_number(value, 8, "timestamp") if flag == _TIMESTAMP else shortstr(value))
    return _PREFIX.pack(_BASIC, 0, size, present) + b"".join(parts)


def encode_route(exchange: str, routing_key: str) -> bytes:
    """The exchange and the routing key as a message keeps them: two short strings."""
    return shortstr(exchange) + shortstr(routing_key)


def decode_route(route: bytes) -> tuple[str, str]:
    exchange, pos = read_shortstr(route, 0)
    routing_key, pos = read_shortstr(route, pos)
    if pos != len(route):
        raise WireSyntaxError(f"{len(route) - pos} bytes after the routing key")
    return exchange, routing_key


def shortstr(text: str) -> bytes:
    try:
        content = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise WireSyntaxError(f"{text[:32]!r} cannot be written as UTF-8") from None
    if len(content) > 255:
        raise WireSyntaxError(f"{text[:32]!r}… is {len(content)} bytes long, at most 255 may be")
    return bytes((len(content),)) + content


def read_shortstr(data: bytes, pos: int) -> tuple[str, int]:
    start = pos + 1
    if start > len(data) or (stop := start + data[pos]) > len(data):
        raise WireSyntaxError(f"short string at byte {pos} runs past the end")
    return data[start:stop].decode("utf-8", "surrogateescape"), stop


def _read_octet(data: bytes, pos: int) -> tuple[int, int]:
    if pos >= len(data):
        raise WireSyntaxError(f"octet at byte {pos} runs past the end of the header")
    return data[pos], pos + 1


def _number(value: int, size: int, what: str) -> bytes:
    try:
        return value.to_bytes(size, "big")
    except OverflowError:
        raise WireSyntaxError(f"{what} {value} does not fit in {size} bytes") from None
