"""A message to many queues, over several turns: all of them, in order, and nothing overtakes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from penstock.broker import write_batch as write_batch_module
from penstock.destinations.exchange import SINKS_PER_SLICE
from tests.doubles import Client, Stand, message

QUEUES = 5 * SINKS_PER_SLICE


class Reader:
    def __init__(self) -> None:
        self.held = False
        self.resumed = asyncio.Event()

    def defer_rest(self) -> None:
        raise AssertionError("it is held instead")

    def hold(self) -> None:
        self.held = True

    def hold_output(self) -> Callable[[], None]:
        raise AssertionError("nothing is replicated")

    def resume(self) -> None:
        self.held = False
        self.resumed.set()


@pytest.fixture
def reader(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """One whose turns are over at the second look at the clock."""
    monkeypatch.setattr(write_batch_module, "MAX_BATCH_SECONDS", -1.0)
    reader = Reader()
    stand.kernel.write_batch.reader = reader
    return reader


@pytest.fixture
def publisher(stand: Stand) -> Client:
    for number in range(QUEUES):
        stand.vhost.bind("amq.fanout", stand.queue(f"q{number}"), "")
    return stand.publisher("amq.fanout")


def ready(stand: Stand) -> list[int]:
    return [queue.message_count for queue in stand.vhost.queues.values()]


async def test_others_have_a_turn_before_it_has_reached_all(
    stand: Stand, reader: Reader, publisher: Client
) -> None:
    publisher.post(message(b"1", exchange="amq.fanout"), 1)
    assert 0 < sum(ready(stand)) < QUEUES
    assert reader.held
    assert publisher.ear.confirmed == []
    await reader.resumed.wait()
    assert ready(stand) == [1] * QUEUES
    assert publisher.ear.confirmed == [1]


async def test_what_its_sender_posts_behind_it_does_not_overtake_it(
    stand: Stand, reader: Reader, publisher: Client
) -> None:
    publisher.post(message(b"1", exchange="amq.fanout"), 1)
    publisher.post(message(b"2", exchange="amq.fanout"), 2)
    await reader.resumed.wait()
    assert publisher.ear.confirmed == [1, 2]
    for queue in stand.vhost.queues.values():
        assert Client(queue, settled=True).request().ear.bodies == [b"1", b"2"]


async def test_it_reaches_all_though_its_sender_has_gone(
    stand: Stand, reader: Reader, publisher: Client
) -> None:
    publisher.post(message(b"1", exchange="amq.fanout"), 1)
    publisher.close()
    await reader.resumed.wait()
    assert ready(stand) == [1] * QUEUES


async def test_a_queue_that_was_deleted_meanwhile_is_passed_over(
    stand: Stand, reader: Reader, publisher: Client
) -> None:
    last = stand.vhost.queues[f"q{QUEUES - 1}"]
    publisher.post(message(b"1", exchange="amq.fanout"), 1)
    stand.vhost.delete_queue(last.name)
    await reader.resumed.wait()
    assert ready(stand) == [1] * (QUEUES - 1)
    assert last.message_count == 0


async def test_what_may_not_be_put_off_reaches_all_at_once(
    stand: Stand, reader: Reader, publisher: Client
) -> None:
    stand.kernel.write_batch.reader = None
    publisher.post(message(b"1", exchange="amq.fanout"), 1)
    assert ready(stand) == [1] * QUEUES
    assert publisher.ear.confirmed == [1]
