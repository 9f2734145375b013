"""A publication of MQTT as the message it is in AMQP, and back: RabbitMQ's mapping.

    QoS 0 / 1 and 2      ↔ transient / persistent (that it was 2 is kept as a flag)
    content type         ↔ content type
    correlation data     ↔ correlation id; the header `x-correlation-id` where it is no short text
    response topic       ↔ the header `x-reply-to-topic`, as a routing key
    message expiry       ↔ expiration
    user properties      ↔ headers

AMQP cannot carry everything: a name twice, or in an order, whether a payload is text. Where that
would be lost, the properties also travel as they came, in the header `x-mqtt-properties`, so that
MQTT clients get them unaltered. The other properties of AMQP (priority, message id, timestamp…)
have no counterpart in MQTT.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Any, Final

from penstock.broker.contract import EXPIRES, ONCE, PERSISTENT, Message
from penstock.core.errors import WireSyntaxError
from penstock.core.properties import Properties as Header
from penstock.core.properties import decode_header, encode_header
from penstock.terminals.mqtt.fields import LENGTH_MAX, PUBLISH
from penstock.terminals.mqtt.properties import (
    Properties,
    Property,
    decode_properties,
    encode_properties,
    read_properties,
)
from penstock.terminals.mqtt.reasons import MqttError, Reason
from penstock.terminals.mqtt.topics import to_key, to_topic

ENVELOPE: Final = "x-mqtt-properties"
REPLY_TO: Final = "x-reply-to-topic"
CORRELATION: Final = "x-correlation-id"

_RESERVED: Final = frozenset({ENVELOPE, REPLY_TO, CORRELATION})

#: The short strings of AMQP end here.
SHORT: Final = 255

#: What is the receiver's or the connection's, and not the message's.
_NOT_CARRIED: Final = (Property.TOPIC_ALIAS, Property.SUBSCRIPTION_IDENTIFIER)

#: What a message without properties says of itself: it is transient, or persistent.
TAILS: Final = (b"\x10\x00\x01", b"\x10\x00\x02")

_FLAGS: Final = (0, PERSISTENT, PERSISTENT | ONCE)


def plain_header(qos: int, size: int) -> bytes:
    """The header of a publication without properties."""
    return b"\x00\x3c\x00\x00" + size.to_bytes(8, "big") + TAILS[qos > 0]


def flags_for(qos: int, properties: Properties) -> int:
    expires = EXPIRES if Property.MESSAGE_EXPIRY in properties else 0
    return _FLAGS[qos] | expires


def header_for(properties: Properties, qos: int, size: int) -> bytes:
    """The header of a publication with properties."""
    carried: Properties = {}
    for name, value in properties.items():
        if name not in _NOT_CARRIED:
            carried[name] = value
    header = Header(delivery_mode=2 if qos else 1)
    headers: dict[str, Any] = {}
    lost = Property.PAYLOAD_FORMAT in carried
    content_type = carried.get(Property.CONTENT_TYPE)
    if content_type is not None:
        if len(content_type.encode()) <= SHORT:
            header.content_type = content_type
        else:
            lost = True
    correlation = carried.get(Property.CORRELATION_DATA)
    if correlation is not None:
        text = _short_text(correlation)
        if text is not None:
            header.correlation_id = text
        else:
            headers[CORRELATION] = correlation
    reply_to = carried.get(Property.RESPONSE_TOPIC)
    if reply_to is not None:
        headers[REPLY_TO] = to_key(reply_to.encode()).decode()
    expiry = carried.get(Property.MESSAGE_EXPIRY)
    if expiry is not None:
        header.expiration = str(expiry * 1000)
    for name, value in carried.get(Property.USER_PROPERTY, ()):
        if not _fits(name) or name in headers:
            lost = True
        else:
            headers[name] = value
    if lost or len(carried.get(Property.USER_PROPERTY, ())) > 1:  # tables have no order
        headers[ENVELOPE] = bytearray(encode_properties(carried))
    header.headers = headers or None
    return encode_header(header, size)


def properties_of(message: Message) -> Properties:
    """What an MQTT 5.0 client is told of a message, wherever it came from."""
    if message.header[12:] in TAILS:
        return {}
    try:
        header = decode_header(message.header)
    except WireSyntaxError:  # a table that lies: nobody could read it
        return {}
    headers = header.headers or {}
    found: Properties = {}
    envelope = headers.get(ENVELOPE)
    if isinstance(envelope, bytes | bytearray | str):
        with contextlib.suppress(Exception):
            raw = envelope if not isinstance(envelope, str) else envelope.encode("latin-1")
            found, _ = read_properties(bytes(raw), 0, PUBLISH)
            for name in (*_NOT_CARRIED, Property.MESSAGE_EXPIRY):  # an AMQP client may forge it
                found.pop(name, None)
    if not found or not _agrees(found, header, headers):
        found = {name: found[name] for name in (Property.PAYLOAD_FORMAT,) if name in found}
        _translate(header, headers, found)
    if header.expiration is not None:
        found[Property.MESSAGE_EXPIRY] = _seconds(int(header.expiration))
    return found


def _seconds(milliseconds: int) -> int:
    """Whole seconds, as RabbitMQ has it; but what is left is not nothing."""
    return min(milliseconds // 1000 or bool(milliseconds), 0xFFFFFFFF)


def _agrees(told: Properties, header: Header, headers: dict[str, Any]) -> bool:
    """Whether what travelled beside still says what AMQP says: a relay may have changed that."""
    content_type = told.get(Property.CONTENT_TYPE)
    if header.content_type is not None and header.content_type != content_type:
        return False
    first: dict[str, str] = {}
    for name, value in told.get(Property.USER_PROPERTY, ()):
        first.setdefault(name, value)
    return all(
        first.get(name) == value for name, value in headers.items() if name not in _RESERVED
    ) and all(name in headers for name in first if _fits(name))


def _fits(name: str) -> bool:
    return len(name.encode()) <= SHORT and name not in _RESERVED


def _translate(header: Header, headers: dict[str, Any], found: Properties) -> None:
    if header.content_type is not None and _is_text(header.content_type):
        found[Property.CONTENT_TYPE] = header.content_type
    if header.correlation_id is not None:
        found[Property.CORRELATION_DATA] = header.correlation_id.encode("utf-8", "surrogateescape")
    elif isinstance(correlation := headers.get(CORRELATION), bytes | bytearray | str):
        data = _bytes(correlation)
        if len(data) <= LENGTH_MAX:
            found[Property.CORRELATION_DATA] = data
    reply_to = headers.get(REPLY_TO)
    if isinstance(reply_to, str) and _is_text(reply_to):
        topic = to_topic(reply_to.encode()).decode()
        if topic and "+" not in topic and "#" not in topic:
            found[Property.RESPONSE_TOPIC] = topic
    pairs = [
        (name, text)
        for name, value in headers.items()
        if name not in _RESERVED and _is_text(name) and (text := _text_of(value)) is not None
    ]
    if pairs:
        found[Property.USER_PROPERTY] = pairs


def _text_of(value: Any) -> str | None:
    """A header as text; None for what has no short form."""
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
    """Whether MQTT has it as a string: UTF-8, and no null character."""
    if "\0" in text or len(text) > LENGTH_MAX:
        return False
    try:
        return len(text.encode()) <= LENGTH_MAX
    except UnicodeEncodeError:
        return False


def _short_text(data: bytes) -> str | None:
    if len(data) > SHORT or 0 in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _bytes(value: bytes | bytearray | str) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)


def decoded(properties: bytes) -> Properties:
    """The properties of a client's publication."""
    told = decode_properties(properties, PUBLISH)
    if Property.SUBSCRIPTION_IDENTIFIER in told:
        raise MqttError(Reason.PROTOCOL_ERROR, "subscription identifiers are the server's to tell")
    return told
