"""From a client of AMQP 1.0: the sections of its message, as a content header and a body."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from penstock.broker.contract import EXPIRES, PERSISTENT, PRIORITY, SELECTS
from penstock.core.tables import encode_table
from penstock.terminals.amqp10.conversion import shortcuts
from penstock.terminals.amqp10.conversion.basic import Basic, write_basic
from penstock.terminals.amqp10.conversion.beside import (
    ANNOTATIONS,
    APPLICATION,
    ENCODED,
    FOOTER_BESIDE,
    PROPERTIES_BESIDE,
    VALUE_KIND,
)
from penstock.terminals.amqp10.conversion.headers import annotations_in, application_in
from penstock.terminals.amqp10.conversion.properties import carry_in
from penstock.terminals.amqp10.conversion.sealing import BLANK, entry, seal
from penstock.terminals.amqp10.conversion.tables import is_text
from penstock.wire.amqp10.codec import decode_whole
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.message import HEADER_FIELDS, PROPERTY_FIELDS, read_list
from penstock.wire.amqp10.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    VALUE,
    Head,
    data_of,
    read_body,
    read_head,
    section,
)

_TTL_MAX: Final = 0xFFFF_FFFF
_MODES: Final = ((b"\x10\x00\x01", 0), (b"\x10\x00\x02", PERSISTENT))


class Incoming:
    """A message from a client: what a `Message` needs, and where it wants to go."""

    __slots__ = ("body", "flags", "header", "subject", "to", "user_id")

    def __init__(self) -> None:
        self.header = b""
        self.body = b""
        self.flags = 0
        self.to: str | None = None
        self.subject: str | None = None
        self.user_id: bytes | None = None  #: who the sender says it is


def incoming(payload: bytes, now: float) -> Incoming:
    """A whole message; `now` is the time of day, in seconds. Raises `DecodeError`."""
    short = shortcuts.data_in(payload)
    if short is not None:
        header, content = short
        mode, priority, ttl = _transport_in(header)
        if priority is None and ttl is None:
            return _plain(mode, content)
    head = read_head(payload)
    assert head is not None
    body = read_body(payload, head)
    if body.footer is not None:
        decode_whole(body.footer)  # it will be passed on as it is
    if body.kind == DATA:
        content = data_of(payload, body.extents)
        found = incoming_head(head, len(content), now, footer=body.footer)
    else:
        kind, content = None, payload[body.start : body.end]
        if body.kind == VALUE:
            kind, content = _bare(payload, *body.extents[0], content)
        found = incoming_head(head, len(content), now, kind, body.footer)
    found.body = content
    return found


def incoming_head(
    head: Head, size: int, now: float, kind: str | None = None, footer: bytes | None = None
) -> Incoming:
    """The same without the body, which has `size` bytes.

    The body of a head whose kind is data is the data; of another, the bytes of its sections.
    """
    found = Incoming()
    mode, priority, ttl = _transport_in(head.header)
    basic = Basic()
    headers: dict[str, Any] = {}
    exact = footer is None and kind is None
    if head.properties is not None:
        same, ttl = _carry_properties(head.properties, basic, headers, found, ttl, now)
        exact &= same
    noted = head.message_annotations
    if noted is not None:
        exact &= annotations_in(noted, basic, headers)
    table = b""
    told = head.application_properties
    if told is not None:
        short = None if noted is not None else shortcuts.application_in(told)
        if short is None:
            exact &= application_in(told, headers)
        else:
            table, same = short
            exact &= same
    if head.kind != DATA and kind is None:
        basic.type = ENCODED
    if headers:
        found.flags = SELECTS if "CC" in headers else 0
        table += encode_table(headers)[4:]
    _carry_transport(basic, found, mode, priority, ttl)
    basic.table = table if exact else BLANK + _kept(head, kind, footer) + table
    found.header = write_basic(basic, size)
    if not exact:
        found.header = seal(found.header)
    return found


def _kept(head: Head, kind: str | None, footer: bytes | None) -> bytes:
    """All there is of sections: together they are what goes out again."""
    kept = b""
    for name, code, encoded in (
        (PROPERTIES_BESIDE, PROPERTIES, head.properties),
        (APPLICATION, APPLICATION_PROPERTIES, head.application_properties),
        (ANNOTATIONS, MESSAGE_ANNOTATIONS, head.message_annotations),
        (FOOTER_BESIDE, FOOTER, footer),
    ):
        if encoded is not None:
            kept += entry(name, section(code) + encoded)
    return kept if kind is None else kept + entry(VALUE_KIND, kind.encode())


def _carry_properties(
    encoded: bytes,
    basic: Basic,
    headers: dict[str, Any],
    found: Incoming,
    ttl: int | None,
    now: float,
) -> tuple[bool, int | None]:
    """Whether they come back exact; and how long the message has."""
    exact = shortcuts.properties_in(encoded, basic, found)
    if exact is not None:
        return exact, ttl
    fields = read_list(encoded, PROPERTY_FIELDS)
    return carry_in(fields, basic, headers), _place(fields, found, ttl, now)


def _place(fields: list[Any], found: Incoming, ttl: int | None, now: float) -> int | None:
    """Where it wants to go and who sent it; and how long it has, if only a moment is told."""
    count = len(fields)
    if count > 1:
        found.user_id = fields[1]
    if count > 2:
        found.to = fields[2]
    if count > 3:
        found.subject = fields[3]
    if ttl is None and count > 8 and fields[8] is not None:
        left: int = fields[8] - int(now * 1000)
        return min(max(0, left), _TTL_MAX)
    return ttl


def _carry_transport(
    basic: Basic, found: Incoming, mode: int, priority: int | None, ttl: int | None
) -> None:
    basic.delivery_mode = mode
    if mode == 2:
        found.flags |= PERSISTENT
    if priority is not None:
        basic.priority = priority
        if priority:
            found.flags |= PRIORITY
    if ttl is not None:
        digits = str(int(ttl)).encode()
        basic.expiration = bytes((len(digits),)) + digits
        found.flags |= EXPIRES


def _plain(mode: int, content: bytes) -> Incoming:
    """A message that says nothing of itself but whether it is durable."""
    found = Incoming()
    tail, found.flags = _MODES[mode == 2]
    found.header = b"\x00\x3c\x00\x00" + len(content).to_bytes(8, "big") + tail
    found.body = content
    return found


@lru_cache(maxsize=256)  # a sender says the same of all its messages
def _transport_in(header: bytes | None) -> tuple[int, int | None, int | None]:
    if header is None:
        return 1, None, None
    durable, priority, ttl = (read_list(header, HEADER_FIELDS) + [None] * 3)[:3]
    return (2 if durable else 1), priority, ttl


def _bare(payload: bytes, start: int, stop: int, whole: bytes) -> tuple[str | None, bytes]:
    """The text or the bytes that are a value; another value is kept as its section."""
    match payload[start]:
        case 0xA1 | 0xB1 as code:
            text = payload[start + (2 if code == 0xA1 else 5) : stop]
            if not is_text(text):
                raise DecodeError("the body is a string, and not UTF-8")
            return "string", text
        case 0xA0 | 0xB0 as code:
            return "binary", payload[start + (2 if code == 0xA0 else 5) : stop]
        case 0x40:
            return "null", b""
    return None, whole
