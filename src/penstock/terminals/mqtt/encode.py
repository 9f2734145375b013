"""The packets a broker sends, as bytes.

`publish` is the hot path; the others go out once in a while. `version` is the one that CONNECT
settled: what an older one has no field for (properties, most reasons) is left out. Nothing here
asks whether a packet is allowed now, or fits what the client said it can take.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import Final

from penstock.terminals.mqtt.fields import (
    AUTH,
    CONNACK,
    DISCONNECT,
    PUBREL,
    SUBACK,
    UNSUBACK,
    VARINT_MAX,
    varint,
)
from penstock.terminals.mqtt.properties import Properties, encode_properties
from penstock.terminals.mqtt.reasons import CONNACK_3, MqttError, Reason

PINGRESP: Final = b"\xd0\x00"

_pack_short = Struct(">H").pack
_pack_small = Struct(">BBH").pack
_pack_medium = Struct(">BBBH").pack
_pack_acknowledgement = Struct(">BBH").pack


def publish(
    first: int, topic: bytes, number: int, properties: bytes | None, payload: bytes
) -> bytes:
    """A PUBLISH; see `publish_start`."""
    return publish_start(first, topic, number, properties, len(payload)) + payload


def publish_start(
    first: int, topic: bytes, number: int, properties: bytes | None, size: int
) -> bytes:
    """A PUBLISH up to its payload of `size` bytes.

    `first` is 0x30 with its flags; `number` is written if they say QoS 1 or 2; `properties` come
    with their length, and are None for versions that have none.
    """
    length = len(topic)
    rest = length + size + 2
    if properties is None:
        properties = b""
    else:
        rest += len(properties)
    if first & 6:
        properties = _pack_short(number) + properties
        rest += 2
    try:
        if rest < 128:
            return _pack_small(first, rest, length) + topic + properties
        if rest < 16_384:
            return _pack_medium(first, rest & 127 | 128, rest >> 7, length) + topic + properties
        if rest > VARINT_MAX:
            raise MqttError(Reason.PACKET_TOO_LARGE, f"{rest} bytes do not fit in a packet")
        return bytes((first,)) + varint(rest) + _pack_short(length) + topic + properties
    except StructError:
        raise MqttError(Reason.TOPIC_NAME_INVALID, f"topic of {length} bytes") from None


def acknowledgement(
    kind: int,
    number: int,
    reason: int = 0,
    properties: Properties | None = None,
    version: int = 4,
) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""
    first = kind << 4 | (2 if kind == PUBREL else 0)
    if version < 5 or not (reason or properties):
        return _pack_acknowledgement(first, 2, number)
    body = _pack_short(number) + bytes((reason,))
    if properties:
        body += encode_properties(properties)
    return bytes((first,)) + varint(len(body)) + body


def connack(
    version: int, present: bool, reason: Reason, properties: Properties | None = None
) -> bytes:
    """`present`: a session was resumed, which 3.1 does not tell and a refusal cannot."""
    flags = int(present and not reason and version > 3)
    if version < 5:
        # What those versions have no word for is "unavailable", the least wrong of their five.
        return bytes((CONNACK << 4, 2, flags, CONNACK_3.get(reason, 3)))
    return _packet(CONNACK, bytes((flags, reason)) + encode_properties(properties or {}))


def suback(
    version: int, number: int, reasons: Iterable[int], properties: Properties | None = None
) -> bytes:
    if version < 5:
        # Older versions know one way to fail.
        answers = bytes(reason if reason < 3 else 0x80 for reason in reasons)
        return _packet(SUBACK, _pack_short(number) + answers)
    return _answers(SUBACK, number, reasons, properties)


def unsuback(
    version: int, number: int, reasons: Iterable[int], properties: Properties | None = None
) -> bytes:
    if version < 5:
        return _packet(UNSUBACK, _pack_short(number))
    return _answers(UNSUBACK, number, reasons, properties)


def disconnect(reason: int, properties: Properties | None = None) -> bytes:
    """Only of MQTT 5.0: before, a server had nothing to say on leaving."""
    return _packet(DISCONNECT, _statement(reason, properties))


def auth(reason: int, properties: Properties | None = None) -> bytes:
    return _packet(AUTH, _statement(reason, properties))


def _packet(kind: int, body: bytes) -> bytes:
    return bytes((kind << 4,)) + varint(len(body)) + body


def _answers(
    kind: int, number: int, reasons: Iterable[int], properties: Properties | None
) -> bytes:
    opening = _pack_short(number) + encode_properties(properties or {})
    return _packet(kind, opening + bytes(reasons))


def _statement(reason: int, properties: Properties | None) -> bytes:
    if properties:
        return bytes((reason,)) + encode_properties(properties)
    return bytes((reason,)) if reason else b""
