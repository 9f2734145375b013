"""From AMQP 1.0: the sections of a message become a content header and a body.

Most messages take the fast path, from bytes to bytes: short strings, numbers and booleans differ
between AMQP 1.0 and 0-9-1 by a type code and a length. Everything else, including what is invalid,
is decoded and converted value by value.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from penstock.broker.contract import EXPIRES, PERSISTENT, PRIORITY, SENDER_SELECTED
from penstock.core.basic_properties import encode_minimal_header
from penstock.core.field_table import encode_table
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

#: The largest time to live, in milliseconds.
TTL_MAX: Final = 0xFFFF_FFFF

_LIST8: Final = 0xC0
_MAP8: Final = 0xC1
_STRING8: Final = 0xA1
_SYMBOL8: Final = 0xA3
_NULL: Final = 0x40
_TIMESTAMP: Final = 0x83

#: The positions of fields that are short strings in both protocols.
_SHORT_STRING_FIELDS: Final = {
    0: "message_id",
    5: "correlation_id",
    6: "content_type",
    7: "content_encoding",
    10: "app_id",
}
_TO: Final = 2
_SUBJECT: Final = 3
_CREATION_TIME: Final = 9
#: With these an exchange has to read the headers.
_ROUTING_HEADERS: Final = frozenset({"CC", "x-opt-delivery-delay", "x-opt-delivery-time"})
#: Messages with later fields are rare.
_FAST_FIELDS: Final = 11

#: Values with the same octets after another type code: by code, the other code and the width.
_FIXED_WIDTH: Final = {0x71: (b"I", 4), 0x82: (b"d", 8)}


class ConvertedMessage:
    """The fields of a `Message`, and the properties that address it."""

    __slots__ = ("body", "flags", "header", "subject", "to", "user_id")

    def __init__(self) -> None:
        self.header = b""
        self.body = b""
        self.flags = 0
        self.to: str | None = None
        self.subject: str | None = None
        self.user_id: bytes | None = None  #: the user whom the sender claims to be


def convert_incoming(payload: bytes, now: float) -> ConvertedMessage:
    """A complete message; `now` is the wall-clock time in seconds. Raises `DecodeError`."""
    fast = _fast_data_message(payload)
    if fast is not None:
        header, content = fast
        mode, priority, ttl = _read_header_section(header)
        if priority is None and ttl is None:
            return _data_only_message(mode, content)
    head = read_head(payload)
    assert head is not None
    body = read_body(payload, head)
    if body.footer is not None:
        decode_whole(body.footer)  # only to validate it
    if body.kind == DATA:
        content = join_data_sections(payload, body.extents)
        message = convert_incoming_head(head, len(content), now, footer=body.footer)
    else:
        kind, content = None, payload[body.start : body.end]
        if body.kind == VALUE:
            kind, content = _value_content(payload, *body.extents[0], content)
        message = convert_incoming_head(head, len(content), now, kind, body.footer)
    message.body = content
    return message


def convert_incoming_head(
    head: MessageHead, size: int, now: float, kind: str | None = None, footer: bytes | None = None
) -> ConvertedMessage:
    """The same without the body, which has `size` bytes: those of the data, or of the sections of
    any other body."""
    message = ConvertedMessage()
    mode, priority, ttl = _read_header_section(head.header)
    basic = RawBasicProperties()
    headers: dict[str, Any] = {}
    exact = footer is None and kind is None
    if head.properties is not None:
        same, ttl = _carry_properties(head.properties, basic, headers, message, ttl, now)
        exact &= same
    annotations = head.message_annotations
    if annotations is not None:
        exact &= convert_annotations(annotations, basic, headers)
    table = b""
    application = head.application_properties
    if application is not None:
        fast = None if annotations is not None else _fast_application_properties(application)
        if fast is None:
            exact &= convert_application_properties(application, headers)
        else:
            table, same = fast
            exact &= same
    if head.kind != DATA and kind is None:
        basic.type = ENCODED_BODY_TYPE
    if headers:
        message.flags = SENDER_SELECTED if not _ROUTING_HEADERS.isdisjoint(headers) else 0
        table += encode_table(headers)[4:]
    _carry_transport(basic, message, mode, priority, ttl)
    basic.table = (
        table if exact else EMPTY_SIGNATURE + _preserved_entries(head, kind, footer) + table
    )
    message.header = write_basic_properties(basic, size)
    if not exact:
        message.header = sign_header(message.header)
    return message


def _preserved_entries(head: MessageHead, kind: str | None, footer: bytes | None) -> bytes:
    """The sections that do not survive the conversion, as headers."""
    entries = b""
    for name, code, encoded in (
        (PROPERTIES_HEADER, PROPERTIES, head.properties),
        (APPLICATION_PROPERTIES_HEADER, APPLICATION_PROPERTIES, head.application_properties),
        (MESSAGE_ANNOTATIONS_HEADER, MESSAGE_ANNOTATIONS, head.message_annotations),
        (FOOTER_HEADER, FOOTER, footer),
    ):
        if encoded is not None:
            entries += octets_entry(name, section_prefix(code) + encoded)
    return entries if kind is None else entries + octets_entry(VALUE_TYPE_HEADER, kind.encode())


def _carry_properties(
    encoded: bytes,
    basic: RawBasicProperties,
    headers: dict[str, Any],
    message: ConvertedMessage,
    ttl: int | None,
    now: float,
) -> tuple[bool, int | None]:
    """Returns whether the conversion is lossless, and the time to live."""
    exact = _fast_properties(encoded, basic, message)
    if exact is not None:
        return exact, ttl
    fields = decode_list_fields(encoded, PROPERTY_FIELDS)
    return convert_properties_section(fields, basic, headers), _addressing(
        fields, message, ttl, now
    )


def _addressing(
    fields: list[Any], message: ConvertedMessage, ttl: int | None, now: float
) -> int | None:
    """Sets address and user; returns the time to live, computed from the absolute expiry time if
    the message has no other."""
    count = len(fields)
    if count > 1:
        message.user_id = fields[1]
    if count > 2:
        message.to = fields[2]
    if count > 3:
        message.subject = fields[3]
    if ttl is None and count > 8 and fields[8] is not None:
        left: int = fields[8] - int(now * 1000)
        return min(max(0, left), TTL_MAX)
    return ttl


def _carry_transport(
    basic: RawBasicProperties,
    message: ConvertedMessage,
    mode: int,
    priority: int | None,
    ttl: int | None,
) -> None:
    basic.delivery_mode = mode
    if mode == 2:
        message.flags |= PERSISTENT
    if priority is not None:
        basic.priority = priority
        if priority:
            message.flags |= PRIORITY
    if ttl is not None:
        digits = str(int(ttl)).encode()
        basic.expiration = bytes((len(digits),)) + digits
        message.flags |= EXPIRES


def _data_only_message(mode: int, content: bytes) -> ConvertedMessage:
    """A message without other properties than its durability."""
    message = ConvertedMessage()
    message.header = encode_minimal_header(len(content), mode == 2)
    message.flags = PERSISTENT if mode == 2 else 0
    message.body = content
    return message


@lru_cache(maxsize=256)  # usually the same for all messages of a sender
def _read_header_section(header: bytes | None) -> tuple[int, int | None, int | None]:
    if header is None:
        return 1, None, None
    durable, priority, ttl = (decode_list_fields(header, HEADER_FIELDS) + [None] * 3)[:3]
    return (2 if durable else 1), priority, ttl


def _value_content(payload: bytes, start: int, stop: int, whole: bytes) -> tuple[str | None, bytes]:
    """The content of a string or binary value; another value is kept as its section."""
    match payload[start]:
        case 0xA1 | 0xB1 as code:
            text = payload[start + (2 if code == 0xA1 else 5) : stop]
            if not is_utf8(text):
                raise DecodeError("the body is a string that is not UTF-8")
            return "string", text
        case 0xA0 | 0xB0 as code:
            return "binary", payload[start + (2 if code == 0xA0 else 5) : stop]
        case 0x40:
            return "null", b""
    return None, whole


# The fast path. Each function returns None for what it leaves to the general conversion.


def _fast_data_message(payload: bytes) -> tuple[bytes | None, bytes] | None:
    """The header and the body of a message that is one data section, with or without a header."""
    at = 0
    header = None
    if payload.startswith(b"\x00\x53\x70\xc0") and len(payload) > 4:
        at = 5 + payload[4]
        header = payload[3:at]
    if payload.startswith(b"\x00\x53\x75\xa0", at):
        start = at + 5
        size = payload[at + 4] if start <= len(payload) else -1
    elif payload.startswith(b"\x00\x53\x75\xb0", at):
        start = at + 8
        size = int.from_bytes(payload[at + 4 : start], "big")
    else:
        return None
    return (header, payload[start:]) if start + size == len(payload) else None


def _fast_properties(
    encoded: bytes, basic: RawBasicProperties, message: ConvertedMessage
) -> bool | None:
    """Returns whether the conversion is lossless."""
    if len(encoded) < 3 or encoded[0] != _LIST8 or encoded[2] > _FAST_FIELDS:
        return None
    at, end = 3, len(encoded)
    exact = True
    for place in range(encoded[2]):
        if at + 1 >= end:
            if at >= end or encoded[at] != _NULL:
                return None
            at += 1
            continue
        code = encoded[at]
        if code == _NULL:
            at += 1
        elif code in (_STRING8, _SYMBOL8):
            start = at + 1
            at = start + 1 + encoded[start]
            short = encoded[start:at]
            if at > end or not short.isascii() or b"urn:uuid:" in short or 0 in short[1:]:
                return None
            name = _SHORT_STRING_FIELDS.get(place)
            if name is not None:
                setattr(basic, name, short)
            elif place in (_TO, _SUBJECT):
                exact = False
                setattr(message, "to" if place == _TO else "subject", short[1:].decode())
            else:
                return None
        elif place == _CREATION_TIME and code == _TIMESTAMP and at + 9 <= end:
            milliseconds = int.from_bytes(encoded[at + 1 : at + 9], "big", signed=True)
            if milliseconds < 0:
                return None
            basic.timestamp = milliseconds // 1000
            exact &= not milliseconds % 1000
            at += 9
        else:
            return None
    return exact if at == end else None


def _fast_application_properties(encoded: bytes) -> tuple[bytes, bool] | None:
    """A field table without its length, and whether the conversion is lossless."""
    if len(encoded) < 3 or encoded[0] != _MAP8 or encoded[2] & 1:
        return None
    at, end = 3, len(encoded)
    parts: list[bytes] = []
    names: set[bytes] = set()
    exact = True
    for _ in range(encoded[2] // 2):
        if at + 2 >= end or encoded[at] != _STRING8:
            return None
        start = at + 1
        at = start + 1 + encoded[start]
        name = encoded[start:at]
        if at >= end or not name.isascii() or name[1:3] == b"x-":
            return None
        code = encoded[at]
        if code == _STRING8 and at + 2 <= end:
            start = at + 2
            at = start + encoded[start - 1]
            text = encoded[start:at]
            if at > end or not is_utf8(text):
                return None
            field = b"S" + len(text).to_bytes(4, "big") + text
        elif code in (0x41, 0x42):
            field = b"t\x01" if code == 0x41 else b"t\x00"
            at += 1
        else:
            found = _fast_number(encoded, at, end)
            if found is None:
                return None
            field, at, same = found
            exact &= same
        names.add(name)
        parts += (name, field)
    if at != end or len(names) * 2 != len(parts):
        return None
    if b"\x02CC" in names or b"\x03BCC" in names:  # other special names have x-
        return None
    return b"".join(parts), exact


def _fast_number(encoded: bytes, at: int, end: int) -> tuple[bytes, int, bool] | None:
    """A number as a field, its end, and whether it keeps its type."""
    code = encoded[at]
    fixed = _FIXED_WIDTH.get(code)
    if fixed is not None:
        letter, width = fixed
        after = at + 1 + width
        return (letter + encoded[at + 1 : after], after, True) if after <= end else None
    if code in (0x52, 0x54, 0x55):  # uint, int and long in one octet
        if at + 2 > end:
            return None
        value = encoded[at + 1]
        if code != 0x52 and value > 127:
            value -= 256
        return b"I" + value.to_bytes(4, "big", signed=True), at + 2, code == 0x54
    return None
