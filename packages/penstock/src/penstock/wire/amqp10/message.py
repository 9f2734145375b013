"""Messages of AMQP 1.0: as values, and as the positions of their sections.

A message is a sequence of described values in a fixed order: sections about it (the *head*), its
body, perhaps a footer. `read_head` and `read_body` find them by their sizes and decode nothing; the
head of a message that is still arriving is read as soon as it is complete. `decode_message` and
`encode_message` are for clients; the broker converts sections without making these values. Encoding
omits what is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final
from uuid import UUID

from penstock.wire.amqp10.codec import decode, decode_whole, encode, skip, skip_undescribed
from penstock.wire.amqp10.errors import DecodeError, TruncatedValue
from penstock.wire.amqp10.values import Buffer, Symbol, Timestamp, UByte, UInt, ULong

MessageId = str | ULong | UUID | bytes


@dataclass(slots=True)
class Amqp10Header:
    """Transport options; a broker may change them."""

    durable: bool | None = None
    priority: UByte | None = None
    ttl: UInt | None = None
    first_acquirer: bool | None = None
    delivery_count: UInt | None = None


@dataclass(slots=True)
class Amqp10Properties:
    """Set by the sender; no broker changes them."""

    message_id: MessageId | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: MessageId | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: Timestamp | None = None
    creation_time: Timestamp | None = None
    group_id: str | None = None
    group_sequence: UInt | None = None
    reply_to_group_id: str | None = None


@dataclass(slots=True)
class AmqpValue:
    value: Any


@dataclass(slots=True)
class AmqpSequences:
    lists: list[list[Any]]


@dataclass(slots=True)
class Amqp10Message:
    """A body of `bytes` is a data section."""

    body: bytes | AmqpValue | AmqpSequences = b""
    header: Amqp10Header | None = None
    delivery_annotations: dict[Any, Any] | None = None
    message_annotations: dict[Any, Any] | None = None
    properties: Amqp10Properties | None = None
    application_properties: dict[str, Any] | None = None
    footer: dict[Any, Any] | None = None


ListFields = tuple[tuple[str, tuple[type, ...]], ...]


def _list_fields(section: type[Any], *kinds: tuple[type, ...]) -> ListFields:
    return tuple((one.name, kind) for one, kind in zip(fields(section), kinds, strict=True))


_ID: Final = (str, ULong, UUID, bytes)
#: The fields of the sections that are lists, in order, and the types of each. Content type and
#: encoding are symbols, but many senders write strings.
HEADER_FIELDS: Final = _list_fields(Amqp10Header, (bool,), (UByte,), (UInt,), (bool,), (UInt,))
PROPERTY_FIELDS: Final = _list_fields(
    Amqp10Properties,
    *(_ID, (bytes,), (str,), (str,), (str,), _ID, (str,), (str,)),
    *((Timestamp,), (Timestamp,), (str,), (UInt,), (str,)),
)


def decode_list_fields(encoded: bytes, known: ListFields) -> list[Any]:
    """The fields of a section that is a list, without those omitted at its end."""
    found: list[Any] = decode_whole(encoded)
    if len(found) > len(known):
        raise DecodeError(f"{len(found)} fields instead of at most {len(known)}")
    for value, (name, kinds) in zip(found, known, strict=False):
        if value is not None and not isinstance(value, kinds):
            raise DecodeError(f"{name.replace('_', '-')} cannot be a {type(value).__name__}")
    return found


def decode_header_section(encoded: bytes) -> Amqp10Header:
    return Amqp10Header(*decode_list_fields(encoded, HEADER_FIELDS))


def decode_properties_section(encoded: bytes) -> Amqp10Properties:
    return Amqp10Properties(*decode_list_fields(encoded, PROPERTY_FIELDS))


def encode_header_section(header: Amqp10Header) -> bytes:
    """The section, or nothing for an empty header."""
    return _write_fields(HEADER, [getattr(header, name) for name, _ in HEADER_FIELDS])


def encode_properties_section(properties: Amqp10Properties) -> bytes:
    values = [getattr(properties, name) for name, _ in PROPERTY_FIELDS]
    for index in (6, 7):  # content type and encoding
        if values[index] is not None:
            values[index] = Symbol(values[index])
    return _write_fields(PROPERTIES, values)


def _write_fields(code: int, values: list[Any]) -> bytes:
    while values and values[-1] is None:
        values.pop()
    return section_prefix(code) + encode(values) if values else b""


def decode_message(buffer: Buffer) -> Amqp10Message:
    head = read_head(buffer)
    assert head is not None  # the buffer is a whole message
    body = read_body(buffer, head)
    message = Amqp10Message()
    if body.kind == DATA:
        message.body = join_data_sections(buffer, body.extents)
    elif body.kind == SEQUENCE:
        message.body = AmqpSequences([decode_whole(buffer[a:b]) for a, b in body.extents])
    else:
        start, stop = body.extents[0]
        message.body = AmqpValue(decode_whole(buffer[start:stop]))
    if head.header is not None:
        message.header = decode_header_section(head.header)
    if head.delivery_annotations is not None:
        message.delivery_annotations = decode_whole(head.delivery_annotations)
    if head.message_annotations is not None:
        message.message_annotations = decode_whole(head.message_annotations)
    if head.properties is not None:
        message.properties = decode_properties_section(head.properties)
    if head.application_properties is not None:
        message.application_properties = decode_whole(head.application_properties)
    if body.footer is not None:
        message.footer = decode_whole(body.footer)
    return message


def encode_message(message: Amqp10Message) -> bytes:
    parts: list[bytes] = []
    if message.header is not None:
        parts.append(encode_header_section(message.header))
    for code, table in (
        (DELIVERY_ANNOTATIONS, message.delivery_annotations),
        (MESSAGE_ANNOTATIONS, message.message_annotations),
    ):
        if table is not None:
            parts.append(section_prefix(code) + encode(table))
    if message.properties is not None:
        parts.append(encode_properties_section(message.properties))
    if message.application_properties is not None:
        parts.append(
            section_prefix(APPLICATION_PROPERTIES) + encode(message.application_properties)
        )
    match message.body:
        case AmqpValue(value):
            parts.append(section_prefix(VALUE) + encode(value))
        case AmqpSequences(lists):
            parts += [section_prefix(SEQUENCE) + encode(one) for one in lists]
        case data:
            parts.append(section_prefix(DATA) + encode(data))
    if message.footer is not None:
        parts.append(section_prefix(FOOTER) + encode(message.footer))
    return b"".join(parts)


HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

_SYMBOLS: Final = {
    Symbol("amqp:header:list"): HEADER,
    Symbol("amqp:delivery-annotations:map"): DELIVERY_ANNOTATIONS,
    Symbol("amqp:message-annotations:map"): MESSAGE_ANNOTATIONS,
    Symbol("amqp:properties:list"): PROPERTIES,
    Symbol("amqp:application-properties:map"): APPLICATION_PROPERTIES,
    Symbol("amqp:data:binary"): DATA,
    Symbol("amqp:amqp-sequence:list"): SEQUENCE,
    Symbol("amqp:amqp-value:*"): VALUE,
    Symbol("amqp:footer:map"): FOOTER,
}

_LISTS: Final = frozenset({0x45, 0xC0, 0xD0})
_MAPS: Final = frozenset({0xC1, 0xD1})

#: The constructors that a section's value may have; None: any.
_CONSTRUCTORS: Final = {
    HEADER: _LISTS,
    DELIVERY_ANNOTATIONS: _MAPS,
    MESSAGE_ANNOTATIONS: _MAPS,
    PROPERTIES: _LISTS,
    APPLICATION_PROPERTIES: _MAPS,
    DATA: frozenset({0xA0, 0xB0}),
    SEQUENCE: _LISTS,
    VALUE: None,
    FOOTER: _MAPS,
}


def section_prefix(code: int) -> bytes:
    return bytes((0x00, 0x53, code))


@dataclass(slots=True)
class MessageHead:
    """The sections before the body: each as its encoded value, or None."""

    header: bytes | None = None
    delivery_annotations: bytes | None = None
    message_annotations: bytes | None = None
    properties: bytes | None = None
    application_properties: bytes | None = None
    kind: int = DATA  #: the kind of the body's sections
    body_at: int = 0  #: where they begin


_HEAD_ATTRIBUTES: Final = {
    HEADER: "header",
    DELIVERY_ANNOTATIONS: "delivery_annotations",
    MESSAGE_ANNOTATIONS: "message_annotations",
    PROPERTIES: "properties",
    APPLICATION_PROPERTIES: "application_properties",
}


def read_head(buffer: Buffer, *, whole: bool = True) -> MessageHead | None:
    """The head of a message; None if it is incomplete and the buffer is not the whole message."""
    head = MessageHead()
    at, end, last = 0, len(buffer), 0
    try:
        while at < end:
            code, start = section_at(buffer, at, end)
            if code >= DATA:
                head.kind = code if code < FOOTER else DATA
                break
            if code <= last:
                raise DecodeError(f"section 0x{code:02x} at byte {at} is out of order")
            at = skip_undescribed(buffer, start, end)
            setattr(head, _HEAD_ATTRIBUTES[code], bytes(buffer[start:at]))
            last = code
        else:
            if not whole:
                return None
    except TruncatedValue:
        if whole:
            raise
        return None
    head.body_at = at
    return head


@dataclass(slots=True)
class MessageBody:
    start: int
    end: int  #: where the last section ends and the footer begins
    kind: int
    extents: list[tuple[int, int]] = field(default_factory=list)  #: of the sections' values
    footer: bytes | None = None


def read_body(buffer: Buffer, head: MessageHead) -> MessageBody:
    at, end = head.body_at, len(buffer)
    body = MessageBody(at, at, head.kind)
    while at < end:
        code, start = section_at(buffer, at, end)
        stop = skip(buffer, start, end)
        if code == FOOTER:
            if stop != end:
                raise DecodeError(f"{end - stop} bytes after the footer")
            body.footer = bytes(buffer[start:stop])
            break
        if code != head.kind or (code == VALUE and body.extents):
            raise DecodeError(f"section 0x{code:02x} at byte {at} is out of order")
        body.extents.append((start, stop))
        at = body.end = stop
    return body


def join_data_sections(buffer: Buffer, extents: list[tuple[int, int]]) -> bytes:
    """The concatenated content of data sections."""
    if len(extents) == 1:
        start, stop = extents[0]
        return bytes(buffer[start + (2 if buffer[start] == 0xA0 else 5) : stop])
    return b"".join(
        [bytes(buffer[at + (2 if buffer[at] == 0xA0 else 5) : stop]) for at, stop in extents]
    )


def section_at(buffer: Buffer, at: int, end: int) -> tuple[int, int]:
    """The code of the section at `at`, and where its value begins."""
    start = at + 3
    if start < end and buffer[at] == 0 and buffer[at + 1] == 0x53:
        code = buffer[at + 2]
    else:
        code, start = _descriptor_at(buffer, at, end)
    if code not in _CONSTRUCTORS:
        raise DecodeError(f"unknown section 0x{code:02x} at byte {at}")
    allowed = _CONSTRUCTORS[code]
    if allowed is not None and buffer[start] not in allowed:
        raise DecodeError(
            f"section 0x{code:02x} with constructor 0x{buffer[start]:02x} at byte {start}"
        )
    return code, start


def _descriptor_at(buffer: Buffer, at: int, end: int) -> tuple[int, int]:
    """The same for a descriptor that is a symbol or not in its smallest encoding."""
    if buffer[at] != 0:
        raise DecodeError(f"no section but a 0x{buffer[at]:02x} at byte {at}")
    descriptor, start = decode(buffer, at + 1, end)
    if start >= end:
        raise TruncatedValue(f"section at byte {at} ends after its descriptor")
    if isinstance(descriptor, str):
        return _SYMBOLS.get(Symbol(descriptor), 0), start
    return descriptor if isinstance(descriptor, int) else 0, start
