"""The end of a connection: what was said last is heard, whatever is still on its way.

Of Penstock alone: RabbitMQ 3.10 resets a client that goes on writing after its close.
"""

from __future__ import annotations

import socket

import pytest
from pika import spec

from tests.integration.amqp091.wire import (
    PROTOCOL_HEADER,
    Wire,
    frame_bytes,
    message_bytes,
    method_bytes,
)
from tests.peers import Penstock

CLOSE = method_bytes(0, spec.Connection.Close(200, "bye", 0, 0))
PUBLISH = message_bytes(1, bytes(1000), routing_key="nowhere")


@pytest.fixture
def mine(penstock: Penstock) -> Wire:
    wire = Wire(penstock.port)
    wire.negotiate(capabilities={"authentication_failure_close": True})
    wire.open_channel()
    return wire


def ended_in_order(wire: Wire) -> bool:
    """The broker has nothing more to say, and did not reset the connection."""
    wire.socket.shutdown(socket.SHUT_WR)
    return wire.socket.recv(1) == b""


def test_a_client_that_goes_on_writing_hears_the_close_ok(mine: Wire) -> None:
    mine.send(CLOSE + PUBLISH * 100)

    assert mine.receive_method().NAME == "Connection.CloseOk"
    mine.send(PUBLISH * 10_000)  # what its library had queued
    assert ended_in_order(mine)


def test_a_second_close_has_no_second_answer(mine: Wire) -> None:
    mine.send(CLOSE + CLOSE)

    assert mine.receive_method().NAME == "Connection.CloseOk"
    mine.send(CLOSE)
    assert ended_in_order(mine)


def test_both_may_close_at_once(mine: Wire) -> None:
    mine.send(frame_bytes(9, 0, b"no such frame"))
    assert mine.receive_method().NAME == "Connection.Close"

    mine.send(CLOSE + PUBLISH * 10_000)

    assert mine.receive_method().NAME == "Connection.CloseOk"
    assert ended_in_order(mine)


def test_a_stranger_hears_what_is_spoken_here(penstock: Penstock) -> None:
    with Wire(penstock.port) as stranger:
        stranger.send(b"GET / HTTP/1.1\r\n" + bytes(4 << 20))

        assert stranger.socket.recv(8) == PROTOCOL_HEADER
        assert ended_in_order(stranger)
