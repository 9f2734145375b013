"""Messages that were delivered, are not acknowledged and are on disk only."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.contract import Delivery, PagedMessage
from penstock.broker.log.log import SegmentList
from tests.doubles import Client, Stand, message, persistent, push_all


def page_out(consumer: Client, *deliveries: Delivery) -> None:
    assert consumer.pages is not None
    for delivery in deliveries:
        consumer.pages.page_out(delivery)
        assert isinstance(delivery.message, PagedMessage)
        assert delivery.message.body == b""


@pytest.mark.parametrize("publish", [message, persistent])
@pytest.mark.parametrize("durable", [False, True])
async def test_what_is_requeued_is_read_again(stand: Stand, publish: Any, durable: bool) -> None:
    queue = stand.queue(durable=durable)
    consumer = Client(queue).request(3)
    for body in (b"1", b"22", b"333", b"4444"):
        queue.push(publish(body, type="t"))
    page_out(consumer, *consumer.ear.deliveries)
    for delivery in reversed(consumer.ear.deliveries):
        consumer.fail(delivery)
    assert (queue.ready, queue.ready_bytes, queue.unacknowledged) == (4, 10, 0)

    again = Client(queue).request()

    assert again.ear.bodies == [b"1", b"22", b"333", b"4444"]
    assert [delivery.count for delivery in again.ear.deliveries] == [1, 1, 1, 0]
    first = again.ear.deliveries[0].message
    assert (first.header, first.route) == (publish(b"1", type="t").header, publish(b"1").route)
    assert (queue.ready, queue.ready_bytes, queue.memory, stand.pool.used) == (0, 0, 0, 0)


@pytest.mark.parametrize("publish", [message, persistent])
async def test_what_is_acknowledged_leaves_the_disk(stand: Stand, publish: Any) -> None:
    queue = stand.queue(durable=True)
    consumer = Client(queue).request()
    for number in range(5):
        queue.push(publish(b"%d" % number))
    page_out(consumer, *consumer.ear.deliveries)
    for delivery in consumer.ear.deliveries:
        consumer.confirm(delivery)
    reopened = await stand.reopened()

    assert reopened.queue(durable=True).ready == 0
    await reopened.close()


async def test_a_transient_message_does_not_survive_a_restart(stand: Stand) -> None:
    queue = stand.queue(durable=True)
    consumer = Client(queue).request()
    push_all(queue, b"transient")
    queue.push(persistent(b"persistent"))
    page_out(consumer, *consumer.ear.deliveries)
    reopened = await stand.reopened()
    queue = reopened.queue(durable=True)

    assert Client(queue).request().ear.bodies == [b"persistent"]
    await reopened.close()


async def test_what_was_delivered_is_not_ready_among_paged_messages(tmp_path: Path) -> None:
    stand = Stand(tmp_path, queue_memory_bytes=1000)
    queue = stand.queue()
    consumer = Client(queue).request(2)
    push_all(queue, *[b"%d" % number for number in range(8)])
    stand.kernel.write_batch.flush()
    page_out(consumer, *consumer.ear.deliveries)
    push_all(queue, b"8")
    stand.kernel.write_batch.flush()
    assert [one.message.body for one in queue.browse()] == [b"%d" % n for n in range(2, 9)]

    other = Client(queue).request()

    assert other.ear.bodies == [b"%d" % number for number in range(2, 9)]
    consumer.fail(consumer.ear.deliveries[0])
    consumer.confirm(consumer.ear.deliveries[1])
    assert other.ear.bodies[7:] == [b"0"]
    await stand.close()


async def test_a_rejected_one_is_dead_lettered_whole(stand: Stand) -> None:
    dead = stand.queue("dead")
    queue = stand.queue(dead_letter_exchange="", dead_letter_routing_key="dead")
    consumer = Client(queue).request()
    push_all(queue, b"rejected")
    page_out(consumer, *consumer.ear.deliveries)
    consumer.fail(consumer.ear.deliveries[0], requeue=False)

    assert Client(dead).request().ear.bodies == [b"rejected"]


async def test_requeued_ones_can_be_browsed_and_taken(stand: Stand) -> None:
    queue = stand.queue()
    consumer = Client(queue).request(2)
    push_all(queue, b"1", b"2", b"3")
    page_out(consumer, *consumer.ear.deliveries)
    for delivery in consumer.ear.deliveries:
        consumer.fail(delivery)
    consumer.request(0)
    found = list(queue.browse())
    assert [one.message.body for one in found] == [b"1", b"2", b"3"]

    (taken,) = queue.take([found[1].id])

    assert (taken.message.body, queue.ready, queue.ready_bytes) == (b"2", 2, 2)
    queue.settle(taken, put_back=False)
    assert Client(queue).request().ear.bodies == [b"1", b"3"]
    assert stand.pool.used == 0


async def test_a_queue_beyond_its_memory_pages_out_what_is_requeued(tmp_path: Path) -> None:
    stand = Stand(tmp_path, queue_memory_bytes=10_000)
    queue = stand.queue()
    consumer = Client(queue).request(100)
    for number in range(100):
        queue.push(message(b"%03d" % number * 1000))
    consumer.close()
    for delivery in consumer.ear.deliveries:
        consumer.fail(delivery)
    assert (queue.ready, queue.ready_bytes) == (100, 300_000)
    assert queue.memory < 60_000, "some bodies, and what all take beside them"

    again = Client(queue).request()

    assert [body[:3] for body in again.ear.bodies] == [b"%03d" % number for number in range(100)]
    assert (queue.memory, stand.pool.used) == (0, 0)
    await stand.close()


async def test_a_damaged_one_is_dropped(stand: Stand) -> None:
    queue = stand.queue(durable=True)
    consumer = Client(queue).request(2)
    for body in (b"damaged", b"intact"):
        queue.push(persistent(body))
        stand.kernel.write_batch.flush()
    page_out(consumer, *consumer.ear.deliveries)
    (segment,) = stand.directory.rglob("*.seg")
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b"damaged", b"DAMAGED"))
    for delivery in consumer.ear.deliveries:
        consumer.fail(delivery)

    assert Client(queue).request().ear.bodies == [b"intact"]
    assert (queue.ready, queue.ready_bytes, queue.memory, stand.pool.used) == (0, 0, 0, 0)


async def test_one_that_cannot_be_read_now_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = Stand(tmp_path)
    queue = stand.queue(dead_letter_exchange="", dead_letter_routing_key="dead")
    dead = stand.queue("dead")
    consumer = Client(queue).request(2)
    push_all(queue, b"1", b"2")
    page_out(consumer, *consumer.ear.deliveries)  # in the log's memory
    append = SegmentList.append

    def full(segments: SegmentList, chunk: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SegmentList, "append", full)
    other = Client(queue).request()
    consumer.fail(consumer.ear.deliveries[0])
    consumer.fail(consumer.ear.deliveries[1], requeue=False)
    stand.kernel.write_batch.flush()
    assert (other.ear.bodies, dead.ready, queue.ready) == ([], 0, 2), "neither is lost"

    monkeypatch.setattr(SegmentList, "append", append)
    await other.ear.until(lambda: len(other.ear.bodies) == 2)
    assert other.ear.bodies == [b"1", b"2"]
    await stand.close()


async def test_priorities_and_large_messages_stay_as_they_are(stand: Stand) -> None:
    queue = stand.queue(max_priority=3)
    consumer = Client(queue).request()
    push_all(queue, b"1")
    assert consumer.pages is not None
    (delivery,) = consumer.ear.deliveries
    consumer.pages.page_out(delivery)
    assert delivery.message.body == b"1"


async def test_a_deleted_queue_pages_nothing(stand: Stand) -> None:
    queue = stand.queue()
    consumer = Client(queue).request()
    push_all(queue, b"1")
    stand.vhost.delete_queue("q")
    assert consumer.pages is not None
    consumer.pages.page_out(consumer.ear.deliveries[0])
    consumer.fail(consumer.ear.deliveries[0])
    assert stand.spooled == []
