"""The few MQTT packets a load generator needs, as bytes.

Written from the standards and apart from the broker's own codec, so that a misreading of one does
not hide in the other. Only what the scenarios send is here; nothing is validated.
"""

from __future__ import annotations

import struct
from typing import Final

#: Protocol levels.
V3: Final = 4  #: MQTT 3.1.1
V5: Final = 5

CONNECT: Final = 0x10
CONNACK: Final = 0x20
PUBLISH: Final = 0x30
PUBACK: Final = 0x40
SUBSCRIBE: Final = 0x82
SUBACK: Final = 0x90
PINGREQ: Final = b"\xc0\x00"
PINGRESP: Final = b"\xd0\x00"

#: The property of CONNACK that says how many messages may go unanswered.
RECEIVE_MAXIMUM: Final = 0x21
#: The sizes of the other properties a broker may put before it in CONNACK.
PROPERTY_BYTES: Final = {
    0x11: 4,
    0x13: 2,
    0x22: 2,
    0x24: 1,
    0x25: 1,
    0x27: 4,
    0x28: 1,
    0x29: 1,
    0x2A: 1,
}

_CLEAN: Final = 0x02
_USER_AND_PASSWORD: Final = 0xC0


def varint(value: int) -> bytes:
    octets = bytearray()
    while value > 127:
        octets.append(value & 127 | 128)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def text(value: str) -> bytes:
    octets = value.encode()
    return struct.pack(">H", len(octets)) + octets


def packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + varint(len(body)) + body


def no_properties(version: int) -> bytes:
    """Where 5.0 has properties, there is at least their length."""
    return b"\x00" if version == V5 else b""


def connect(version: int, client_id: str, keep_alive: int, user: str, password: str) -> bytes:
    flags = _CLEAN | _USER_AND_PASSWORD
    opening = text("MQTT") + struct.pack(">BBH", version, flags, keep_alive)
    payload = text(client_id) + text(user) + text(password)
    return packet(CONNECT, opening + no_properties(version) + payload)


def subscribe(version: int, number: int, topic_filter: str, qos: int) -> bytes:
    body = struct.pack(">H", number) + no_properties(version)
    return packet(SUBSCRIBE, body + text(topic_filter) + bytes((qos,)))


def publish(version: int, topic: str, number: int, payload: bytes) -> bytes:
    """At QoS 1 when there is a packet number, at QoS 0 without."""
    variable = text(topic) + (struct.pack(">H", number) if number else b"")
    first = PUBLISH | (2 if number else 0)
    return packet(first, variable + no_properties(version) + payload)


def puback(number: int) -> bytes:
    return struct.pack(">BBH", PUBACK, 2, number)
