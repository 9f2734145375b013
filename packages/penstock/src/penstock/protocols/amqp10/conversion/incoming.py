"""From a client of AMQP 1.0: the sections of its message, as a content header and a body."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from penstock.broker.contract import EXPIRES, PERSISTENT, PRIORITY, SENDER_SELECTED
from penstock.core.basic_properties import encode_minimal_header
from penstock.core.field_table import encode_table
from penstock.protocols.amqp10.conversion import fast_path
from penstock.protocols.amqp10.conversion.preserved_sections import (
    APPLICATION_PROPERTIES_HEADER,
    EMPTY_SIGNATURE,
    ENCODED_BODY_TYPE,
    FOOTER_HEADER,
    MESSAGE_ANNOTATIONS_HEADER,
    PROPERTIES_HEADER,
    VALUE_TYPE_HEADER,
    octets_entry,
    sign_header,
)
from penstock.protocols.amqp10.conversion.properties import (
    RawBasicProperties,
    convert_annotations,
    convert_application_properties,
    convert_properties_section,
    write_basic_properties,
)
from penstock.protocols.amqp10.conversion.values import is_utf8
from penstock.wire.amqp10.codec import decode_whole
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.message import (
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    HEADER_FIELDS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    PROPERTY_FIELDS,
    VALUE,
    MessageHead,
    decode_list_fields,
    join_data_sections,
    read_body,
    read_head,
    section_prefix,
)

_TTL_MAX: Final = 0xFFFF_FFFF


class ConvertedMessage:
    """A message from a client: what a `Message` needs, and where it wants to go."""

    __slots__ = ("body", "flags", "header", "subject", "to", "user_id")

    def __init__(self) -> None:
        self.header = b""
        self.body = b""
        self.flags = 0
        self.to: str | None = None
        self.subject: str | None = None
        self.user_id: bytes | None = None  #: who the sender says it is


def incoming(payload: bytes, now: float) -> ConvertedMessage:
    """A whole message; `now` is the time of day, in seconds. Raises `DecodeError`."""
    short = fast_path.convert_data_message(payload)
    if short is not None:
        header, content = short
        mode, priority, ttl = _transport_in(header)
        if priority is None and ttl is None:
            return _data_only_message(mode, content)
    head = read_head(payload)
    assert head is not None
    body = read_body(payload, head)
    if body.footer is not None:
        decode_whole(body.footer)  # it will be passed on as it is
    if body.kind == DATA:
        content = join_data_sections(payload, body.extents)
        found = incoming_head(head, len(content), now, footer=body.footer)
    else:
        kind, content = None, payload[body.start : body.end]
        if body.kind == VALUE:
            kind, content = _value_content(payload, *body.extents[0], content)
        found = incoming_head(head, len(content), now, kind, body.footer)
    found.body = content
    return found


def incoming_head(
    head: MessageHead, size: int, now: float, kind: str | None = None, footer: bytes | None = None
) -> ConvertedMessage:
    """The same without the body, which has `size` bytes.

    The body of a head whose kind is data is the data; of another, the bytes of its sections.
    """
    found = ConvertedMessage()
    mode, priority, ttl = _transport_in(head.header)
    basic = RawBasicProperties()
    headers: dict[str, Any] = {}
    exact = footer is None and kind is None
    if head.properties is not None:
        same, ttl = _carry_properties(head.properties, basic, headers, found, ttl, now)
        exact &= same
    noted = head.message_annotations
    if noted is not None:
        exact &= convert_annotations(noted, basic, headers)
    table = b""
    told = head.application_properties
    if told is not None:
        short = None if noted is not None else fast_path.convert_application_properties(told)
        if short is None:
            exact &= convert_application_properties(told, headers)
        else:
            table, same = short
            exact &= same
    if head.kind != DATA and kind is None:
        basic.type = ENCODED_BODY_TYPE
    if headers:
        found.flags = SENDER_SELECTED if "CC" in headers else 0
        table += encode_table(headers)[4:]
    _carry_transport(basic, found, mode, priority, ttl)
    basic.table = (
        table if exact else EMPTY_SIGNATURE + _preserved_entries(head, kind, footer) + table
    )
    found.header = write_basic_properties(basic, size)
    if not exact:
        found.header = sign_header(found.header)
    return found


def _preserved_entries(head: MessageHead, kind: str | None, footer: bytes | None) -> bytes:
    """All there is of sections: together they are what goes out again."""
    kept = b""
    for name, code, encoded in (
        (PROPERTIES_HEADER, PROPERTIES, head.properties),
        (APPLICATION_PROPERTIES_HEADER, APPLICATION_PROPERTIES, head.application_properties),
        (MESSAGE_ANNOTATIONS_HEADER, MESSAGE_ANNOTATIONS, head.message_annotations),
        (FOOTER_HEADER, FOOTER, footer),
    ):
        if encoded is not None:
            kept += octets_entry(name, section_prefix(code) + encoded)
    return kept if kind is None else kept + octets_entry(VALUE_TYPE_HEADER, kind.encode())


def _carry_properties(
    encoded: bytes,
    basic: RawBasicProperties,
    headers: dict[str, Any],
    found: ConvertedMessage,
    ttl: int | None,
    now: float,
) -> tuple[bool, int | None]:
    """Whether they come back exact; and how long the message has."""
    exact = fast_path.convert_properties(encoded, basic, found)
    if exact is not None:
        return exact, ttl
    fields = decode_list_fields(encoded, PROPERTY_FIELDS)
    return convert_properties_section(fields, basic, headers), _addressing(fields, found, ttl, now)


def _addressing(
    fields: list[Any], found: ConvertedMessage, ttl: int | None, now: float
) -> int | None:
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
    basic: RawBasicProperties,
    found: ConvertedMessage,
    mode: int,
    priority: int | None,
    ttl: int | None,
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


def _data_only_message(mode: int, content: bytes) -> ConvertedMessage:
    """A message that says nothing of itself but whether it is durable."""
    found = ConvertedMessage()
    found.header = encode_minimal_header(len(content), mode == 2)
    found.flags = PERSISTENT if mode == 2 else 0
    found.body = content
    return found


@lru_cache(maxsize=256)  # a sender says the same of all its messages
def _transport_in(header: bytes | None) -> tuple[int, int | None, int | None]:
    if header is None:
        return 1, None, None
    durable, priority, ttl = (decode_list_fields(header, HEADER_FIELDS) + [None] * 3)[:3]
    return (2 if durable else 1), priority, ttl


def _value_content(payload: bytes, start: int, stop: int, whole: bytes) -> tuple[str | None, bytes]:
    """The text or the bytes that are a value; another value is kept as its section."""
    match payload[start]:
        case 0xA1 | 0xB1 as code:
            text = payload[start + (2 if code == 0xA1 else 5) : stop]
            if not is_utf8(text):
                raise DecodeError("the body is a string, and not UTF-8")
            return "string", text
        case 0xA0 | 0xB0 as code:
            return "binary", payload[start + (2 if code == 0xA0 else 5) : stop]
        case 0x40:
            return "null", b""
    return None, whole
