"""Sections of AMQP 1.0 that are preserved in headers, because AMQP 0-9-1 cannot represent them.

A client of AMQP 0-9-1 or a dead-letter exchange may change the message afterwards. A preserved
section is used only if converting it again gives the properties that the message now has.

That costs as much as the first conversion, and nearly all messages are unchanged. So the header is
signed with a keyed hash, and under a valid signature the sections are used without a check. The key
is Python's per-process hash seed (SipHash): nobody else can sign, and signatures of an earlier
process are invalid, so their messages are checked by conversion. The signature is the first of the
headers, followed by the preserved sections; a stream inserts the offset before it.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.core.errors import WireSyntaxError
from penstock.core.field_table import decode_table
from penstock.core.trace_context import TRACEPARENT, TRACESTATE
from penstock.protocols.amqp10.conversion.properties import (
    BROKER_ANNOTATION_NAMES,
    CC_ANNOTATION,
    CLUSTER_ID_ANNOTATION,
    COMPLEX_HEADER_PREFIX,
    CORRELATION_ID_HEADER,
    MESSAGE_ID_HEADER,
    REPLY_TO_TOPIC_HEADER,
    TYPE_ANNOTATION,
    RawBasicProperties,
    convert_properties_section,
    header_name,
    is_application_property,
)
from penstock.protocols.amqp10.conversion.values import (
    ARRAY_TYPE,
    LONG_TYPE,
    TABLE_TYPE,
    encode_string,
    is_utf8,
    read_table_fields,
    to_field_value,
)
from penstock.wire.amqp10.codec import decode_whole, encode, encode_compound, encode_variable_width
from penstock.wire.amqp10.errors import DecodeError, EncodeError
from penstock.wire.amqp10.message import (
    APPLICATION_PROPERTIES,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    PROPERTY_FIELDS,
    decode_list_fields,
    section_prefix,
)
from penstock.wire.amqp10.values import Symbol

#: The signature's entry in the field table: its name, and the size of its value.
_SIGNATURE_ENTRY: Final = b"\x0fx-amqp-1.0-sealx\0\0\0\x08"
_SIGNATURE_BYTES: Final = 8
EMPTY_SIGNATURE: Final = _SIGNATURE_ENTRY + bytes(_SIGNATURE_BYTES)
SIGNATURE_HEADER: Final = b"x-amqp-1.0-seal"

_OFFSET_ENTRY: Final = b"\x0fx-stream-offsetl"
_OFFSET_BYTES: Final = len(_OFFSET_ENTRY) + 8


def sign_header(header: bytes) -> bytes:
    """Sign a header whose table begins with `EMPTY_SIGNATURE`."""
    table = _table_at(header)
    at = table + 4 + len(_SIGNATURE_ENTRY)
    mark = hash(header[12:table] + header[at + _SIGNATURE_BYTES :])
    return (
        header[:at]
        + mark.to_bytes(_SIGNATURE_BYTES, "big", signed=True)
        + header[at + _SIGNATURE_BYTES :]
    )


def verified_sections(header: bytes) -> tuple[dict[bytes, bytes], bytes] | None:
    """The sections under a valid signature, by name; and the stream offset, if there is one."""
    if not header[12] & 0x20:
        return None
    table = _table_at(header)
    at = table + 4
    offset = b""
    if header.startswith(_OFFSET_ENTRY, at):
        offset = header[at + len(_OFFSET_ENTRY) : at + _OFFSET_BYTES]
        at += _OFFSET_BYTES
    if not header.startswith(_SIGNATURE_ENTRY, at):
        return None
    at += len(_SIGNATURE_ENTRY)
    mark = int.from_bytes(header[at : at + _SIGNATURE_BYTES], "big", signed=True)
    at += _SIGNATURE_BYTES
    if hash(header[12:table] + header[at:]) != mark:
        return None
    sections: dict[bytes, bytes] = {}
    while header.startswith(b"x-amqp-1.0-", at + 1):
        start = at + 1
        at = start + header[at]
        name = header[start:at]
        start = at + 5
        at = start + int.from_bytes(header[at + 1 : start], "big")
        sections[name] = header[start:at]
    return sections, offset


def octets_entry(name: bytes, content: bytes) -> bytes:
    return bytes((len(name),)) + name + b"x" + len(content).to_bytes(4, "big") + content


def _table_at(header: bytes) -> int:
    at = 14
    if header[12] & 0x80:
        at += 1 + header[at]
    if header[12] & 0x40:
        at += 1 + header[at]
    return at


PROPERTIES_HEADER: Final = b"x-amqp-1.0-properties"
APPLICATION_PROPERTIES_HEADER: Final = b"x-amqp-1.0-app-properties"
MESSAGE_ANNOTATIONS_HEADER: Final = b"x-amqp-1.0-message-annotations"
FOOTER_HEADER: Final = b"x-amqp-1.0-footer"
VALUE_TYPE_HEADER: Final = b"x-amqp-1.0-value"
#: The type of a body of encoded sections, as in RabbitMQ.
ENCODED_BODY_TYPE: Final = b"\x08amqp-1.0"

_SECTION_BY_HEADER: Final = {
    PROPERTIES_HEADER: PROPERTIES,
    APPLICATION_PROPERTIES_HEADER: APPLICATION_PROPERTIES,
    MESSAGE_ANNOTATIONS_HEADER: MESSAGE_ANNOTATIONS,
    FOOTER_HEADER: FOOTER,
}
_EXTRA_HEADERS: Final = {
    name.encode(): name
    for name in (MESSAGE_ID_HEADER, CORRELATION_ID_HEADER, REPLY_TO_TOPIC_HEADER)
}
_OFFSET: Final = b"x-stream-offset"
#: Of MQTT, or removed by exchanges.
_INTERNAL_HEADERS: Final = frozenset({b"x-mqtt-properties", b"BCC", SIGNATURE_HEADER})

#: Annotations that are not made from headers.
_BROKER_ANNOTATIONS: Final = BROKER_ANNOTATION_NAMES | {
    CC_ANNOTATION,
    TYPE_ANNOTATION,
    CLUSTER_ID_ANNOTATION,
}

_COMPARED: Final = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "message_id",
    "timestamp",
    "user_id",
    "app_id",
)


class PreservedSections:
    """Preserved sections among the headers of a message."""

    __slots__ = ("extra", "footer", "kind", "properties")

    def __init__(self) -> None:
        self.properties = b""  #: the section, if it is unchanged
        self.footer = b""
        self.kind: str | None = None  #: the type of an amqp-value body
        self.extra: dict[str, bytes] = {}  #: ids and addresses in headers


def split_headers(
    basic: RawBasicProperties, preserved: PreservedSections
) -> tuple[bytes, dict[bytes, bytes]]:
    """Encoded application properties, and annotations by encoded name."""
    annotations: dict[bytes, bytes] = {}
    application: dict[bytes, bytes] = {}
    sections: dict[int, bytes] = {}
    for name, letter, encoded in read_table_fields(basic.table or b""):
        if name[:2] == b"x-":
            if name in _SECTION_BY_HEADER:
                sections[_SECTION_BY_HEADER[name]] = _content(encoded)
            elif name in _EXTRA_HEADERS:
                preserved.extra[_EXTRA_HEADERS[name]] = encoded
            elif name == VALUE_TYPE_HEADER:
                preserved.kind = _content(encoded).decode("ascii", "replace")
            elif name == _OFFSET and letter == LONG_TYPE:
                annotations[encode_variable_width(0xA3, name)] = (
                    b"\x80" + encoded[1:]
                )  # offsets are ulongs
            elif name in _INTERNAL_HEADERS:
                continue
            elif name.isascii():
                annotations.setdefault(encode_variable_width(0xA3, name), encoded)
        elif name == b"CC":
            annotations.setdefault(encode_symbol(CC_ANNOTATION), encoded)
        elif letter in (TABLE_TYPE, ARRAY_TYPE):
            if name.isascii():
                annotations.setdefault(
                    encode_variable_width(0xA3, COMPLEX_HEADER_PREFIX.encode() + name), encoded
                )
        elif name not in _INTERNAL_HEADERS and is_utf8(name):
            application.setdefault(encode_string(name), encoded)
    if basic.type is not None and basic.type != ENCODED_BODY_TYPE:
        annotations[encode_symbol(TYPE_ANNOTATION)] = encode_string(basic.type[1:])
    if basic.cluster_id is not None:
        annotations[encode_symbol(CLUSTER_ID_ANNOTATION)] = encode_string(basic.cluster_id[1:])
    if not sections:
        return _map(application), annotations
    return _restore_sections(sections, basic, preserved, application, annotations)


def encode_symbol(name: str) -> bytes:
    return encode_variable_width(0xA3, name.encode())


def _content(encoded: bytes) -> bytes:
    """The content of an encoded string or binary."""
    if encoded[0] in (0xA0, 0xA1):
        return encoded[2:]
    return encoded[5:] if encoded[0] in (0xB0, 0xB1) else b""


def _map(pairs: dict[bytes, bytes]) -> bytes:
    if not pairs:
        return b""
    return encode_compound(
        0xC1, 2 * len(pairs), b"".join([part for pair in pairs.items() for part in pair])
    )


def _restore_sections(
    sections: dict[int, bytes],
    basic: RawBasicProperties,
    preserved: PreservedSections,
    application: dict[bytes, bytes],
    annotations: dict[bytes, bytes],
) -> tuple[bytes, dict[bytes, bytes]]:
    values: dict[int, Any] = {}
    for code, whole in sections.items():
        if whole.startswith(section_prefix(code)):
            try:
                values[code] = decode_whole(whole[3:])
            except DecodeError:
                continue
    if PROPERTIES in values and _properties_unchanged(
        sections[PROPERTIES][3:], basic, preserved.extra
    ):
        preserved.properties = sections[PROPERTIES]
    if isinstance(values.get(FOOTER), dict):
        preserved.footer = sections[FOOTER]
    current = _headers(basic)
    properties = values.get(APPLICATION_PROPERTIES)
    original = values.get(MESSAGE_ANNOTATIONS)
    for name in (TRACEPARENT, TRACESTATE):  # an annotation stays one
        known = isinstance(properties, dict) and name in properties
        annotation = original.get(Symbol(name)) if isinstance(original, dict) else None
        if annotation is not None and annotation == current.get(name) and not known:
            del current[name]
            application.pop(encode_string(name.encode()), None)
    encoded = _map(application)
    if isinstance(properties, dict) and _application_properties_unchanged(properties, current):
        encoded = sections[APPLICATION_PROPERTIES][3:]
        for name in properties:
            annotations.pop(encode_symbol(name) if name.isascii() else b"", None)
    if isinstance(original, dict):
        _restore_annotations(original, current, annotations)
    return encoded, annotations


def _headers(basic: RawBasicProperties) -> dict[str, Any]:
    table = basic.table or b""
    try:
        return decode_table(len(table).to_bytes(4, "big") + table)[0]
    except WireSyntaxError:
        return {}


def _properties_unchanged(
    encoded: bytes, basic: RawBasicProperties, extra: dict[str, bytes]
) -> bool:
    again = RawBasicProperties()
    headers: dict[str, Any] = {}
    try:
        convert_properties_section(decode_list_fields(encoded, PROPERTY_FIELDS), again, headers)
    except (DecodeError, EncodeError):
        return False
    if {name: encode(to_field_value(value)) for name, value in headers.items()} != extra:
        return False
    return all(getattr(again, name) == getattr(basic, name) for name in _COMPARED)


def _application_properties_unchanged(properties: dict[Any, Any], current: dict[str, Any]) -> bool:
    """Whether the current headers are exactly those converted from these properties."""
    names: set[str] = set()
    for name, value in properties.items():
        if not isinstance(name, str):
            return False
        if not is_application_property(name):
            continue
        try:
            converted = to_field_value(value)
        except EncodeError:
            continue
        if name not in current or current[name] != converted:
            return False
        names.add(name)
    return all(
        name in names or name[:2] == "x-" or name == "CC" or isinstance(value, list | dict)
        for name, value in current.items()
    )


def _restore_annotations(
    original: dict[Any, Any], current: dict[str, Any], annotations: dict[bytes, bytes]
) -> None:
    """Restore annotations whose headers are unchanged."""
    for key, value in original.items():
        name = header_name(key, value)
        encoded = encode(key)
        if name is None:
            if encoded not in annotations and key not in _BROKER_ANNOTATIONS:
                annotations[encoded] = encode(value)
            continue
        try:
            converted = to_field_value(value)
        except EncodeError:  # it has no header
            annotations[encoded] = encode(value)
            continue
        if name in current and current[name] == converted:
            annotations[encoded] = encode(value)
