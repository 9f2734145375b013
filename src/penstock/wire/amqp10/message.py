"""A message of AMQP 1.0 as values, and as the bytes of its sections.

For those who want a message and not its bytes: the client, and tests. The terminal converts
sections without making these (`terminals/amqp10`). Encoding leaves out whatever is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from penstock.wire.amqp10.codec import decode_whole, encode
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.primitives import Buffer
from penstock.wire.amqp10.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    data_of,
    read_body,
    read_head,
    section,
)
from penstock.wire.amqp10.values import Symbol, Timestamp, UByte, UInt, ULong

MessageId = str | ULong | UUID | bytes


@dataclass(slots=True)
class Header:
    """How a message is to be transported; a broker may change it."""

    durable: bool | None = None
    priority: UByte | None = None
    ttl: UInt | None = None
    first_acquirer: bool | None = None
    delivery_count: UInt | None = None


@dataclass(slots=True)
class Properties:
    """What the sender says of a message; nobody on the way changes it."""

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
class Value:
    """A body that is one value."""

    value: Any


@dataclass(slots=True)
class Sequences:
    """A body of one or more lists."""

    lists: list[list[Any]]


@dataclass(slots=True)
class Message:
    """Bytes for a body are data."""

    body: bytes | Value | Sequences = b""
    header: Header | None = None
    delivery_annotations: dict[Any, Any] | None = None
    message_annotations: dict[Any, Any] | None = None
    properties: Properties | None = None
    application_properties: dict[str, Any] | None = None
    footer: dict[Any, Any] | None = field(default=None)


#: The fields of the lists in their order, and what each may be.
HEADER_FIELDS: Final[tuple[tuple[str, tuple[type, ...]], ...]] = (
    ("durable", (bool,)),
    ("priority", (UByte,)),
    ("ttl", (UInt,)),
    ("first_acquirer", (bool,)),
    ("delivery_count", (UInt,)),
)
_ID: Final = (str, ULong, UUID, bytes)
PROPERTY_FIELDS: Final[tuple[tuple[str, tuple[type, ...]], ...]] = (
    ("message_id", _ID),
    ("user_id", (bytes,)),
    ("to", (str,)),
    ("subject", (str,)),
    ("reply_to", (str,)),
    ("correlation_id", _ID),
    ("content_type", (str,)),  # a symbol is one; a string is common, and does no harm
    ("content_encoding", (str,)),
    ("absolute_expiry_time", (Timestamp,)),
    ("creation_time", (Timestamp,)),
    ("group_id", (str,)),
    ("group_sequence", (UInt,)),
    ("reply_to_group_id", (str,)),
)


def read_list(encoded: bytes, fields: tuple[tuple[str, tuple[type, ...]], ...]) -> list[Any]:
    """The fields of a section that is a list; those left out at its end are not there."""
    found: list[Any] = decode_whole(encoded)
    if len(found) > len(fields):
        raise DecodeError(f"{len(found)} fields where there are {len(fields)}")
    for value, (name, kinds) in zip(found, fields, strict=False):
        if value is not None and not isinstance(value, kinds):
            raise DecodeError(f"{name.replace('_', '-')} cannot be a {type(value).__name__}")
    return found


def read_header(encoded: bytes) -> Header:
    return Header(*read_list(encoded, HEADER_FIELDS))


def read_properties(encoded: bytes) -> Properties:
    return Properties(*read_list(encoded, PROPERTY_FIELDS))


def write_header(header: Header) -> bytes:
    """The section; a header that says nothing is none."""
    return _write_fields(HEADER, [getattr(header, name) for name, _ in HEADER_FIELDS])


def write_properties(properties: Properties) -> bytes:
    fields = [getattr(properties, name) for name, _ in PROPERTY_FIELDS]
    for place in (6, 7):  # content type and encoding are symbols, whatever a program has for them
        if fields[place] is not None:
            fields[place] = Symbol(fields[place])
    return _write_fields(PROPERTIES, fields)


def _write_fields(code: int, fields: list[Any]) -> bytes:
    while fields and fields[-1] is None:
        fields.pop()
    return section(code) + encode(fields) if fields else b""


def decode_message(buffer: Buffer) -> Message:
    head = read_head(buffer)
    assert head is not None  # only the head of a part may not be there yet
    body = read_body(buffer, head)
    message = Message()
    if body.kind == DATA:
        message.body = data_of(buffer, body.extents)
    elif body.kind == SEQUENCE:
        message.body = Sequences([decode_whole(buffer[a:b]) for a, b in body.extents])
    else:
        start, stop = body.extents[0]
        message.body = Value(decode_whole(buffer[start:stop]))
    if head.header is not None:
        message.header = read_header(head.header)
    if head.delivery_annotations is not None:
        message.delivery_annotations = decode_whole(head.delivery_annotations)
    if head.message_annotations is not None:
        message.message_annotations = decode_whole(head.message_annotations)
    if head.properties is not None:
        message.properties = read_properties(head.properties)
    if head.application_properties is not None:
        message.application_properties = decode_whole(head.application_properties)
    if body.footer is not None:
        message.footer = decode_whole(body.footer)
    return message


def encode_message(message: Message) -> bytes:
    parts: list[bytes] = []
    if message.header is not None:
        parts.append(write_header(message.header))
    for code, table in (
        (DELIVERY_ANNOTATIONS, message.delivery_annotations),
        (MESSAGE_ANNOTATIONS, message.message_annotations),
    ):
        if table is not None:
            parts.append(section(code) + encode(table))
    if message.properties is not None:
        parts.append(write_properties(message.properties))
    if message.application_properties is not None:
        parts.append(section(APPLICATION_PROPERTIES) + encode(message.application_properties))
    match message.body:
        case Value(value):
            parts.append(section(VALUE) + encode(value))
        case Sequences(lists):
            parts += [section(SEQUENCE) + encode(one) for one in lists]
        case data:
            parts.append(section(DATA) + encode(data))
    if message.footer is not None:
        parts.append(section(FOOTER) + encode(message.footer))
    return b"".join(parts)
