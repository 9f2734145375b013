"""Properties and field tables come out as they went in, whatever types they hold."""

from __future__ import annotations

import struct

import pika
import pytest
from pika import spec
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.wire import (
    BODY,
    HEADER,
    Wire,
    frame_bytes,
    method_bytes,
)


def long_string(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


def table(*fields: bytes) -> bytes:
    return long_string(b"".join(fields))


def field(name: bytes, kind: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + kind + value


#: One field of every type, in RabbitMQ's reading of their codes.
FIELDS = {
    "boolean": field(b"v", b"t", b"\x01"),
    "signed byte": field(b"v", b"b", b"\xfe"),
    "unsigned byte": field(b"v", b"B", b"\xfe"),
    "signed short": field(b"v", b"s", struct.pack(">h", -2)),
    "unsigned short": field(b"v", b"u", struct.pack(">H", 65534)),
    "signed int": field(b"v", b"I", struct.pack(">i", -2)),
    "unsigned int": field(b"v", b"i", struct.pack(">I", 1 << 31)),
    "signed long": field(b"v", b"l", struct.pack(">q", -2)),
    "float": field(b"v", b"f", struct.pack(">f", 0.5)),
    "double": field(b"v", b"d", struct.pack(">d", 0.1)),
    "decimal": field(b"v", b"D", b"\x02" + struct.pack(">i", 314)),
    "text": field(b"v", b"S", long_string("tëxt".encode())),
    "bytes": field(b"v", b"x", long_string(b"\x00\xff")),
    "array": field(b"v", b"A", long_string(b"t\x01" + b"S" + long_string(b"a") + b"V")),
    "empty array": field(b"v", b"A", long_string(b"")),
    "timestamp": field(b"v", b"T", struct.pack(">Q", 1_700_000_000)),
    "table": field(b"v", b"F", table(field(b"in", b"F", table(field(b"er", b"V", b""))))),
    "void": field(b"v", b"V", b""),
}


def published_headers(wire: Wire, queue: str, headers: bytes) -> bytes:
    """Publish a message with these headers and return the table that comes back."""
    header = struct.pack(">HHQH", 60, 0, 1, 1 << 13) + headers
    wire.send(
        method_bytes(1, spec.Basic.Publish(routing_key=queue))
        + frame_bytes(HEADER, 1, header)
        + frame_bytes(BODY, 1, b"x")
    )
    wire.send(method_bytes(1, spec.Basic.Get(queue=queue, no_ack=True)))
    received = wire.receive_until(frame_bytes(BODY, 1, b"x"))
    start = received.index(struct.pack(">HHQH", 60, 0, 1, 1 << 13))
    size = struct.unpack_from(">I", received, start + 14)[0]
    return received[start + 14 : start + 18 + size]


@pytest.mark.parametrize("kind", FIELDS)
def test_a_field_of_every_type_comes_back_as_it_was(open_wire: Wire, name: str, kind: str) -> None:
    open_wire.call(1, spec.Queue.Declare(queue=name, exclusive=True))

    assert published_headers(open_wire, name, table(FIELDS[kind])) == table(FIELDS[kind])


def test_all_types_in_one_table(open_wire: Wire, name: str) -> None:
    open_wire.call(1, spec.Queue.Declare(queue=name, exclusive=True))
    sent = table(
        *(bytes([len(kind)]) + kind.encode() + content[2:] for kind, content in FIELDS.items())
    )

    assert published_headers(open_wire, name, sent) == sent


def test_every_property_comes_back(channel: BlockingChannel, queue: str) -> None:
    properties = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"a": 1},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
        cluster_id="k",
    )
    channel.basic_publish("", queue, b"body", properties)

    assert channel.basic_get(queue, auto_ack=True)[1] == properties


def test_no_properties_come_back_as_none(channel: BlockingChannel, queue: str) -> None:
    channel.basic_publish("", queue, b"body")

    assert channel.basic_get(queue, auto_ack=True)[1] == pika.BasicProperties()


@pytest.mark.parametrize("kind", FIELDS)
def test_arguments_of_a_declaration_may_be_of_every_type(
    open_wire: Wire, name: str, kind: str
) -> None:
    declare = spec.Queue.Declare(queue=name, exclusive=True)
    plain = method_bytes(1, declare)[7:-1]
    payload = plain[:-4] + table(FIELDS[kind])

    open_wire.send(frame_bytes(1, 1, payload))

    assert open_wire.receive_method().NAME == "Queue.DeclareOk"
