"""Publishes that arrive in one read: the broker may take them together, and nobody can tell."""

from __future__ import annotations

from functools import partial

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.dialogue import wait_on
from tests.integration.amqp091.wire import Wire, message_bytes

#: More than the broker takes together.
COUNT = 400


def has(received: list[tuple[int, bytes]], count: int) -> bool:
    return len(received) >= count


def bodies(name: str, count: int = COUNT) -> list[bytes]:
    """Sizes that repeat, that change, and none."""
    return [f"{name} {index:04}".encode() * (1 + index // 150) for index in range(count - 1)] + [
        b""
    ]


def test_they_reach_a_queue_whose_name_was_not_known_before(
    open_wire: Wire, channel: BlockingChannel, queue: str
) -> None:
    sent = bodies(queue)
    open_wire.send(b"".join(message_bytes(1, body, routing_key=queue) for body in sent))
    received: list[bytes] = []
    channel.basic_consume(queue, lambda *delivery: received.append(delivery[3]), auto_ack=True)
    wait_on(channel, lambda: len(received) == COUNT)
    assert received == sent


@pytest.mark.parametrize("at", [1, 20, 60])
def test_a_read_may_end_within_the_second(
    open_wire: Wire, channel: BlockingChannel, queue: str, at: int
) -> None:
    first = message_bytes(1, b"first", routing_key=queue)
    stream = first + message_bytes(1, b"other", routing_key=queue)
    open_wire.send(stream[: len(first) + at])
    received: list[bytes] = []
    channel.basic_consume(queue, lambda *delivery: received.append(delivery[3]), auto_ack=True)
    wait_on(channel, lambda: received == [b"first"])
    open_wire.send(stream[len(first) + at :])
    wait_on(channel, lambda: received == [b"first", b"other"])


def test_they_reach_many_queues(open_wire: Wire, channel: BlockingChannel, exchange: str) -> None:
    received: dict[str, list[bytes]] = {}
    for _ in range(12):
        name = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(name, exchange, "key")
        taken = received[name] = []
        channel.basic_consume(
            name, lambda *delivery, taken=taken: taken.append(delivery[3]), auto_ack=True
        )
    sent = bodies(exchange)
    stream = [message_bytes(1, body, exchange=exchange, routing_key="key") for body in sent]
    open_wire.send(b"".join(stream))
    wait_on(channel, lambda: all(len(taken) == COUNT for taken in received.values()))
    assert all(taken == sent for taken in received.values())


@pytest.mark.parametrize("prefetch", [1, 7, 100, 250])
def test_a_consumer_gets_as_many_as_it_has_credit_for(
    open_wire: Wire, channel: BlockingChannel, queue: str, prefetch: int
) -> None:
    received: list[tuple[int, bytes]] = []
    channel.basic_qos(prefetch_count=prefetch)
    channel.basic_consume(
        queue, lambda _, method, __, body: received.append((method.delivery_tag, body))
    )
    sent = bodies(queue, 300)
    open_wire.send(b"".join(message_bytes(1, body, routing_key=queue) for body in sent))
    done = 0
    while done < len(sent):
        due = min(done + prefetch, len(sent))
        wait_on(channel, partial(has, received, due))
        assert len(received) == due
        done = len(received)
        channel.basic_ack(done, multiple=True)
    assert received == list(enumerate(sent, 1))
