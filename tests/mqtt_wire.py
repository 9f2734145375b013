"""The client's half of MQTT's wire format: what a broker does not write, and what it does not read.

For tests and benchmarks that play a client byte by byte. The packets both sides send (PUBLISH,
acknowledgements, DISCONNECT, AUTH) are in `protocols/mqtt/encode.py`. Nothing here is lenient: a
packet from a broker that has a byte too many fails the test that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from penstock.wire.mqtt.fields import (
    CONNACK,
    PUBLISH,
    SUBACK,
    UNSUBACK,
    read_binary,
    read_byte,
    read_packet_identifier,
    read_varint,
    write_binary,
    write_two_byte_integer,
    write_utf8_string,
    write_varint,
)
from penstock.wire.mqtt.packets import (
    CLEAN_START_FLAG,
    PASSWORD_FLAG,
    USERNAME_FLAG,
    WILL_FLAG,
    WILL_RETAIN_FLAG,
    ConnectPacket,
    SubscriptionRequest,
)
from penstock.wire.mqtt.properties import MqttProperties, encode_properties, read_properties

PINGREQ = b"\xc0\x00"
#: DISCONNECT before MQTT 5.0, and the shortest since.
DISCONNECT = b"\xe0\x00"


def packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + write_varint(len(body)) + body


def connect_body(connect: ConnectPacket) -> bytes:
    will = connect.will
    flags = CLEAN_START_FLAG if connect.clean_start else 0
    payload = [write_utf8_string(connect.client_id)]
    if will is not None:
        flags |= WILL_FLAG | will.qos << 3 | (WILL_RETAIN_FLAG if will.retain else 0)
        if connect.version == 5:
            payload.append(encode_properties(will.properties))
        payload += (write_utf8_string(will.topic), write_binary(will.payload))
    if connect.username is not None:
        flags |= USERNAME_FLAG
        payload.append(write_utf8_string(connect.username))
    if connect.password is not None:
        flags |= PASSWORD_FLAG
        payload.append(write_binary(connect.password))
    name = write_utf8_string("MQIsdp" if connect.version == 3 else "MQTT")
    head = name + bytes((connect.version, flags)) + write_two_byte_integer(connect.keep_alive)
    if connect.version == 5:
        head += encode_properties(connect.properties)
    return head + b"".join(payload)


def connect(wanted: ConnectPacket) -> bytes:
    return packet(0x10, connect_body(wanted))


def subscribe(
    version: int,
    number: int,
    subscriptions: Iterable[SubscriptionRequest],
    properties: MqttProperties | None = None,
) -> bytes:
    body = _opening(version, number, properties)
    for one in subscriptions:
        options = one.qos | one.no_local << 2 | one.retain_as_published << 3
        body += write_utf8_string(one.filter) + bytes((options | one.retain_handling << 4,))
    return packet(0x82, body)


def unsubscribe(
    version: int, number: int, filters: Iterable[str], properties: MqttProperties | None = None
) -> bytes:
    return packet(
        0xA2, _opening(version, number, properties) + b"".join(map(write_utf8_string, filters))
    )


def _opening(version: int, number: int, properties: MqttProperties | None) -> bytes:
    opening = write_two_byte_integer(number)
    return opening + encode_properties(properties or {}) if version == 5 else opening


# Reading what a broker sent.


@dataclass(frozen=True, slots=True)
class Published:
    """A PUBLISH as a subscriber sees it."""

    topic: bytes
    payload: bytes
    qos: int = 0
    number: int = 0
    retain: bool = False
    duplicate: bool = False
    properties: MqttProperties = field(default_factory=dict)


def split(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """The whole packets in `data`, each its first byte and its body, and what is left over."""
    found: list[tuple[int, bytes]] = []
    while (extent := _extent(data)) is not None:
        start, after = extent
        found.append((data[0], data[start:after]))
        data = data[after:]
    return found, data


def _extent(data: bytes) -> tuple[int, int] | None:
    digits = next((n for n, byte in enumerate(data[1:5], 1) if byte < 128), 0)
    if not digits:
        return None
    size, start = read_varint(data, 1)
    return (start, start + size) if start + size <= len(data) else None


def decode_connack(body: bytes, version: int) -> tuple[bool, int, MqttProperties]:
    """Whether a session was there, the reason (before 5.0: the return code), and properties."""
    assert body[0] < 2
    properties, pos = read_properties(body, 2, CONNACK) if version == 5 else ({}, 2)
    assert pos == len(body)
    return body[0] == 1, body[1], properties


def decode_suback(body: bytes, version: int) -> tuple[int, MqttProperties, list[int]]:
    return _decode_answers(body, version, SUBACK)


def decode_unsuback(body: bytes, version: int) -> tuple[int, MqttProperties, list[int]]:
    return _decode_answers(body, version, UNSUBACK)


def _decode_answers(body: bytes, version: int, kind: int) -> tuple[int, MqttProperties, list[int]]:
    number, pos = read_packet_identifier(body, 0)
    properties, pos = read_properties(body, pos, kind) if version == 5 else ({}, pos)
    return number, properties, list(body[pos:])


def decode_acknowledgement(kind: int, body: bytes) -> tuple[int, int, MqttProperties]:
    """Number, reason and properties, as far as they are there."""
    number, pos = read_packet_identifier(body, 0)
    reason, pos = read_byte(body, pos) if pos < len(body) else (0, pos)
    properties, pos = read_properties(body, pos, kind) if pos < len(body) else ({}, pos)
    assert pos == len(body)
    return number, reason, properties


def decode_publish(first: int, body: bytes, version: int) -> Published:
    topic, pos = read_binary(body, 0)
    qos = first >> 1 & 3
    number, pos = read_packet_identifier(body, pos) if qos else (0, pos)
    properties, pos = read_properties(body, pos, PUBLISH) if version == 5 else ({}, pos)
    retain, duplicate = first & 1 == 1, first & 8 == 8
    return Published(topic, body[pos:], qos, number, retain, duplicate, properties)


def publishes(data: bytes, version: int) -> Iterator[Published]:
    """Every PUBLISH in what a broker sent."""
    for first, body in split(data)[0]:
        if first >> 4 == PUBLISH:
            yield decode_publish(first, body, version)
