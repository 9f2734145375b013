"""Consuming: tags, fair turns, priorities, exclusivity, the single active one, cancellation."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pika import spec
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.conftest import Connect
from tests.integration.amqp091.dialogue import Inbox, channel_error, count, until, wait_on
from tests.integration.amqp091.wire import Wire


def test_deliveries_are_numbered_from_one(channel: BlockingChannel, queue: str) -> None:
    inbox = Inbox(channel, queue)
    for _ in range(3):
        channel.basic_publish("", queue, b"")

    assert [arrival.tag for arrival in inbox.take(3)] == [1, 2, 3]


def test_a_delivery_says_where_it_comes_from(channel: BlockingChannel, queue: str) -> None:
    channel.queue_bind(queue, "amq.topic", f"{queue}.#")
    inbox = Inbox(channel, queue, consumer_tag="mine")

    channel.basic_publish("amq.topic", f"{queue}.key", b"")

    (arrival,) = inbox.take(1)
    method = arrival.method
    assert (method.consumer_tag, method.exchange, method.routing_key, method.redelivered) == (
        "mine",
        "amq.topic",
        f"{queue}.key",
        False,
    )


def test_a_consumer_without_a_tag_gets_one(open_wire: Wire) -> None:
    open_wire.call(1, spec.Queue.Declare(queue="", exclusive=True))

    answer = open_wire.call(1, spec.Basic.Consume(queue=""))

    assert answer.consumer_tag.startswith("amq.ctag-")


def test_a_tag_in_use_closes_the_connection(open_wire: Wire) -> None:
    open_wire.call(1, spec.Queue.Declare(queue="", exclusive=True))
    open_wire.call(1, spec.Basic.Consume(queue="", consumer_tag="mine"))

    answer = open_wire.call(1, spec.Basic.Consume(queue="", consumer_tag="mine"))

    assert (answer.reply_code, answer.reply_text) == (
        530,
        "NOT_ALLOWED - attempt to reuse consumer tag 'mine'",
    )


def test_another_channel_may_use_the_same_tag(
    connection: pika.BlockingConnection, queue: str
) -> None:
    for _ in range(2):
        Inbox(connection.channel(), queue, consumer_tag="mine")


def test_consuming_a_missing_queue_is_a_404(channel: BlockingChannel, name: str) -> None:
    with channel_error(404, f"NOT_FOUND - no queue '{name}' in vhost '/'"):
        Inbox(channel, name)


def test_consumers_take_turns(channel: BlockingChannel, queue: str) -> None:
    first, second = Inbox(channel, queue), Inbox(channel, queue)

    for number in range(6):
        channel.basic_publish("", queue, b"%d" % number)

    assert sorted([first.take_bodies(3), second.take_bodies(3)]) == [
        [b"0", b"2", b"4"],
        [b"1", b"3", b"5"],
    ]


def test_no_ack_leaves_nothing_behind(channel: BlockingChannel, queue: str) -> None:
    channel.basic_publish("", queue, b"once")
    inbox = Inbox(channel, queue, auto_ack=True)
    inbox.take(1)

    channel.basic_cancel(inbox.tag)
    channel.basic_recover(requeue=True)

    assert channel.basic_get(queue)[0] is None


def test_a_cancelled_consumer_gets_nothing_more(channel: BlockingChannel, queue: str) -> None:
    inbox = Inbox(channel, queue)

    channel.basic_cancel(inbox.tag)
    channel.basic_publish("", queue, b"too late")

    assert inbox.settle() == []
    assert count(channel, queue) == 1


def test_what_a_cancelled_consumer_has_stays_unacknowledged(
    channel: BlockingChannel, queue: str
) -> None:
    inbox = Inbox(channel, queue)
    channel.basic_publish("", queue, b"held")
    (held,) = inbox.take(1)

    channel.basic_cancel(inbox.tag)
    assert count(channel, queue) == 0
    channel.basic_ack(held.tag)

    channel.queue_declare(queue, passive=True)


def test_cancelling_an_unknown_tag_is_answered(open_wire: Wire) -> None:
    answer = open_wire.call(1, spec.Basic.Cancel(consumer_tag="nobody"))

    assert (answer.NAME, answer.consumer_tag) == ("Basic.CancelOk", "nobody")


def test_an_exclusive_consumer_keeps_others_out(channel: BlockingChannel, queue: str) -> None:
    Inbox(channel, queue, exclusive=True)

    complaint = f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"
    with channel_error(403, complaint):
        Inbox(channel, queue)


def test_a_consumer_cannot_be_exclusive_beside_another(
    channel: BlockingChannel, queue: str
) -> None:
    Inbox(channel, queue)

    with channel_error(403, f"queue '{queue}' in vhost '/' in exclusive use"):
        Inbox(channel, queue, exclusive=True)


def test_a_consumer_of_higher_priority_goes_first(channel: BlockingChannel, queue: str) -> None:
    low = Inbox(channel, queue)
    high = Inbox(channel, queue, arguments={"x-priority": 10})

    for number in range(4):
        channel.basic_publish("", queue, b"%d" % number)

    assert high.take_bodies(4) == [b"0", b"1", b"2", b"3"]
    assert low.settle() == []


def test_a_busy_consumer_of_higher_priority_leaves_the_rest(
    channel: BlockingChannel, queue: str
) -> None:
    low = Inbox(channel, queue)
    channel.basic_qos(prefetch_count=1)
    high = Inbox(channel, queue, arguments={"x-priority": 10})

    for number in range(3):
        channel.basic_publish("", queue, b"%d" % number)

    assert high.take_bodies(1) == [b"0"]
    assert low.take_bodies(2) == [b"1", b"2"]


def test_one_consumer_is_active_at_a_time(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-single-active-consumer": True})
    first, second = Inbox(channel, name), Inbox(channel, name)

    for number in range(3):
        channel.basic_publish("", name, b"%d" % number)
    assert first.take_bodies(3) == [b"0", b"1", b"2"]
    assert second.settle() == []

    channel.basic_cancel(first.tag)
    channel.basic_publish("", name, b"next")
    wait_on(channel, lambda: b"next" in second.bodies)


@pytest.mark.parametrize("end", ["channel", "connection"])
def test_the_next_active_consumer_begins_with_what_the_last_left_unanswered(
    channel: BlockingChannel, connect: Connect, name: str, end: str
) -> None:
    channel.queue_declare(name, arguments={"x-single-active-consumer": True})
    leaving = connect().channel()
    leaving.basic_qos(prefetch_count=3)
    first = Inbox(leaving, name)
    second = Inbox(channel, name)
    for number in range(6):
        channel.basic_publish("", name, b"%d" % number)
    assert first.take_bodies(3) == [b"0", b"1", b"2"]

    (leaving if end == "channel" else leaving.connection).close()

    arrivals = second.take(6)
    assert [arrival.body for arrival in arrivals] == [b"%d" % number for number in range(6)]
    assert [arrival.method.redelivered for arrival in arrivals] == [True] * 3 + [False] * 3
    channel.queue_delete(name)


def test_a_single_active_queue_has_no_exclusive_consumers(
    channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-single-active-consumer": True})

    with channel_error(403, "in exclusive use"):
        Inbox(channel, name, exclusive=True)


def test_a_consumer_hears_when_its_queue_is_deleted(
    channel: BlockingChannel, connect: Connect, name: str
) -> None:
    channel.queue_declare(name)
    cancelled: list[Any] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    inbox = Inbox(channel, name)

    connect().channel().queue_delete(name)

    wait_on(channel, lambda: cancelled == [inbox.tag])


def test_a_client_that_cannot_hear_it_is_not_told(wire: Wire, connect: Connect, name: str) -> None:
    wire.negotiate(capabilities={})
    wire.open_channel()
    wire.call(1, spec.Queue.Declare(queue=name))
    wire.call(1, spec.Basic.Consume(queue=name))

    connect().channel().queue_delete(name)

    wire.ping()


def test_closing_a_channel_gives_back_what_it_held(
    connection: pika.BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    worker = connection.channel()
    inbox = Inbox(worker, queue)
    for number in range(3):
        channel.basic_publish("", queue, b"%d" % number)
    inbox.take(3)

    worker.close()

    until(lambda: count(channel, queue) == 3)
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (method.redelivered, body) == (True, b"0")


@pytest.mark.parametrize("count_", [1, 50])
def test_order_is_kept_from_one_publisher_to_one_consumer(
    plain_channel: BlockingChannel, queue: str, count_: int
) -> None:
    inbox = Inbox(plain_channel, queue, auto_ack=True)
    bodies = [b"%d" % number for number in range(count_)]

    for body in bodies:
        plain_channel.basic_publish("", queue, body)

    assert inbox.take_bodies(count_) == bodies
