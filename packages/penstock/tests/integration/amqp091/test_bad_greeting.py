"""What a client gets that does not even get in, and that nobody else notices."""

from __future__ import annotations

import struct

import pytest
from pika import spec

from tests.integration.amqp091.wire import METHOD, PROTOCOL_HEADER, Wire, method_bytes

pytestmark = pytest.mark.usefixtures("bystander")


@pytest.mark.parametrize(
    "header",
    [
        b"HTTP/1.1",
        b"AMQP\x00\x00\x08\x00",
        b"AMQP\x01\x01\x00\x0a",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x00" * 8,
        b"\x16\x03\x01\x02\x00\x01\x00\x01",  # a TLS hello on a plain port
    ],
    ids=["http", "amqp 0-8", "amqp 0-9", "a whole http request", "zeros", "tls"],
)
def test_a_wrong_protocol_header_is_answered_with_ours(wire: Wire, header: bytes) -> None:
    wire.send(header)

    assert wire.receive_rest() == PROTOCOL_HEADER


@pytest.mark.parametrize(
    "data",
    [
        b"AM",
        PROTOCOL_HEADER,
        PROTOCOL_HEADER + b"\x01",
        PROTOCOL_HEADER + struct.pack(">BHI", METHOD, 0, 100) + b"cut",
    ],
    ids=["half a header", "a header", "half a frame header", "half a frame"],
)
def test_a_client_that_leaves_in_mid_sentence_is_forgotten(wire: Wire, data: bytes) -> None:
    wire.send(data)

    wire.socket.close()


@pytest.mark.parametrize(
    "data",
    [
        method_bytes(1, spec.Channel.Open()),
        method_bytes(0, spec.Connection.TuneOk()),
        method_bytes(0, spec.Connection.Open("/")),
        b"\xff" * 20,
        struct.pack(">BHI", METHOD, 0, 1 << 30),
    ],
    ids=["opens a channel", "tunes", "opens a host", "is no peer at all", "is too loud"],
)
def test_a_stranger_who_does_not_log_in_is_closed(wire: Wire, data: bytes) -> None:
    wire.send(PROTOCOL_HEADER)
    wire.receive_method()

    wire.send(data)

    close = wire.receive_close()
    assert close is None or close.reply_code in (501, 503, 504, 505)
