"""A delivery that goes unanswered for too long ends its channel; by default none ever does."""

from __future__ import annotations

from penstock.core.errors import PreconditionFailed
from tests.doubles import Client, Stand, push_all


async def test_a_delivery_without_a_limit_may_wait_for_ever(stand: Stand) -> None:
    queue = stand.queue()
    consumer = Client(queue).request()
    push_all(queue, b"1")
    stand.clock.advance(1_000_000)
    assert consumer.ear.failed == []


async def test_one_that_is_not_answered_in_time_ends_its_channel(stand: Stand) -> None:
    queue = stand.queue(consumer_timeout=5000)
    consumer = Client(queue).request()
    push_all(queue, b"1")
    stand.clock.advance(4.9)
    assert consumer.ear.failed == []
    stand.clock.advance(0.2)
    ((receipt, error),) = consumer.ear.failed
    assert receipt == 0
    assert isinstance(error, PreconditionFailed)


async def test_each_is_given_its_own_time(stand: Stand) -> None:
    queue = stand.queue(consumer_timeout=5000)
    quick, slow = Client(queue).request(), Client(queue).request()
    push_all(queue, b"1")
    stand.clock.advance(3)
    push_all(queue, b"2")
    quick.confirm(quick.ear.deliveries[0])
    stand.clock.advance(3)
    assert (quick.ear.failed, slow.ear.failed) == ([], [])
    stand.clock.advance(3)
    assert (len(quick.ear.failed), len(slow.ear.failed)) == (0, 1)


async def test_a_deleted_queue_asks_for_no_answers(stand: Stand) -> None:
    queue = stand.queue(consumer_timeout=5000)
    consumer = Client(queue).request()
    push_all(queue, b"1")
    stand.vhost.delete_queue("q")
    consumer.ear.failed.clear()
    stand.clock.advance(10)
    assert consumer.ear.failed == []
