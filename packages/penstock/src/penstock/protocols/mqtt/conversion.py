"""Conversion between publications of MQTT and the canonical message, by RabbitMQ's mapping.

    QoS 0 / 1 and 2      ↔ transient / persistent (QoS 2 has a flag)
    content type         ↔ content type
    correlation data     ↔ correlation id; the header `x-correlation-id` if it is not a short text
    response topic       ↔ the header `x-reply-to-topic`, as a routing key
    message expiry       ↔ expiration
    user properties      ↔ headers

AMQP cannot represent repeated names, their order, or the payload format indicator. Where these
would be lost, the encoded properties are preserved in the header `x-mqtt-properties` for MQTT
clients. Other properties of AMQP (priority, message id, timestamp…) have no counterpart in MQTT.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Any, Final

from penstock.broker.contract import EXACTLY_ONCE, EXPIRES, PERSISTENT, SENDER_SELECTED, Message
from penstock.core.basic_properties import (
    MINIMAL_HEADER_TAILS,
    SHORTSTR_MAX,
    decode_header,
    encode_header,
)
from penstock.core.basic_properties import BasicProperties as Header
from penstock.core.errors import WireSyntaxError
from penstock.wire.mqtt.fields import PUBLISH, STRING_MAX_BYTES
from penstock.wire.mqtt.properties import (
    MqttProperties,
    MqttProperty,
    decode_properties,
    encode_properties,
    read_properties,
)
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode
from penstock.wire.mqtt.topics import routing_key_to_topic, topic_to_routing_key

PROPERTIES_HEADER: Final = "x-mqtt-properties"
REPLY_TO_HEADER: Final = "x-reply-to-topic"
CORRELATION_HEADER: Final = "x-correlation-id"

_RESERVED: Final = frozenset({PROPERTIES_HEADER, REPLY_TO_HEADER, CORRELATION_HEADER})

#: Properties of the connection or of the subscription.
_NOT_FORWARDED: Final = (MqttProperty.TOPIC_ALIAS, MqttProperty.SUBSCRIPTION_IDENTIFIER)

#: User properties that delay a message.
_DELIVERY: Final = "x-opt-delivery-"
DELAY_PROPERTY: Final = "x-opt-delivery-delay"
#: `$delayed/SECONDS/TOPIC` delays a message of a client that has no user properties.
DELAYED_TOPIC_PREFIX: Final = b"$delayed/"

_FLAGS: Final = (0, PERSISTENT, PERSISTENT | EXACTLY_ONCE)


def message_flags(qos: int, properties: MqttProperties) -> int:
    if not properties:
        return _FLAGS[qos]
    flags = EXPIRES if MqttProperty.MESSAGE_EXPIRY in properties else 0
    pairs = properties.get(MqttProperty.USER_PROPERTY, ())
    if any(name.startswith(_DELIVERY) for name, _ in pairs):
        flags |= SENDER_SELECTED  # the exchange has to read the headers
    return _FLAGS[qos] | flags


def encode_content_header(properties: MqttProperties, qos: int, size: int) -> bytes:
    carried: MqttProperties = {
        name: value for name, value in properties.items() if name not in _NOT_FORWARDED
    }
    header = Header(delivery_mode=2 if qos else 1)
    headers: dict[str, Any] = {}
    lost = MqttProperty.PAYLOAD_FORMAT in carried
    content_type = carried.get(MqttProperty.CONTENT_TYPE)
    if content_type is not None:
        if len(content_type.encode()) <= SHORTSTR_MAX:
            header.content_type = content_type
        else:
            lost = True
    correlation = carried.get(MqttProperty.CORRELATION_DATA)
    if correlation is not None:
        text = _short_text(correlation)
        if text is not None:
            header.correlation_id = text
        else:
            headers[CORRELATION_HEADER] = correlation
    reply_to = carried.get(MqttProperty.RESPONSE_TOPIC)
    if reply_to is not None:
        headers[REPLY_TO_HEADER] = topic_to_routing_key(reply_to.encode()).decode()
    expiry = carried.get(MqttProperty.MESSAGE_EXPIRY)
    if expiry is not None:
        header.expiration = str(expiry * 1000)
    for name, value in carried.get(MqttProperty.USER_PROPERTY, ()):
        if not _is_valid_header_name(name) or name in headers:
            lost = True
        else:
            headers[name] = value
    if lost or len(carried.get(MqttProperty.USER_PROPERTY, ())) > 1:  # tables have no order
        headers[PROPERTIES_HEADER] = bytearray(encode_properties(carried))
    header.headers = headers or None
    return encode_header(header, size)


def message_properties(message: Message) -> MqttProperties:
    """The properties of a message of any protocol, for an MQTT 5.0 client."""
    if message.header[12:] in MINIMAL_HEADER_TAILS:
        return {}
    try:
        header = decode_header(message.header)
    except WireSyntaxError:  # an invalid table
        return {}
    headers = header.headers or {}
    found: MqttProperties = {}
    envelope = headers.get(PROPERTIES_HEADER)
    if isinstance(envelope, bytes | bytearray | str):
        with contextlib.suppress(Exception):
            raw = envelope if not isinstance(envelope, str) else envelope.encode("latin-1")
            found, _ = read_properties(bytes(raw), 0, PUBLISH)
            for name in (*_NOT_FORWARDED, MqttProperty.MESSAGE_EXPIRY):  # AMQP clients can set it
                found.pop(name, None)
    if not found or not _is_unchanged(found, header, headers):
        found = {name: found[name] for name in (MqttProperty.PAYLOAD_FORMAT,) if name in found}
        _add_amqp_properties(header, headers, found)
    if header.expiration is not None:
        found[MqttProperty.MESSAGE_EXPIRY] = _seconds(int(header.expiration))
    return found


def _seconds(milliseconds: int) -> int:
    """Whole seconds as in RabbitMQ, but at least one if there is any time left."""
    return min(milliseconds // 1000 or bool(milliseconds), 0xFFFFFFFF)


def _is_unchanged(stored: MqttProperties, header: Header, headers: dict[str, Any]) -> bool:
    """Whether the preserved properties agree with the header, which AMQP clients may change."""
    content_type = stored.get(MqttProperty.CONTENT_TYPE)
    if header.content_type is not None and header.content_type != content_type:
        return False
    first: dict[str, str] = {}
    for name, value in stored.get(MqttProperty.USER_PROPERTY, ()):
        first.setdefault(name, value)
    return all(
        first.get(name) == value for name, value in headers.items() if name not in _RESERVED
    ) and all(name in headers for name in first if _is_valid_header_name(name))


def _is_valid_header_name(name: str) -> bool:
    return len(name.encode()) <= SHORTSTR_MAX and name not in _RESERVED


def _add_amqp_properties(header: Header, headers: dict[str, Any], found: MqttProperties) -> None:
    if header.content_type is not None and _is_text(header.content_type):
        found[MqttProperty.CONTENT_TYPE] = header.content_type
    if header.correlation_id is not None:
        found[MqttProperty.CORRELATION_DATA] = header.correlation_id.encode(
            "utf-8", "surrogateescape"
        )
    elif isinstance(correlation := headers.get(CORRELATION_HEADER), bytes | bytearray | str):
        data = _bytes(correlation)
        if len(data) <= STRING_MAX_BYTES:
            found[MqttProperty.CORRELATION_DATA] = data
    reply_to = headers.get(REPLY_TO_HEADER)
    if isinstance(reply_to, str) and _is_text(reply_to):
        topic = routing_key_to_topic(reply_to.encode()).decode()
        if topic and "+" not in topic and "#" not in topic:
            found[MqttProperty.RESPONSE_TOPIC] = topic
    pairs = [
        (name, text)
        for name, value in headers.items()
        if name not in _RESERVED and _is_text(name) and (text := _text_of(value)) is not None
    ]
    if pairs:
        found[MqttProperty.USER_PROPERTY] = pairs


def _text_of(value: Any) -> str | None:
    """A header as text, or None."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            return value if _is_text(value) else None
        case datetime():
            return str(int(value.timestamp()))
    return None


def _is_text(text: str) -> bool:
    """Whether it is a string of MQTT: UTF-8 without a null character."""
    if "\0" in text or len(text) > STRING_MAX_BYTES:
        return False
    try:
        return len(text.encode()) <= STRING_MAX_BYTES
    except UnicodeEncodeError:
        return False


def _short_text(data: bytes) -> str | None:
    if len(data) > SHORTSTR_MAX or 0 in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _bytes(value: bytes | bytearray | str) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)


def split_delayed_topic(topic: bytes, properties: MqttProperties) -> tuple[bytes, MqttProperties]:
    """The topic behind `$delayed/SECONDS/`, and the properties with the delay."""
    seconds, _, rest = topic.removeprefix(DELAYED_TOPIC_PREFIX).partition(b"/")
    if not seconds.isdigit() or len(seconds) > 10 or not rest:
        raise MqttError(
            ReasonCode.TOPIC_NAME_INVALID,
            f"{topic[:80].decode('utf-8', 'replace')!r}: $delayed/SECONDS/TOPIC is expected",
        )
    if not int(seconds):
        return rest, properties
    pairs = properties.get(MqttProperty.USER_PROPERTY, [])
    delay = (DELAY_PROPERTY, str(int(seconds) * 1000))
    return rest, {**properties, MqttProperty.USER_PROPERTY: [*pairs, delay]}


def decode_publish_properties(properties: bytes) -> MqttProperties:
    decoded = decode_properties(properties, PUBLISH)
    if MqttProperty.SUBSCRIPTION_IDENTIFIER in decoded:
        raise MqttError(
            ReasonCode.PROTOCOL_ERROR, "a client must not send subscription identifiers"
        )
    return decoded
