"""Packets of a client as bytes: what it may send and, every field being open, what it must not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.integration.mqtt.packets import FORMS, MQTT_5, Kind, Properties, Will


def varint(value: int) -> bytes:
    out = bytearray()
    while True:
        value, low = divmod(value, 128)
        out.append(low | 128 if value else low)
        if not value:
            return bytes(out)


def binary(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def string(text: str | bytes) -> bytes:
    """Text; bytes where a test wants what is not UTF-8."""
    return binary(text if isinstance(text, bytes) else text.encode())


def property_bytes(properties: Properties) -> bytes:
    out = b""
    for name, value in properties:
        form = FORMS[name]
        out += bytes([name])
        if isinstance(form, int):
            out += int(value).to_bytes(form, "big")
        elif form == "varint":
            out += varint(value)
        elif form == "pair":
            out += string(value[0]) + string(value[1])
        else:
            out += string(value)
    return varint(len(out)) + out


def packet_bytes(kind: int, body: bytes = b"", flags: int = 0) -> bytes:
    return bytes([kind << 4 | flags]) + varint(len(body)) + body


def connect_bytes(
    client_id: str | bytes,
    *,
    version: int = MQTT_5,
    clean: bool = True,
    keep_alive: int = 0,
    will: Will | None = None,
    user: str | bytes | None = None,
    password: bytes | None = None,
    properties: Properties = (),
    name: str = "MQTT",
    flags: int | None = None,
) -> bytes:
    """A CONNECT; `flags` sets the connect flags to something the fields do not mean."""
    meant = clean << 1 | (user is not None) << 7 | (password is not None) << 6
    five = version == MQTT_5
    payload = string(client_id)
    if will is not None:
        meant |= 4 | will.qos << 3 | will.retain << 5
        payload += property_bytes(will.properties) if five else b""
        payload += string(will.topic) + binary(will.payload)
    payload += b"" if user is None else string(user)
    payload += b"" if password is None else binary(password)
    header = string(name) + bytes([version, meant if flags is None else flags])
    header += keep_alive.to_bytes(2, "big") + (property_bytes(properties) if five else b"")
    return packet_bytes(Kind.CONNECT, header + payload)


def publish_bytes(
    topic: str | bytes,
    payload: bytes = b"",
    *,
    version: int = MQTT_5,
    qos: int = 0,
    number: int | None = None,
    retain: bool = False,
    dup: bool = False,
    properties: Properties = (),
) -> bytes:
    body = string(topic) + (b"" if number is None else number.to_bytes(2, "big"))
    body += (property_bytes(properties) if version == MQTT_5 else b"") + payload
    return packet_bytes(Kind.PUBLISH, body, dup << 3 | qos << 1 | retain)


def subscribe_bytes(
    number: int,
    filters: Iterable[tuple[str | bytes, int]],
    *,
    version: int = MQTT_5,
    properties: Properties = (),
    flags: int = 2,
) -> bytes:
    """A SUBSCRIBE of filters, each with its byte of options."""
    body = number.to_bytes(2, "big") + (property_bytes(properties) if version == MQTT_5 else b"")
    body += b"".join(string(one) + bytes([options]) for one, options in filters)
    return packet_bytes(Kind.SUBSCRIBE, body, flags)


def unsubscribe_bytes(
    number: int,
    filters: Iterable[str | bytes],
    *,
    version: int = MQTT_5,
    properties: Properties = (),
    flags: int = 2,
) -> bytes:
    body = number.to_bytes(2, "big") + (property_bytes(properties) if version == MQTT_5 else b"")
    return packet_bytes(Kind.UNSUBSCRIBE, body + b"".join(map(string, filters)), flags)


def answer_bytes(
    kind: Kind, number: int, reason: int | None = None, properties: Properties | None = None
) -> bytes:
    """A PUBACK, PUBREC, PUBREL or PUBCOMP; what is None is left out."""
    body = number.to_bytes(2, "big") + (b"" if reason is None else bytes([reason]))
    body += b"" if properties is None else property_bytes(properties)
    return packet_bytes(kind, body, 2 if kind is Kind.PUBREL else 0)


def ending_bytes(
    kind: Kind, reason: int | None = None, properties: Properties | None = None
) -> bytes:
    """A DISCONNECT or an AUTH; what is None is left out."""
    body = b"" if reason is None else bytes([reason])
    return packet_bytes(kind, body + (b"" if properties is None else property_bytes(properties)))


PINGREQ: Final = packet_bytes(Kind.PINGREQ)
