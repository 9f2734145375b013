"""Crash safety: the broker is killed under load, and its promises are checked when it is back."""

from __future__ import annotations

import random
import time

import pytest
from pika import frame, spec

from tests.fixtures import NewPenstock
from tests.integration.amqp091.wire import Wire, method_bytes
from tests.integration.load import Books, Consumer, Publisher, peek
from tests.peers import Penstock

PATIENCE = 60


def declare(broker: Penstock, name: str, arguments: dict[str, str] | None = None) -> None:
    with Wire(broker.port) as wire:
        wire.negotiate()
        wire.open_channel()
        wire.call(1, spec.Queue.Declare(queue=name, durable=True, arguments=arguments))


def kill_under_load(broker: Penstock, name: str, books: Books, chance: random.Random) -> None:
    """Let a publisher and a consumer work, and kill the broker at some moment."""
    publisher = Publisher(broker.port, name, books)
    consumer = Consumer(broker.port, name, books)
    publisher.start()
    consumer.start()
    assert publisher.first_confirm.wait(PATIENCE)

    time.sleep(chance.uniform(0.0, 0.5))  # the moment is the point, not an event
    broker.kill()

    publisher.join(PATIENCE)
    consumer.join(PATIENCE)
    assert consumer.out_of_order == []


def crash_and_check(broker: Penstock, name: str, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    books = Books()
    declare(broker, name)
    for _ in range(rounds):
        kill_under_load(broker, name, books, chance)
        broker.start()
        books.check(peek(broker.port, name))
    assert books.confirmed
    assert books.acknowledged


def test_nothing_confirmed_is_lost_and_nothing_acknowledged_comes_back(
    new_penstock: NewPenstock, name: str
) -> None:
    crash_and_check(new_penstock(), name, rounds=3, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [2, 3])
def test_the_same_for_many_crashes(new_penstock: NewPenstock, name: str, seed: int) -> None:
    crash_and_check(new_penstock(), name, rounds=20, seed=seed)


def test_a_stream_keeps_what_was_confirmed_in_order(new_penstock: NewPenstock, name: str) -> None:
    broker = new_penstock()
    chance = random.Random(4)
    books = Books()
    declare(broker, name, {"x-queue-type": "stream"})

    for _ in range(3):
        publisher = Publisher(broker.port, name, books)
        publisher.start()
        assert publisher.first_confirm.wait(PATIENCE)
        time.sleep(chance.uniform(0.0, 0.3))
        broker.kill()
        publisher.join(PATIENCE)
        broker.start()

        offsets, numbers = replay(broker, name, max(books.confirmed))
        assert offsets == list(range(len(offsets)))
        assert numbers == sorted(set(numbers)), "out of order, or twice"
        # What was confirmed up to the last one is all there.
        assert books.confirmed <= set(numbers)


def replay(broker: Penstock, stream: str, last: int, first: int = 0) -> tuple[list[int], list[int]]:
    """Offsets and numbers of a stream, from an offset to a message known to be in it."""
    offsets: list[int] = []
    numbers: list[int] = []
    tag = 0
    with Wire(broker.port, PATIENCE) as wire:
        wire.negotiate()
        wire.open_channel()
        wire.call(1, spec.Basic.Qos(prefetch_count=1000))
        wire.call(1, spec.Basic.Consume(queue=stream, arguments={"x-stream-offset": first}))
        while not numbers or numbers[-1] != last:
            arrived = wire.receive()
            if isinstance(arrived, frame.Header):
                offsets.append(arrived.properties.headers["x-stream-offset"])
            elif isinstance(arrived, frame.Body):
                numbers.append(int(arrived.fragment))
                wire.send(method_bytes(1, spec.Basic.Ack(tag)))
            else:
                assert arrived is not None, "a confirmed message does not come"
                tag = arrived.method.delivery_tag
    return offsets, numbers
