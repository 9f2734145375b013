"""Conversion of properties, annotations and application properties to and from class basic.

    message-id, correlation-id   message-id, correlation-id: a uuid as urn:uuid:…, a ulong in
                                 decimal, a binary as text; if it is not a short string, the
                                 header x-message-id or x-correlation-id
    user-id                      user-id
    reply-to                     reply-to: the name of the queue; of a topic, the header
                                 x-reply-to-topic, which MQTT uses
    content-type, -encoding      content-type, -encoding; a symbol or a string
    creation-time                timestamp, in seconds
    group-id                     app-id

The others (to, subject, absolute-expiry-time, group-sequence, reply-to-group-id) have no
counterpart. The functions return whether a conversion is lossless; if not, the caller preserves
the section in a header.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any, Final
from uuid import UUID

from penstock.broker.vhost import TOPIC_EXCHANGE
from penstock.core.basic_properties import SHORTSTR_MAX
from penstock.core.trace_context import TRACEPARENT, TRACESTATE
from penstock.protocols.amqp10.addresses import parse_link_address, queue_address
from penstock.protocols.amqp10.conversion.values import (
    encode_string,
    encode_timestamp,
    is_lossless,
    is_utf8,
    to_field_value,
)
from penstock.wire.amqp10.codec import decode_whole, encode, encode_compound
from penstock.wire.amqp10.errors import DecodeError, EncodeError, LinkFault
from penstock.wire.amqp10.message import PROPERTIES, section_prefix
from penstock.wire.amqp10.values import Array, Symbol

MESSAGE_ID_HEADER: Final = "x-message-id"
CORRELATION_ID_HEADER: Final = "x-correlation-id"
REPLY_TO_TOPIC_HEADER: Final = "x-reply-to-topic"

_SECTION: Final = section_prefix(PROPERTIES)
_NULL: Final = b"\x40"
_URN: Final = "urn:uuid:"


def convert_properties_section(
    fields: list[Any], basic: RawBasicProperties, headers: dict[str, Any]
) -> bool:
    (
        message_id,
        user_id,
        to,
        subject,
        reply_to,
        correlation_id,
        content_type,
        content_encoding,
        absolute_expiry,
        creation_time,
        group_id,
        group_sequence,
        reply_to_group,
    ) = fields + [None] * (13 - len(fields))
    exact = (to, subject, absolute_expiry, group_sequence, reply_to_group).count(None) == 5
    if message_id is not None:
        basic.message_id, same = _convert_id(message_id, MESSAGE_ID_HEADER, headers)
        exact &= same
    if correlation_id is not None:
        basic.correlation_id, same = _convert_id(correlation_id, CORRELATION_ID_HEADER, headers)
        exact &= same
    if user_id is not None:
        basic.user_id = _shortstr(user_id)
        exact &= basic.user_id is not None
    if reply_to is not None:
        exact &= _convert_reply_to(reply_to, basic, headers)
    if content_type is not None:
        basic.content_type = _shortstr(content_type.encode())
        exact &= basic.content_type is not None and content_type.isascii()
    if content_encoding is not None:
        basic.content_encoding = _shortstr(content_encoding.encode())
        exact &= basic.content_encoding is not None and content_encoding.isascii()
    if creation_time is not None:
        if creation_time >= 0:
            basic.timestamp = creation_time // 1000
        exact &= creation_time >= 0 and creation_time % 1000 == 0
    if group_id is not None:
        basic.app_id = _shortstr(group_id.encode())
        exact &= basic.app_id is not None
    return exact


def _shortstr(content: bytes) -> bytes | None:
    if len(content) > SHORTSTR_MAX or not is_utf8(content):
        return None
    return bytes((len(content),)) + content


def _convert_id(value: Any, name: str, headers: dict[str, Any]) -> tuple[bytes | None, bool]:
    if isinstance(value, UUID):
        content, exact = value.urn.encode(), True
    elif isinstance(value, bytes):
        content, exact = value, False
    elif isinstance(value, str):
        content, exact = value.encode(), not value.startswith(_URN)
    else:
        content, exact = str(int(value)).encode(), False
    if len(content) > SHORTSTR_MAX or 0 in content or not is_utf8(content):
        headers[name] = value
        return None, True
    return bytes((len(content),)) + content, exact


def _convert_reply_to(address: str, basic: RawBasicProperties, headers: dict[str, Any]) -> bool:
    try:
        parsed = parse_link_address(address)
    except LinkFault:
        basic.reply_to = _shortstr(address.encode())
        return basic.reply_to is not None and address.startswith("/")
    if parsed.kind == "queue":
        basic.reply_to = _shortstr(parsed.name.encode())
        return basic.reply_to is not None and address == _queue_address(parsed.name)
    if parsed.kind == "exchange" and parsed.name == TOPIC_EXCHANGE and parsed.key:
        headers[REPLY_TO_TOPIC_HEADER] = parsed.key
        return address == _topic_address(parsed.key)
    basic.reply_to = _shortstr(address.encode())
    return basic.reply_to is not None


def _queue_address(name: str) -> str:
    return name if name.startswith("/") else queue_address(name)


def _topic_address(key: str) -> str:
    return "/topic/" + key.replace("%", "%25").replace("/", "%2F")


def encode_properties_from_basic(basic: RawBasicProperties, extra: dict[str, bytes]) -> bytes:
    """The section; `extra` has the encoded values of the headers above."""
    fields = [
        _encode_id(basic.message_id, extra.get(MESSAGE_ID_HEADER)),
        _NULL if basic.user_id is None else b"\xa0" + basic.user_id,
        _NULL,
        _NULL,
        _encode_reply_to(basic.reply_to, extra.get(REPLY_TO_TOPIC_HEADER)),
        _encode_id(basic.correlation_id, extra.get(CORRELATION_ID_HEADER)),
        _symbol(basic.content_type),
        _symbol(basic.content_encoding),
        _NULL,
        _NULL if basic.timestamp is None else _encode_timestamp(basic.timestamp),
        _NULL if basic.app_id is None else encode_string(basic.app_id[1:]),
    ]
    if fields[10] != _NULL and fields[10][0] == 0xA0:
        fields[10] = _NULL  # group-id is a string, and this is not UTF-8
    while fields and fields[-1] == _NULL:
        fields.pop()
    return _SECTION + encode_compound(0xC0, len(fields), b"".join(fields)) if fields else b""


def _encode_id(short: bytes | None, header: bytes | None) -> bytes:
    if short is None:
        return _NULL if header is None or header[0] not in _ID_CONSTRUCTORS else header
    if short.startswith(b"urn:uuid:", 1) and len(short) == 46:
        text = short[1:].decode("ascii", "replace")
        try:
            value = UUID(text)
        except ValueError:
            return encode_string(short[1:])
        if value.urn == text:
            return encode(value)
    return encode_string(short[1:])


#: Type codes of ids: strings, binaries, uuid, ulong.
_ID_CONSTRUCTORS: Final = frozenset({0xA0, 0xA1, 0xB0, 0xB1, 0x98, 0x80})


def _encode_reply_to(short: bytes | None, topic: bytes | None) -> bytes:
    if short is not None:
        return encode(_queue_address(short[1:].decode("utf-8", "replace")))
    if topic is None or topic[0] not in (0xA1, 0xB1):
        return _NULL
    return encode(_topic_address(topic[2 if topic[0] == 0xA1 else 5 :].decode()))


def _symbol(short: bytes | None) -> bytes:
    return b"\xa3" + short if short is not None and short[1:].isascii() else _NULL


def _encode_timestamp(seconds: int) -> bytes:
    """Null if AMQP 1.0 cannot represent the time."""
    encoded = encode_timestamp(seconds) if seconds < 1 << 63 else _NULL
    return encoded if encoded[0] == 0x83 else _NULL


_PREFIX: Final = Struct(">HHQH")
_CLASS_BASIC: Final = 60


@dataclass(slots=True, eq=False)
class RawBasicProperties:
    """The parts of a content header, not decoded.

    Short strings keep their length byte: AMQP 1.0 encodes short strings and symbols the same way,
    after one byte for the type.
    """

    content_type: bytes | None = None
    content_encoding: bytes | None = None
    table: bytes | None = None  #: the headers, without their length
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: bytes | None = None
    reply_to: bytes | None = None
    expiration: bytes | None = None
    message_id: bytes | None = None
    timestamp: int | None = None
    type: bytes | None = None
    user_id: bytes | None = None
    app_id: bytes | None = None
    cluster_id: bytes | None = None


#: The short strings after the priority, around the timestamp.
_BEFORE_TIMESTAMP: Final = (
    (0x0400, "correlation_id"),
    (0x0200, "reply_to"),
    (0x0100, "expiration"),
    (0x0080, "message_id"),
)
_TIMESTAMP: Final = 0x0040
_AFTER_TIMESTAMP: Final = (
    (0x0020, "type"),
    (0x0010, "user_id"),
    (0x0008, "app_id"),
    (0x0004, "cluster_id"),
)


def read_basic_properties(header: bytes) -> RawBasicProperties:
    """The header must have passed `message_flags`."""
    basic = RawBasicProperties()
    present = header[12] << 8 | header[13]
    at = 14
    if present & 0x8000:
        after = at + 1 + header[at]
        basic.content_type = header[at:after]
        at = after
    if present & 0x4000:
        after = at + 1 + header[at]
        basic.content_encoding = header[at:after]
        at = after
    if present & 0x2000:
        start = at + 4
        at = start + int.from_bytes(header[at:start], "big")
        basic.table = header[start:at]
    if present & 0x1000:
        basic.delivery_mode = header[at]
        at += 1
    if present & 0x0800:
        basic.priority = header[at]
        at += 1
    if not present & 0x07FC:
        return basic
    for flag, name in _BEFORE_TIMESTAMP:
        if present & flag:
            after = at + 1 + header[at]
            setattr(basic, name, header[at:after])
            at = after
    if present & _TIMESTAMP:
        basic.timestamp = int.from_bytes(header[at : at + 8], "big")
        at += 8
    for flag, name in _AFTER_TIMESTAMP:
        if present & flag:
            after = at + 1 + header[at]
            setattr(basic, name, header[at:after])
            at = after
    return basic


def write_basic_properties(basic: RawBasicProperties, size: int) -> bytes:
    present = 0
    parts = [b""]
    if basic.content_type is not None:
        present |= 0x8000
        parts.append(basic.content_type)
    if basic.content_encoding is not None:
        present |= 0x4000
        parts.append(basic.content_encoding)
    if basic.table:
        present |= 0x2000
        parts += (len(basic.table).to_bytes(4, "big"), basic.table)
    if basic.delivery_mode is not None:
        present |= 0x1000
        parts.append(bytes((basic.delivery_mode,)))
    if basic.priority is not None:
        present |= 0x0800
        parts.append(bytes((basic.priority,)))
    for flag, name in _BEFORE_TIMESTAMP:
        value = getattr(basic, name)
        if value is not None:
            present |= flag
            parts.append(value)
    if basic.timestamp is not None:
        present |= _TIMESTAMP
        parts.append(basic.timestamp.to_bytes(8, "big"))
    for flag, name in _AFTER_TIMESTAMP:
        value = getattr(basic, name)
        if value is not None:
            present |= flag
            parts.append(value)
    parts[0] = _PREFIX.pack(_CLASS_BASIC, 0, size, present)
    return b"".join(parts)


CC_ANNOTATION: Final = "x-cc"
TYPE_ANNOTATION: Final = "x-basic-type"
CLUSTER_ID_ANNOTATION: Final = "x-basic-cluster-id"
#: Annotations for headers that are tables or arrays, which application properties cannot be.
COMPLEX_HEADER_PREFIX: Final = "x-header-"

#: Set by the broker, and ignored in messages of clients.
BROKER_ANNOTATION_NAMES: Final = frozenset({"x-exchange", "x-routing-key", "x-stream-offset"})
_RESERVED: Final = frozenset(
    {"CC", "BCC", "x-mqtt-properties", "x-message-id", "x-correlation-id", "x-reply-to-topic"}
)
_PRESERVED_PREFIX: Final = "x-amqp-1.0-"


def header_name(key: Any, value: Any) -> str | None:
    """The name of the header for an annotation, or None."""
    if not isinstance(key, Symbol) or not key.startswith("x-") or len(key) > 255:
        return None
    if (
        key in BROKER_ANNOTATION_NAMES
        or key in (CC_ANNOTATION, TYPE_ANNOTATION, CLUSTER_ID_ANNOTATION)
        or key.startswith("x-opt-rabbitmq-")
    ):
        return None
    if not key.startswith(COMPLEX_HEADER_PREFIX):
        return str(key) if is_application_property(key) else None
    name = str(key[len(COMPLEX_HEADER_PREFIX) :])
    if not isinstance(value, list | dict | Array) or name[:2] == "x-":
        return None
    return name if name and is_application_property(name) else None


def convert_annotations(encoded: bytes, basic: RawBasicProperties, headers: dict[str, Any]) -> bool:
    """Returns whether the conversion is lossless."""
    exact = True
    for key, value in decode_whole(encoded).items():
        if key in BROKER_ANNOTATION_NAMES:
            continue
        if key == CC_ANNOTATION and (keys := _string_list(value)):
            headers["CC"] = keys
            exact &= isinstance(value, list)
        elif key == TYPE_ANNOTATION and (short := _shortstr_or_none(value)):
            basic.type = short
        elif key == CLUSTER_ID_ANNOTATION and (short := _shortstr_or_none(value)):
            basic.cluster_id = short
        elif key in (TRACEPARENT, TRACESTATE) and isinstance(value, str):
            headers[str(key)] = str(value)  # for other protocols; the annotation is preserved
            exact = False
        else:
            name = header_name(key, value)
            exact &= name is not None and _put_header(name, value, headers) and is_lossless(value)
    return exact


def convert_application_properties(encoded: bytes, headers: dict[str, Any]) -> bool:
    """Returns whether the conversion is lossless."""
    exact = True
    for key, value in decode_whole(encoded).items():
        if not isinstance(key, str):
            raise DecodeError(f"the name of an application property is a {type(key).__name__}")
        name = str(key)
        exact &= (
            is_application_property(name)
            and _put_header(name, value, headers)
            and is_lossless(value)
        )
        exact &= name[:2] != "x-" and type(key) is str
    return exact


def is_application_property(name: str) -> bool:
    """Whether a property of this name becomes a header: not if the header has a meaning."""
    return not (name in _RESERVED or name.startswith(_PRESERVED_PREFIX) or len(name.encode()) > 255)


def _put_header(name: str, value: Any, headers: dict[str, Any]) -> bool:
    try:
        headers[name] = to_field_value(value)
    except EncodeError:
        return False
    return True


def _string_list(value: Any) -> list[str] | None:
    found = list(value.values) if isinstance(value, Array) else value
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        return None
    return [str(one) for one in found]


def _shortstr_or_none(value: Any) -> bytes | None:
    if not isinstance(value, str) or len(content := value.encode()) > 255:
        return None
    return bytes((len(content),)) + content
