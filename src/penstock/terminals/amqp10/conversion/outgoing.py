"""To a client of AMQP 1.0: what goes before the body of a message, and what after."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from penstock.broker.contract import Message
from penstock.core.errors import WireSyntaxError
from penstock.terminals.amqp10.conversion.basic import Basic, read_basic
from penstock.terminals.amqp10.conversion.beside import (
    ANNOTATIONS,
    APPLICATION,
    ENCODED,
    FOOTER_BESIDE,
    PROPERTIES_BESIDE,
    VALUE_KIND,
    Beside,
    sort_fields,
)
from penstock.terminals.amqp10.conversion.properties import carry_out
from penstock.terminals.amqp10.conversion.sealing import sealed
from penstock.terminals.amqp10.conversion.tables import is_text, string
from penstock.wire.amqp10.encoding import compound, encode
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    VALUE,
    read_body,
    read_head,
    section,
)
from penstock.wire.amqp10.values import UByte, UInt

_TTL_MAX: Final = 0xFFFF_FFFF


def outgoing(message: Message, count: int = 0, released: bool = False) -> tuple[bytes, bytes]:
    """What goes before the body and what after.

    `count` is how often it was delivered before; what another link has `released` was not counted,
    and has been acquired all the same.
    """
    first = not count and not released
    header = message.header
    if header[12:14] in (b"\x10\x00", b"\x00\x00"):  # nothing is said but the delivery mode
        before = (
            _transport_out(header[14:] == b"\x02", None, None, count, first)
            + _route_out(message.route)
            + _data(message.size)
        )
        return before, b""
    kept = sealed(header)
    basic = read_basic(header)
    if kept is not None and ANNOTATIONS not in kept[0]:
        return _as_it_came(message, basic, count, first, *kept)
    beside = Beside()
    try:
        application, annotations = sort_fields(basic, beside)
    except (WireSyntaxError, IndexError):  # a table that lies: nobody could read it
        application, annotations, beside = b"", {}, Beside()
    before = _transport_out(
        basic.delivery_mode == 2, basic.priority, _ttl_out(basic.expiration), count, first
    ) + _annotations(message.route, annotations)
    before += beside.properties or carry_out(basic, beside.extra)
    if application:
        before += section(APPLICATION_PROPERTIES) + application
    return before + _body_out(message, basic, beside), beside.footer


def _as_it_came(
    message: Message,
    basic: Basic,
    count: int,
    first: bool,
    kept: dict[bytes, bytes],
    offset: bytes,
) -> tuple[bytes, bytes]:
    """A message that nobody has touched since it came by AMQP 1.0."""
    beside = Beside()
    if VALUE_KIND in kept:
        beside.kind = kept[VALUE_KIND].decode("ascii", "replace")
    before = (
        _transport_out(
            basic.delivery_mode == 2, basic.priority, _ttl_out(basic.expiration), count, first
        )
        + (
            _annotations(message.route, {_OFFSET: b"\x80" + offset})
            if offset
            else _route_out(message.route)
        )
        + kept.get(PROPERTIES_BESIDE, b"")
        + kept.get(APPLICATION, b"")
        + _body_out(message, basic, beside)
    )
    return before, kept.get(FOOTER_BESIDE, b"")


@lru_cache(maxsize=1024)
def _transport_out(
    durable: bool, priority: int | None, ttl: int | None, count: int, first: bool
) -> bytes:
    fields = [
        durable,
        None if priority is None else UByte(priority),
        None if ttl is None else UInt(ttl),
        first,
        UInt(count),
    ]
    return section(HEADER) + encode(fields)


def _ttl_out(expiration: bytes | None) -> int | None:
    if expiration is None or not expiration[1:].isdigit():
        return None
    return min(int(expiration[1:]), _TTL_MAX)


_OFFSET: Final = b"\xa3\x0fx-stream-offset"
_EXCHANGE: Final = b"\xa3\x0ax-exchange"
_ROUTING_KEY: Final = b"\xa3\x0dx-routing-key"


def _annotations(route: bytes, carried: dict[bytes, bytes]) -> bytes:
    """How it came here, then what else is told; keys are encoded symbols, and so are values."""
    after = 1 + route[0]
    parts = [_EXCHANGE, string(route[1:after]), _ROUTING_KEY, string(route[after + 1 :])]
    for key, value in carried.items():
        parts += (key, value)
    return section(MESSAGE_ANNOTATIONS) + compound(0xC1, len(parts), b"".join(parts))


@lru_cache(maxsize=1024)  # many messages go the same way
def _route_out(route: bytes) -> bytes:
    return _annotations(route, {})


def _data(size: int) -> bytes:
    if size <= 0xFF:
        return bytes((0x00, 0x53, DATA, 0xA0, size))
    return section(DATA) + b"\xb0" + size.to_bytes(4, "big")


def _body_out(message: Message, basic: Basic, beside: Beside) -> bytes:
    """What stands before the body: nothing, if it is sections itself."""
    size = message.size
    if basic.type == ENCODED and _is_sections(message):
        return b""
    match beside.kind:
        case "string" if _large(message) or is_text(message.body):
            head = bytes((0xA1, size)) if size <= 0xFF else b"\xb1" + size.to_bytes(4, "big")
            return section(VALUE) + head
        case "binary":
            head = bytes((0xA0, size)) if size <= 0xFF else b"\xb0" + size.to_bytes(4, "big")
            return section(VALUE) + head
        case "null" if not size:
            return section(VALUE) + b"\x40"
    return _data(size)


def _is_sections(message: Message) -> bool:
    """Whether a body is what its type says. One that lies in a file is believed."""
    if _large(message):
        return True
    try:
        head = read_head(message.body)
        if head is None or head.body_at or not message.body:
            return False
        body = read_body(message.body, head)
    except DecodeError:
        return False
    return body.footer is None


def _large(message: Message) -> bool:
    return message.more or message.spool is not None
