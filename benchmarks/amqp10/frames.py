"""The frames of the generator: what opens a link, and transfers as rows of one table of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.amqp10.scenarios import Scenario
from benchmarks.harness.rows import Column, Octets, Sequences, Template, body, body_columns
from penstock.wire.amqp10.codec import encode
from penstock.wire.amqp10.message import (
    APPLICATION_PROPERTIES,
    DATA,
    Amqp10Header,
    Amqp10Properties,
    encode_header_section,
    encode_properties_section,
    section_prefix,
)
from penstock.wire.amqp10.values import Described, UByte, UInt, ULong

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, CLOSE = 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x18
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"

SETTLED, UNSETTLED = 1, 0


def frame(code: int, *fields: Any, kind: int = 0) -> bytes:
    return raw(encode(Described(ULong(code), list(fields))), kind)


def raw(content: bytes, kind: int = 0) -> bytes:
    return (len(content) + 8).to_bytes(4, "big") + bytes((2, kind, 0, 0)) + content


def attach(name: str, receives: bool, address: str, settled: bool) -> bytes:
    node = Described(ULong(0x29 if not receives else 0x28), [address])
    nothing = Described(ULong(0x28 if not receives else 0x29), [])
    ends = (node, nothing) if receives else (nothing, node)
    mode = UByte(SETTLED if settled else UNSETTLED)
    return frame(ATTACH, name, UInt(0), receives, mode, UByte(0), *ends, None, False, UInt(0))


def credit(received: int, more: int) -> bytes:
    """Of a receiver that has taken so many and will take so many more."""
    return frame(
        *(FLOW, UInt(received), UInt(1 << 20), UInt(0), UInt(1 << 20)),
        *(UInt(0), UInt(received), UInt(more)),
    )


def accepted(first: int, last: int) -> bytes:
    return frame(DISPOSITION, True, UInt(first), UInt(last), True, Described(ULong(0x24), []))


def transfers(scenario: Scenario) -> Template:
    """Transfers that differ by their delivery's number, its tag and the numbers in the body."""
    message = encode_header_section(Amqp10Header(durable=scenario.durable))
    if scenario.properties:
        message += encode_properties_section(
            Amqp10Properties(
                message_id="bench-00000001",
                correlation_id="bench-00000000",
                content_type="application/octet-stream",
                subject="bench",
            )
        )
        properties = {"station": "north", "depth": UInt(3), "valid": True}
        message += section_prefix(APPLICATION_PROPERTIES) + encode(properties)
    size = scenario.body
    length = bytes((0xA0, size)) if size < 256 else b"\xb0" + size.to_bytes(4, "big")
    message += section_prefix(DATA) + length
    settled = b"\x41" if scenario.settled else b"\x42"
    fields = b"\x43" + b"\x70\0\0\0\0" + b"\xa0\x04\0\0\0\0" + b"\x43" + settled
    head = b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, 5))
    octets = raw(head + fields + message + body(size))
    at = 8 + len(head) + 1
    start = len(octets) - size
    columns = (
        Column(at + 1, 4, _four),
        Column(at + 7, 4, _four),
        *body_columns(start, size),
    )
    return Template(octets, columns, start)


def _four(sequences: Sequences) -> Octets:
    return sequences.astype(">u4").view(np.uint8).reshape(-1, 4)
