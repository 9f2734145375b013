"""A damaged log: what cannot be read is reported and left out, the rest is served."""

from __future__ import annotations

import os
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.fixtures import NewPenstock
from tests.peers import Penstock

PERSISTENT = pika.BasicProperties(delivery_mode=2)
BODIES = [b"message number %d" % number for number in range(10)]
KINDS = ["classic", "stream"]


def connect(broker: Penstock) -> BlockingChannel:
    channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
    channel.confirm_delivery()
    return channel


@pytest.fixture(params=KINDS)
def stopped(request: pytest.FixtureRequest, new_penstock: NewPenstock, name: str) -> Penstock:
    """A broker that was killed with BODIES, each in a chunk of its own, in queue `name`."""
    broker = new_penstock()
    channel = connect(broker)
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": request.param})
    for body in BODIES:
        channel.basic_publish("", name, body, PERSISTENT)
    broker.kill()
    return broker


def segment(broker: Penstock) -> Path:
    """The file that holds the messages: the one with the first body in it."""
    (found,) = (
        path for path in broker.data.rglob("*") if path.is_file() and BODIES[0] in path.read_bytes()
    )
    return found


def read_all(broker: Penstock, name: str, last: bytes) -> list[bytes]:
    """Everything up to a message known to be the last."""
    channel = connect(broker)
    channel.basic_qos(prefetch_count=100)
    found: list[bytes] = []
    arguments = {"x-stream-offset": "first"}
    for method, _, body in channel.consume(name, arguments=arguments, inactivity_timeout=20):
        assert method is not None, f"{last!r} did not come, only {found}"
        found.append(body)
        if body == last:
            break
    return found


def test_a_torn_tail_is_cut_and_reported(stopped: Penstock, name: str) -> None:
    path = segment(stopped)
    os.truncate(path, path.stat().st_size - 5)

    stopped.start()

    assert read_all(stopped, name, BODIES[8]) == BODIES[:9]
    assert "torn" in stopped.log


def test_after_a_torn_tail_new_messages_follow_the_whole_ones(stopped: Penstock, name: str) -> None:
    path = segment(stopped)
    os.truncate(path, path.stat().st_size - 5)
    stopped.start()

    connect(stopped).basic_publish("", name, b"new", PERSISTENT)
    stopped.kill()
    stopped.start()

    assert read_all(stopped, name, b"new") == [*BODIES[:9], b"new"]


def test_rubbish_at_the_end_costs_nothing(stopped: Penstock, name: str) -> None:
    with segment(stopped).open("ab") as file:
        file.write(os.urandom(50))

    stopped.start()

    assert read_all(stopped, name, BODIES[9]) == BODIES


def test_a_flipped_byte_costs_its_chunk_alone_and_is_reported(stopped: Penstock, name: str) -> None:
    path = segment(stopped)
    content = bytearray(path.read_bytes())
    content[content.index(BODIES[4]) + 3] ^= 0x01
    path.write_bytes(content)

    stopped.start()

    assert read_all(stopped, name, BODIES[9]) == BODIES[:4] + BODIES[5:]
    assert "damaged chunk" in stopped.log
