"""Packets of a server from bytes; what makes no packet of the standard fails the test."""

from __future__ import annotations

from typing import Any

from tests.integration.mqtt.packets import FORMS, MQTT_5, Kind, Packet, Properties, Property


class Cursor:
    """Reads a packet's fields one after the other."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def take(self, size: int) -> bytes:
        taken, self.rest = self.rest[:size], self.rest[size:]
        assert len(taken) == size, "a field is cut short"
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                assert byte or shift == 7, "a number longer than it need be"
                return value

    def binary(self) -> bytes:
        return self.take(self.number(2))

    def string(self) -> str:
        text = self.binary().decode()
        assert "\0" not in text, text
        return text

    def properties(self) -> Properties:
        inner = Cursor(self.take(self.varint()))
        found: list[tuple[Property, Any]] = []
        while inner.rest:
            name = Property(inner.number(1))
            found.append((name, inner.value(FORMS[name])))
        return found

    def value(self, form: int | str) -> Any:
        if isinstance(form, int):
            return self.number(form)
        if form == "pair":
            return self.string(), self.string()
        return {"varint": self.varint, "string": self.string, "binary": self.binary}[form]()


def parse(first: int, body: bytes, size: int, version: int) -> Packet:
    """A server's packet from its first byte and what comes after its length."""
    kind, flags = Kind(first >> 4), first & 15
    assert kind is Kind.PUBLISH or flags == (2 if kind is Kind.PUBREL else 0), hex(first)
    cursor, five = Cursor(body), version == MQTT_5
    known: dict[str, Any] = {}
    if kind is Kind.CONNACK:
        acknowledge = cursor.number(1)
        assert acknowledge in (0, 1), "reserved bits of the acknowledge flags"
        known = {"present": bool(acknowledge), "reasons": (cursor.number(1),)}
        known["properties"] = cursor.properties() if five else ()
    elif kind is Kind.PUBLISH:
        known["topic"] = cursor.string()
        known["number"] = cursor.number(2) if flags & 6 else 0
        known["properties"] = cursor.properties() if five else ()
        known["payload"] = cursor.take(len(cursor.rest))
    elif kind in (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP):
        known["number"] = cursor.number(2)
        known["reasons"] = (cursor.number(1) if cursor.rest and five else 0,)
        known["properties"] = cursor.properties() if cursor.rest and five else ()
    elif kind in (Kind.SUBACK, Kind.UNSUBACK):
        known["number"] = cursor.number(2)
        known["properties"] = cursor.properties() if five else ()
        known["reasons"] = tuple(cursor.take(len(cursor.rest)))
    elif kind in (Kind.DISCONNECT, Kind.AUTH):
        assert five, f"{kind.name} is not for 3.1.1"
        known["reasons"] = (cursor.number(1) if cursor.rest else 0,)
        known["properties"] = cursor.properties() if cursor.rest else ()
    else:
        assert kind is Kind.PINGRESP, f"a server sends no {kind.name}"
    assert not cursor.rest, f"bytes after the end: {cursor.rest!r}"
    return Packet(kind, flags, size, **known)
