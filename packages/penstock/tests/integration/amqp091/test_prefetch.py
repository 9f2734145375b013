"""Prefetch: how many messages a consumer, or a channel, may hold unacknowledged."""

from __future__ import annotations

from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.dialogue import Inbox, connection_error


def fill(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    bodies = [b"%d" % number for number in range(count)]
    for body in bodies:
        channel.basic_publish("", queue, body)
    return bodies


def test_a_consumer_holds_no_more_than_its_prefetch(channel: BlockingChannel, queue: str) -> None:
    bodies = fill(channel, queue, 5)
    channel.basic_qos(prefetch_count=2)
    inbox = Inbox(channel, queue)

    held = inbox.take(2)
    assert inbox.settle() == []
    channel.basic_ack(held[0].tag)

    assert [arrival.body for arrival in held] + inbox.take_bodies(1) == bodies[:3]
    assert inbox.settle() == []


def test_the_limit_is_each_consumers_own(channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, 6)
    channel.basic_qos(prefetch_count=2)
    first, second = Inbox(channel, queue), Inbox(channel, queue)

    first.take(2)
    second.take(2)

    assert (first.settle(), second.settle()) == ([], [])


def test_a_new_limit_is_for_new_consumers(channel: BlockingChannel, queue: str) -> None:
    channel.basic_qos(prefetch_count=1)
    old = Inbox(channel, queue)
    channel.basic_qos(prefetch_count=3)
    new = Inbox(channel, queue)

    fill(channel, queue, 6)

    old.take(1)
    new.take(3)
    assert (old.settle(), new.settle()) == ([], [])


def test_a_global_limit_is_shared_by_the_channel(channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, 6)
    channel.basic_qos(prefetch_count=3, global_qos=True)
    first, second = Inbox(channel, queue), Inbox(channel, queue)

    first.settle()
    second.settle()

    assert len(first.arrivals) + len(second.arrivals) == 3


def test_acknowledging_under_a_global_limit_draws_more(
    channel: BlockingChannel, queue: str
) -> None:
    bodies = fill(channel, queue, 4)
    channel.basic_qos(prefetch_count=1, global_qos=True)
    inbox = Inbox(channel, queue)
    received = []

    for _ in bodies:
        (arrival,) = inbox.take(1)
        received.append(arrival.body)
        channel.basic_ack(arrival.tag)

    assert received == bodies


def test_zero_means_no_limit(channel: BlockingChannel, queue: str) -> None:
    channel.basic_qos(prefetch_count=0)
    inbox = Inbox(channel, queue)

    bodies = fill(channel, queue, 300)

    assert inbox.take_bodies(300) == bodies


def test_without_acknowledgements_there_is_no_limit(channel: BlockingChannel, queue: str) -> None:
    channel.basic_qos(prefetch_count=1)
    inbox = Inbox(channel, queue, auto_ack=True)

    bodies = fill(channel, queue, 10)

    assert inbox.take_bodies(10) == bodies


def test_a_message_taken_by_get_does_not_count(channel: BlockingChannel, queue: str) -> None:
    bodies = fill(channel, queue, 2)
    channel.basic_get(queue)
    channel.basic_qos(prefetch_count=1)

    assert Inbox(channel, queue).take_bodies(1) == bodies[1:]


def test_a_prefetch_in_bytes_is_not_implemented(channel: BlockingChannel) -> None:
    with connection_error(540, "NOT_IMPLEMENTED - prefetch_size!=0 (5)"):
        channel.basic_qos(prefetch_size=5)
