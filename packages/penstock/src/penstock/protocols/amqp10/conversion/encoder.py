"""To AMQP 1.0: the sections before and after the body of a message."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from penstock.broker.contract import Message
from penstock.core.errors import WireSyntaxError
from penstock.protocols.amqp10.conversion.decoder import TTL_MAX
from penstock.protocols.amqp10.conversion.preserved_sections import (
    APPLICATION_PROPERTIES_HEADER,
    ENCODED_BODY_TYPE,
    FOOTER_HEADER,
    MESSAGE_ANNOTATIONS_HEADER,
    PROPERTIES_HEADER,
    VALUE_TYPE_HEADER,
    PreservedSections,
    split_headers,
    verified_sections,
)
from penstock.protocols.amqp10.conversion.properties import (
    RawBasicProperties,
    encode_properties_from_basic,
    read_basic_properties,
)
from penstock.protocols.amqp10.conversion.values import encode_string, is_utf8
from penstock.wire.amqp10.codec import encode, encode_compound
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.message import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    VALUE,
    read_body,
    read_head,
    section_prefix,
)
from penstock.wire.amqp10.values import UByte, UInt


def convert_outgoing(
    message: Message, count: int = 0, released: bool = False
) -> tuple[bytes, bytes]:
    """The bytes before and after the body.

    `count` is how often the message was delivered before. A message that a client `released` is not
    counted, but was acquired before.
    """
    first = not count and not released
    header = message.header
    if header[12:14] in (b"\x10\x00", b"\x00\x00"):  # no property but the delivery mode
        before = (
            _header_section(header[14:] == b"\x02", None, None, count, first)
            + _route_annotations(message.route)
            + _data_section_prefix(message.size)
        )
        return before, b""
    verified = verified_sections(header)
    basic = read_basic_properties(header)
    if verified is not None and MESSAGE_ANNOTATIONS_HEADER not in verified[0]:
        return _preserved_message(message, basic, count, first, *verified)
    preserved = PreservedSections()
    try:
        application, annotations = split_headers(basic, preserved)
    except (WireSyntaxError, IndexError):  # an invalid table
        application, annotations, preserved = b"", {}, PreservedSections()
    before = _header_section(
        basic.delivery_mode == 2, basic.priority, _ttl(basic.expiration), count, first
    ) + _message_annotations(message.route, annotations)
    before += preserved.properties or encode_properties_from_basic(basic, preserved.extra)
    if application:
        before += section_prefix(APPLICATION_PROPERTIES) + application
    return before + _body_prefix(message, basic, preserved), preserved.footer


def _preserved_message(
    message: Message,
    basic: RawBasicProperties,
    count: int,
    first: bool,
    sections: dict[bytes, bytes],
    offset: bytes,
) -> tuple[bytes, bytes]:
    """A message that was not changed since it was received by AMQP 1.0."""
    preserved = PreservedSections()
    if VALUE_TYPE_HEADER in sections:
        preserved.kind = sections[VALUE_TYPE_HEADER].decode("ascii", "replace")
    before = (
        _header_section(
            basic.delivery_mode == 2, basic.priority, _ttl(basic.expiration), count, first
        )
        + (
            _message_annotations(message.route, {_OFFSET: b"\x80" + offset})
            if offset
            else _route_annotations(message.route)
        )
        + sections.get(PROPERTIES_HEADER, b"")
        + sections.get(APPLICATION_PROPERTIES_HEADER, b"")
        + _body_prefix(message, basic, preserved)
    )
    return before, sections.get(FOOTER_HEADER, b"")


@lru_cache(maxsize=1024)
def _header_section(
    durable: bool, priority: int | None, ttl: int | None, count: int, first: bool
) -> bytes:
    fields = [
        durable,
        None if priority is None else UByte(priority),
        None if ttl is None else UInt(ttl),
        first,
        UInt(count),
    ]
    return section_prefix(HEADER) + encode(fields)


def _ttl(expiration: bytes | None) -> int | None:
    if expiration is None or not expiration[1:].isdigit():
        return None
    return min(int(expiration[1:]), TTL_MAX)


_OFFSET: Final = b"\xa3\x0fx-stream-offset"
_EXCHANGE: Final = b"\xa3\x0ax-exchange"
_ROUTING_KEY: Final = b"\xa3\x0dx-routing-key"


def _message_annotations(route: bytes, carried: dict[bytes, bytes]) -> bytes:
    """Exchange and routing key, then `carried`: encoded symbols and encoded values."""
    after = 1 + route[0]
    parts = [
        _EXCHANGE,
        encode_string(route[1:after]),
        _ROUTING_KEY,
        encode_string(route[after + 1 :]),
    ]
    for key, value in carried.items():
        parts += (key, value)
    return section_prefix(MESSAGE_ANNOTATIONS) + encode_compound(0xC1, len(parts), b"".join(parts))


@lru_cache(maxsize=1024)
def _route_annotations(route: bytes) -> bytes:
    return _message_annotations(route, {})


def _data_section_prefix(size: int) -> bytes:
    if size <= 0xFF:
        return bytes((0x00, 0x53, DATA, 0xA0, size))
    return section_prefix(DATA) + b"\xb0" + size.to_bytes(4, "big")


def _body_prefix(
    message: Message, basic: RawBasicProperties, preserved: PreservedSections
) -> bytes:
    """The start of the body section; empty if the body consists of encoded sections."""
    size = message.size
    if basic.type == ENCODED_BODY_TYPE and _is_sections(message):
        return b""
    match preserved.kind:
        case "string" if _is_large(message) or is_utf8(message.body):
            head = bytes((0xA1, size)) if size <= 0xFF else b"\xb1" + size.to_bytes(4, "big")
            return section_prefix(VALUE) + head
        case "binary":
            head = bytes((0xA0, size)) if size <= 0xFF else b"\xb0" + size.to_bytes(4, "big")
            return section_prefix(VALUE) + head
        case "null" if not size:
            return section_prefix(VALUE) + b"\x40"
    return _data_section_prefix(size)


def _is_sections(message: Message) -> bool:
    """Whether the body consists of encoded sections; that of a large message is not checked."""
    if _is_large(message):
        return True
    try:
        head = read_head(message.body)
        if head is None or head.body_at or not message.body:
            return False
        body = read_body(message.body, head)
    except DecodeError:
        return False
    return body.footer is None


def _is_large(message: Message) -> bool:
    return message.more or message.spool is not None
