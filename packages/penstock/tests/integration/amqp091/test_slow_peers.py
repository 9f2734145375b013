"""Clients that say nothing, or never read: bounded in time and memory, and alone in noticing.

How long a broker waits is Penstock's own setting, and how much it may grow its own promise, so
these run on Penstock alone.
"""

from __future__ import annotations

import socket
import time

import pika
import pytest
from pika import spec

from tests.fixtures import NewPenstock
from tests.integration.amqp091.wire import (
    BODY,
    PROTOCOL_HEADER,
    Wire,
    frame_bytes,
    header_bytes,
    message_bytes,
    method_bytes,
)
from tests.peers import Penstock, resident_bytes

MIB = 1 << 20


@pytest.fixture
def impatient(new_penstock: NewPenstock) -> Penstock:
    return new_penstock(environment={"PENSTOCK_BROKER__HANDSHAKE_TIMEOUT": "1s"})


@pytest.mark.parametrize("said", [b"", b"AMQP", PROTOCOL_HEADER], ids=["nothing", "half", "header"])
def test_a_client_that_falls_silent_before_logging_in_is_closed(
    impatient: Penstock, said: bytes
) -> None:
    with Wire(impatient.port) as wire:
        wire.send(said)
        began = time.monotonic()

        wire.receive_rest()

        assert time.monotonic() - began > 0.5


def test_a_client_that_logged_in_may_be_silent(impatient: Penstock) -> None:
    with Wire(impatient.port) as wire, Wire(impatient.port) as clock:
        wire.negotiate(heartbeat=0)
        clock.receive_rest()  # the silent one's time is over

        wire.open_channel()


def test_a_client_that_never_reads_costs_little_and_hinders_nobody(
    new_penstock: NewPenstock, name: str
) -> None:
    broker = new_penstock()
    memory = resident_bytes(broker.pid)
    with Wire(broker.port) as deaf, Wire(broker.port) as publisher:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        deaf.negotiate()
        deaf.open_channel()
        deaf.call(1, spec.Queue.Declare(queue=name))
        deaf.call(1, spec.Basic.Consume(queue=name, no_ack=True))

        publisher.negotiate()
        publisher.open_channel()
        publisher.call(1, spec.Confirm.Select())
        publisher.call(
            1,
            spec.Queue.Declare(
                queue=f"{name}.bounded", arguments={"x-max-length-bytes": MIB}, exclusive=True
            ),
        )
        chunk = message_bytes(1, b"x" * 65536, routing_key=name) * 16
        for number in range(64):
            publisher.send(chunk)
            _await_confirm(publisher, 16 * (number + 1))

        _ping_pong(broker)
        grown = resident_bytes(broker.pid) - memory
        assert grown < 64 * MIB + 32 * MIB  # what is queued, and some


def test_a_client_that_sends_and_never_reads_is_held_back(
    new_penstock: NewPenstock, name: str
) -> None:
    """Each publish is returned; returns pile up until the broker stops reading the culprit."""
    broker = new_penstock()
    memory = resident_bytes(broker.pid)
    with Wire(broker.port) as deaf:
        deaf.negotiate()
        deaf.open_channel()
        deaf.socket.settimeout(2)
        chunk = message_bytes(1, b"x" * 65536, routing_key=name, mandatory=True) * 16

        with pytest.raises(TimeoutError):
            deaf.send(chunk * 512)

        _ping_pong(broker)
        assert resident_bytes(broker.pid) - memory < 64 * MIB


def test_a_client_that_never_reads_its_large_returns_is_held_back(
    new_penstock: NewPenstock, name: str
) -> None:
    """What waits to be returned lies on disk; how much of it may is bounded all the same."""
    broker = new_penstock()
    memory = resident_bytes(broker.pid)
    with Wire(broker.port) as deaf:
        deaf.negotiate()
        deaf.open_channel()
        deaf.socket.settimeout(2)
        publish = method_bytes(1, spec.Basic.Publish(routing_key=name, mandatory=True))
        large = publish + header_bytes(1, MIB) + frame_bytes(BODY, 1, bytes(65536)) * 16

        with pytest.raises(TimeoutError):
            deaf.send(large * 256)

        _ping_pong(broker)
        assert resident_bytes(broker.pid) - memory < 32 * MIB
        assert len(list((broker.data / "log" / "spool").iterdir())) < 32


def test_many_half_open_connections_do_not_keep_others_out(impatient: Penstock) -> None:
    idle = [socket.create_connection(("127.0.0.1", impatient.port)) for _ in range(200)]

    _ping_pong(impatient)

    for each in idle:
        each.close()


def _await_confirm(wire: Wire, number: int) -> None:
    while True:
        answer = wire.receive_method()
        assert answer.NAME == "Basic.Ack", answer
        if answer.delivery_tag == number:
            return


def _ping_pong(broker: Penstock) -> None:
    """Somebody else is served."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    for _ in range(10):
        channel.basic_publish("", queue, b"ping")
        assert channel.basic_get(queue, auto_ack=True)[2] == b"ping"
    connection.close()
