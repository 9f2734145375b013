"""The properties of MQTT 5.0 (section 2.2.2.2): their types, and the packets that may contain them.

Decoding returns a dictionary or raises `MqttError` as the standard requires: an unknown or
misplaced property is a malformed packet, a duplicate or an invalid value a protocol error. What a
property means together with others, or with the state of a connection, is for the caller to check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from penstock.wire.mqtt import fields
from penstock.wire.mqtt.fields import malformed_packet, read_varint, write_varint
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode

#: The packet type of the properties of a will.
WILL_PROPERTIES: Final = 0


class MqttProperty(IntEnum):
    PAYLOAD_FORMAT = 1
    MESSAGE_EXPIRY = 2
    CONTENT_TYPE = 3
    RESPONSE_TOPIC = 8
    CORRELATION_DATA = 9
    SUBSCRIPTION_IDENTIFIER = 11
    SESSION_EXPIRY = 17
    ASSIGNED_CLIENT_IDENTIFIER = 18
    SERVER_KEEP_ALIVE = 19
    AUTHENTICATION_METHOD = 21
    AUTHENTICATION_DATA = 22
    REQUEST_PROBLEM_INFORMATION = 23
    WILL_DELAY = 24
    REQUEST_RESPONSE_INFORMATION = 25
    RESPONSE_INFORMATION = 26
    SERVER_REFERENCE = 28
    REASON_STRING = 31
    RECEIVE_MAXIMUM = 33
    TOPIC_ALIAS_MAXIMUM = 34
    TOPIC_ALIAS = 35
    MAXIMUM_QOS = 36
    RETAIN_AVAILABLE = 37
    USER_PROPERTY = 38
    MAXIMUM_PACKET_SIZE = 39
    WILDCARD_SUBSCRIPTION_AVAILABLE = 40
    SUBSCRIPTION_IDENTIFIER_AVAILABLE = 41
    SHARED_SUBSCRIPTION_AVAILABLE = 42


#: Values are `int`, `str` or `bytes`; user properties are a list of pairs of `str`, subscription
#: identifiers a list of `int`, because these two may be repeated.
MqttProperties = dict[MqttProperty, Any]


class _PropertyType(NamedTuple):
    read: Callable[[bytes, int], tuple[Any, int]]
    write: Callable[[Any], bytes]


class _PropertyRule(NamedTuple):
    property: MqttProperty
    form: _PropertyType
    kinds: frozenset[int]  #: the packets that may contain it
    legal: Callable[[Any], bool] | None  #: checks the value
    refusal: ReasonCode = ReasonCode.PROTOCOL_ERROR


def _read_pair(data: bytes, pos: int) -> tuple[tuple[str, str], int]:
    name, pos = fields.read_utf8_string(data, pos)
    value, pos = fields.read_utf8_string(data, pos)
    return (name, value), pos


def _write_pair(pair: tuple[str, str]) -> bytes:
    return fields.write_utf8_string(pair[0]) + fields.write_utf8_string(pair[1])


_BYTE: Final = _PropertyType(fields.read_byte, fields.write_byte)
_SHORT: Final = _PropertyType(fields.read_two_byte_integer, fields.write_two_byte_integer)
_LONG: Final = _PropertyType(fields.read_four_byte_integer, fields.write_four_byte_integer)
_VARINT: Final = _PropertyType(read_varint, write_varint)
_TEXT: Final = _PropertyType(fields.read_utf8_string, fields.write_utf8_string)
_BINARY: Final = _PropertyType(fields.read_binary, fields.write_binary)
_PAIR: Final = _PropertyType(_read_pair, _write_pair)


def _is_bit(value: int) -> bool:
    return value < 2


def _is_positive(value: int) -> bool:
    return value > 0


def _is_topic(value: str) -> bool:
    return bool(value) and "+" not in value and "#" not in value


_MESSAGE: Final = frozenset((fields.PUBLISH, WILL_PROPERTIES))
_OPENING: Final = frozenset((fields.CONNECT, fields.CONNACK))
_CONNECT: Final = frozenset((fields.CONNECT,))
_CONNACK: Final = frozenset((fields.CONNACK,))
_PUBLISH: Final = frozenset((fields.PUBLISH,))
_AUTHENTICATION: Final = _OPENING | {fields.AUTH}
_ALL: Final = frozenset(range(16)) - {fields.PINGREQ, fields.PINGRESP}
_ANSWERS: Final = _ALL - _MESSAGE - {fields.CONNECT, fields.SUBSCRIBE, fields.UNSUBSCRIBE}

_P = MqttProperty
_RULES: Final[dict[int, _PropertyRule]] = {
    rule.property: rule
    for rule in (
        _PropertyRule(_P.PAYLOAD_FORMAT, _BYTE, _MESSAGE, _is_bit),
        _PropertyRule(_P.MESSAGE_EXPIRY, _LONG, _MESSAGE, None),
        _PropertyRule(_P.CONTENT_TYPE, _TEXT, _MESSAGE, None),
        _PropertyRule(_P.RESPONSE_TOPIC, _TEXT, _MESSAGE, _is_topic),
        _PropertyRule(_P.CORRELATION_DATA, _BINARY, _MESSAGE, None),
        _PropertyRule(
            _P.SUBSCRIPTION_IDENTIFIER,
            _VARINT,
            _PUBLISH | {fields.SUBSCRIBE},
            _is_positive,
        ),
        _PropertyRule(_P.SESSION_EXPIRY, _LONG, _OPENING | {fields.DISCONNECT}, None),
        _PropertyRule(_P.ASSIGNED_CLIENT_IDENTIFIER, _TEXT, _CONNACK, None),
        _PropertyRule(_P.SERVER_KEEP_ALIVE, _SHORT, _CONNACK, None),
        _PropertyRule(_P.AUTHENTICATION_METHOD, _TEXT, _AUTHENTICATION, None),
        _PropertyRule(_P.AUTHENTICATION_DATA, _BINARY, _AUTHENTICATION, None),
        _PropertyRule(_P.REQUEST_PROBLEM_INFORMATION, _BYTE, _CONNECT, _is_bit),
        _PropertyRule(_P.WILL_DELAY, _LONG, frozenset((WILL_PROPERTIES,)), None),
        _PropertyRule(_P.REQUEST_RESPONSE_INFORMATION, _BYTE, _CONNECT, _is_bit),
        _PropertyRule(_P.RESPONSE_INFORMATION, _TEXT, _CONNACK, None),
        _PropertyRule(_P.SERVER_REFERENCE, _TEXT, _CONNACK | {fields.DISCONNECT}, None),
        _PropertyRule(_P.REASON_STRING, _TEXT, _ANSWERS, None),
        _PropertyRule(_P.RECEIVE_MAXIMUM, _SHORT, _OPENING, _is_positive),
        _PropertyRule(_P.TOPIC_ALIAS_MAXIMUM, _SHORT, _OPENING, None),
        _PropertyRule(
            _P.TOPIC_ALIAS, _SHORT, _PUBLISH, _is_positive, ReasonCode.TOPIC_ALIAS_INVALID
        ),
        _PropertyRule(_P.MAXIMUM_QOS, _BYTE, _CONNACK, _is_bit),
        _PropertyRule(_P.RETAIN_AVAILABLE, _BYTE, _CONNACK, _is_bit),
        _PropertyRule(_P.USER_PROPERTY, _PAIR, _ALL, None),
        _PropertyRule(_P.MAXIMUM_PACKET_SIZE, _LONG, _OPENING, _is_positive),
        _PropertyRule(_P.WILDCARD_SUBSCRIPTION_AVAILABLE, _BYTE, _CONNACK, _is_bit),
        _PropertyRule(_P.SUBSCRIPTION_IDENTIFIER_AVAILABLE, _BYTE, _CONNACK, _is_bit),
        _PropertyRule(_P.SHARED_SUBSCRIPTION_AVAILABLE, _BYTE, _CONNACK, _is_bit),
    )
}


def decode_properties(data: bytes, kind: int) -> MqttProperties:
    """Decode `data` without its length; `kind` is the packet type or `WILL_PROPERTIES`."""
    found: MqttProperties = {}
    pos, end = 0, len(data)
    while pos < end:
        # Identifiers are variable byte integers; all existing ones take one byte.
        rule = _RULES.get(data[pos])
        if rule is None:
            raise malformed_packet(f"unknown property {data[pos]}")
        name, form, kinds, legal, refusal = rule
        if kind not in kinds:
            raise malformed_packet(f"property {name.name} is not allowed in this packet")
        value, pos = form.read(data, pos + 1)
        if legal is not None and not legal(value):
            raise MqttError(refusal, f"invalid value of property {name.name}: {value!r:.80}")
        if name is MqttProperty.USER_PROPERTY or (
            name is MqttProperty.SUBSCRIPTION_IDENTIFIER and kind == fields.PUBLISH
        ):
            found.setdefault(name, []).append(value)
        elif name in found:
            raise MqttError(ReasonCode.PROTOCOL_ERROR, f"duplicate property {name.name}")
        else:
            found[name] = [value] if name is MqttProperty.SUBSCRIPTION_IDENTIFIER else value
    return found


def read_properties(data: bytes, pos: int, kind: int) -> tuple[MqttProperties, int]:
    """Read the properties with their length at `pos`; also returns where they end."""
    length, start = read_varint(data, pos)
    after = start + length
    if after > len(data):
        raise fields.truncated_field("properties", pos)
    return (decode_properties(data[start:after], kind) if length else {}), after


def encode_properties(properties: Mapping[MqttProperty, Any]) -> bytes:
    if not properties:
        return b"\x00"
    parts: list[bytes] = []
    for name, value in properties.items():
        tag, write = bytes((name,)), _RULES[name].form.write
        if name is MqttProperty.USER_PROPERTY or name is MqttProperty.SUBSCRIPTION_IDENTIFIER:
            parts += (tag + write(item) for item in value)
        else:
            parts.append(tag + write(value))
    content = b"".join(parts)
    return write_varint(len(content)) + content
