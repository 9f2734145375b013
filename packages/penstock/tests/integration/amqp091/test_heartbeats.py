"""Heartbeats: both sides notice when the other has gone silent."""

from __future__ import annotations

import time

from pika import frame, spec

from tests.integration.amqp091.wire import HEARTBEAT, Wire, frame_bytes, message_bytes

HEARTBEAT_FRAME = frame_bytes(HEARTBEAT, 0, b"")


def test_the_broker_beats_while_it_has_nothing_to_say(wire: Wire) -> None:
    wire.negotiate(heartbeat=1)

    beat = wire.receive()

    assert isinstance(beat, frame.Heartbeat)


def test_a_silent_client_is_closed(wire: Wire) -> None:
    wire.negotiate(heartbeat=1)
    began = time.monotonic()

    while wire.receive() is not None:
        pass

    assert time.monotonic() - began > 1.5


def test_a_client_that_beats_is_kept(wire: Wire) -> None:
    wire.negotiate(heartbeat=1)
    wire.open_channel()

    for _ in range(7):  # past the point where silence would have ended it
        wire.receive()
        wire.send(HEARTBEAT_FRAME)

    wire.ping()


def test_any_frame_is_a_sign_of_life(wire: Wire, name: str) -> None:
    wire.negotiate(heartbeat=1)
    wire.open_channel()

    for _ in range(7):
        wire.receive()
        wire.send(message_bytes(1, b"", routing_key=name))

    wire.ping()


def test_without_heartbeats_silence_is_allowed(wire: Wire, broker_url: str) -> None:
    wire.negotiate(heartbeat=0)
    wire.open_channel()
    wire.socket.settimeout(2.5)

    try:
        arrived = wire.receive()
    except TimeoutError:
        arrived = "nothing"

    assert arrived == "nothing"
    assert wire.call(1, spec.Basic.Qos()).NAME == "Basic.QosOk"
