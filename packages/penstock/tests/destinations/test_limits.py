"""What a queue's arguments ask for: lengths, times, priorities, who may consume."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.contract import ACCEPTED, REJECTED, Message
from penstock.core.errors import AccessRefused, QueueFull
from tests.doubles import Client, Stand, message, persistent, push_all


def drain(queue: Any) -> list[bytes]:
    """Take everything, as a client that answers at once."""
    consumer = Client(queue, settled=True).request()
    consumer.close()
    return consumer.ear.bodies


DEAD: dict[str, Any] = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}


async def test_a_full_queue_drops_its_head(stand: Stand) -> None:
    dead = stand.queue("dead")
    queue = stand.queue(max_length=2, **DEAD)
    push_all(queue, b"1", b"2", b"3", b"4")
    assert (drain(queue), drain(dead)) == ([b"3", b"4"], [b"1", b"2"])


async def test_length_may_be_counted_in_bytes(stand: Stand) -> None:
    queue = stand.queue(max_length_bytes=5)
    push_all(queue, b"12", b"34", b"5", b"6")
    assert (queue.ready_bytes, drain(queue)) == (4, [b"34", b"5", b"6"])


async def test_a_message_larger_than_the_queue_is_dropped_itself(stand: Stand) -> None:
    queue = stand.queue(max_length_bytes=5)
    push_all(queue, b"123456")
    assert drain(queue) == []


async def test_only_what_waits_counts(stand: Stand) -> None:
    queue = stand.queue(max_length=1)
    consumer = Client(queue).request(2)
    push_all(queue, b"1", b"2", b"3")
    assert (consumer.ear.bodies, queue.ready) == ([b"1", b"2"], 1)


async def test_a_message_that_is_put_back_may_be_the_one_too_many(stand: Stand) -> None:
    queue = stand.queue(max_length=1)
    push_all(queue, b"1")
    consumer = Client(queue).request(1)
    push_all(queue, b"2")
    consumer.fail(consumer.ear.deliveries[0])
    assert drain(queue) == [b"2"]


async def test_a_queue_may_refuse_instead(stand: Stand) -> None:
    dead = stand.queue("dead")
    queue = stand.queue(max_length=1, overflow="reject-publish", **DEAD)
    assert [queue.push(message(body)) for body in (b"1", b"2")] == [ACCEPTED, REJECTED]
    assert (drain(queue), drain(dead)) == ([b"1"], [])


async def test_and_dead_letter_what_it_refused(stand: Stand) -> None:
    dead = stand.queue("dead")
    queue = stand.queue(max_length=1, overflow="reject-publish-dlx", **DEAD)
    assert [queue.push(message(body)) for body in (b"1", b"2")] == [ACCEPTED, REJECTED]
    assert (drain(queue), drain(dead)) == ([b"1"], [b"2"])


async def test_the_publisher_of_a_refused_message_hears_of_it(stand: Stand) -> None:
    stand.queue("q", max_length=0, overflow="reject-publish")
    stand.exchange("f", "fanout")
    for queue in (stand.vhost.queues["q"], stand.queue("roomy")):
        stand.vhost.bind("f", queue)
    publisher = stand.publisher("f")
    publisher.post(message(exchange="f"), 1)
    ((receipt, error),) = publisher.ear.failed
    assert (receipt, type(error), publisher.ear.confirmed) == (1, QueueFull, [])


async def test_messages_expire_at_the_queues_time(stand: Stand) -> None:
    dead = stand.queue("dead")
    queue = stand.queue(message_ttl=1000, **DEAD)
    push_all(queue, b"1")
    stand.clock.advance(0.5)
    push_all(queue, b"2")
    stand.clock.advance(0.6)
    assert (queue.ready, dead.ready) == (1, 1)
    stand.clock.advance(0.5)
    assert (queue.ready, drain(dead), stand.pool.used) == (0, [b"1", b"2"], 0)


@pytest.mark.parametrize(("own", "at"), [("300", 0.3), ("5000", 1.0)])
async def test_the_shorter_of_the_queues_and_the_messages_time_counts(
    stand: Stand, own: str, at: float
) -> None:
    queue = stand.queue(message_ttl=1000)
    queue.push(message(expiration=own))
    stand.clock.advance(at - 0.01)
    assert queue.ready == 1
    stand.clock.advance(0.02)
    assert queue.ready == 0


async def test_only_the_head_expires(stand: Stand) -> None:
    queue = stand.queue()
    queue.push(message(b"1"))
    queue.push(message(b"2", expiration="100"))
    stand.clock.advance(1)
    assert queue.ready == 2
    puller = Client(queue, pull=True).request(1)
    assert puller.ear.bodies == [b"1"]
    stand.clock.advance(0)
    assert queue.ready == 0


async def test_one_that_is_put_back_expires_at_its_old_time(stand: Stand) -> None:
    queue = stand.queue()
    consumer = Client(queue).request(1)
    queue.push(message(b"soon", expiration="500"))
    queue.push(message(b"late", expiration="60000"))
    stand.clock.advance(0.3)
    consumer.fail(consumer.ear.deliveries[0])
    assert queue.ready == 2
    stand.clock.advance(0.3)
    assert queue.ready == 1


async def test_an_urgent_message_does_not_wait_for_a_lesser_ones_time(stand: Stand) -> None:
    queue = stand.queue(max_priority=5)
    queue.push(message(b"late", expiration="60000"))
    queue.push(message(b"soon", expiration="500", priority=5))
    stand.clock.advance(1)
    assert queue.ready == 1


async def test_a_time_that_was_watched_for_another_is_not_waited_for(stand: Stand) -> None:
    queue = stand.queue()
    queue.push(message(b"late", expiration="60000"))
    assert drain(queue) == [b"late"]
    queue.push(message(b"soon", expiration="500"))
    stand.clock.advance(1)
    assert queue.ready == 0


async def test_an_expired_message_is_never_delivered(stand: Stand) -> None:
    dead = stand.queue("dead")
    queue = stand.queue(**DEAD)
    queue.push(message(b"1", expiration="100"))
    consumer = Client(queue).request(1)
    queue.push(message(b"2", expiration="100"))
    consumer.ear.forwarded.clear()
    stand.clock._now += 1  # before the timer has run
    consumer.request(1)
    assert (consumer.ear.bodies, drain(dead)) == ([], [b"2"])


async def test_no_time_at_all_is_for_those_who_wait_already(stand: Stand) -> None:
    queue = stand.queue(message_ttl=0)
    push_all(queue, b"1")
    stand.clock.advance(0)
    consumer = Client(queue).request()
    push_all(queue, b"2")
    assert consumer.ear.bodies == [b"2"]


async def test_waiting_goes_on_over_a_restart(stand: Stand) -> None:
    queue = stand.queue(durable=True, message_ttl=60_000)
    queue.push(persistent())
    stand = await stand.reopened()
    reopened: Any = stand.vhost.queues["q"]
    assert reopened.ready == 1
    stand.clock.advance(61)
    assert reopened.ready == 0
    await stand.close()


async def test_a_queue_nobody_uses_goes_after_its_time(stand: Stand) -> None:
    queue = stand.queue(expires=1000)
    consumer = Client(queue)
    stand.clock.advance(5)
    assert "q" in stand.vhost.queues
    consumer.close()
    stand.clock.advance(0.9)
    queue.used()
    stand.clock.advance(0.9)
    assert "q" in stand.vhost.queues
    stand.clock.advance(0.2)
    assert "q" not in stand.vhost.queues


async def test_urgent_messages_come_first_and_equals_in_order(stand: Stand) -> None:
    queue = stand.queue(max_priority=3)
    for body, priority in ((b"a", 0), (b"b", 2), (b"c", None), (b"d", 2), (b"e", 3), (b"f", 9)):
        queue.push(message(body, priority=priority))
    assert drain(queue) == [b"e", b"f", b"b", b"d", b"a", b"c"]


async def test_put_back_by_priority(stand: Stand) -> None:
    queue = stand.queue(max_priority=3)
    consumer = Client(queue).request(2)
    queue.push(message(b"low"))
    queue.push(message(b"high", priority=3))
    low, high = consumer.ear.deliveries
    queue.push(message(b"mid", priority=2))
    consumer.fail(low)
    consumer.fail(high)
    assert drain(queue) == [b"high", b"mid", b"low"]


async def test_a_lying_header_is_put_back_all_the_same(stand: Stand) -> None:
    """Whoever publishes nonsense must not cost the one who consumes it."""
    dead = stand.queue("dead")
    queue = stand.queue(max_priority=3, **DEAD)
    consumer = Client(queue).request(2)
    good = message(headers={"a": 1}, priority=3)
    lying = Message(good.route, good.header.replace(b"\x01a", b"\xffa"), b"lying", good.flags)
    for _ in range(2):
        queue.push(lying)
    consumer.fail(consumer.ear.deliveries[0], requeue=True)
    consumer.fail(consumer.ear.deliveries[1], requeue=False)
    assert (queue.ready, dead.ready, queue.unacknowledged) == (1, 0, 0)


async def test_a_single_active_consumer_has_all_until_it_leaves(stand: Stand) -> None:
    queue = stand.queue(single_active_consumer=True)
    first, second, third = (Client(queue).request() for _ in range(3))
    push_all(queue, b"1", b"2")
    second.close()
    push_all(queue, b"3")
    first.close()
    push_all(queue, b"4")
    assert (first.ear.bodies, third.ear.bodies) == ([b"1", b"2", b"3"], [b"4"])


async def test_what_the_active_one_left_goes_to_its_heir(stand: Stand) -> None:
    queue = stand.queue(single_active_consumer=True)
    first, second = (Client(queue).request() for _ in range(2))
    push_all(queue, b"1", b"2")
    first.close()
    for delivery in first.ear.deliveries:
        first.fail(delivery)
    assert second.ear.bodies == [b"1", b"2"]


async def test_higher_consumers_are_served_before_lower_ones(stand: Stand) -> None:
    queue = stand.queue()
    low, high = Client(queue).request(), Client(queue, x_priority=10).request(2)
    lowest = Client(queue, x_priority=-1).request()
    push_all(queue, b"1", b"2", b"3", b"4")
    assert (high.ear.bodies, low.ear.bodies, lowest.ear.bodies) == ([b"1", b"2"], [b"3", b"4"], [])


async def test_an_exclusive_consumer_is_alone(stand: Stand) -> None:
    queue = stand.queue()
    alone = Client(queue, exclusive=True)
    with pytest.raises(AccessRefused, match="in exclusive use"):
        Client(queue)
    alone.close()
    Client(queue)
    with pytest.raises(AccessRefused, match="in exclusive use"):
        Client(queue, exclusive=True)
    assert queue.consumer_count == 1


@pytest.mark.parametrize("limit", [0, 1, 2])
async def test_a_message_is_delivered_once_more_than_its_limit(stand: Stand, limit: int) -> None:
    """As RabbitMQ counts: the limit is how often it may come back."""
    dead = stand.queue("dead")
    queue = stand.queue(delivery_limit=limit, **DEAD)
    consumer = Client(queue).request()
    push_all(queue, b"poison")
    for number in range(limit + 1):
        assert len(consumer.ear.deliveries) == number + 1
        consumer.fail(consumer.ear.deliveries[-1])
    assert (len(consumer.ear.bodies), queue.ready, drain(dead)) == (limit + 1, 0, [b"poison"])
