"""Acknowledging, rejecting and putting back: what each does to what is out and what is ready."""

from __future__ import annotations

import pytest
from pika import spec
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.conftest import Connect
from tests.integration.amqp091.dialogue import (
    Arrival,
    Inbox,
    channel_error,
    count,
    get_bodies,
    round_trip,
    until,
)
from tests.integration.amqp091.wire import Wire


def hold(channel: BlockingChannel, queue: str, number: int) -> list[int]:
    """Publish and take that many without acknowledging; their tags."""
    for each in range(number):
        channel.basic_publish("", queue, b"%d" % each)
    return [channel.basic_get(queue)[0].delivery_tag for _ in range(number)]


def left_after_recovery(channel: BlockingChannel, queue: str) -> list[bytes]:
    """What is ready once all that was not acknowledged has been put back."""
    channel.basic_recover(requeue=True)
    return get_bodies(channel, queue)


def test_an_acknowledged_message_is_gone(channel: BlockingChannel, queue: str) -> None:
    tags = hold(channel, queue, 3)

    channel.basic_ack(tags[1])

    assert left_after_recovery(channel, queue) == [b"0", b"2"]


def test_multiple_acknowledges_up_to_the_tag(channel: BlockingChannel, queue: str) -> None:
    tags = hold(channel, queue, 3)

    channel.basic_ack(tags[1], multiple=True)

    assert left_after_recovery(channel, queue) == [b"2"]


def test_zero_with_multiple_acknowledges_all(channel: BlockingChannel, queue: str) -> None:
    hold(channel, queue, 3)

    channel.basic_ack(0, multiple=True)

    assert left_after_recovery(channel, queue) == []


def test_zero_with_multiple_and_nothing_out_is_fine(channel: BlockingChannel) -> None:
    channel.basic_ack(0, multiple=True)

    round_trip(channel)
    assert channel.is_open


@pytest.mark.parametrize("multiple", [False, True])
def test_an_unknown_tag_is_a_406(channel: BlockingChannel, multiple: bool) -> None:
    with channel_error(406, "PRECONDITION_FAILED - unknown delivery tag 99"):
        channel.basic_ack(99, multiple=multiple)
        round_trip(channel)
    assert channel.is_closed


def test_acknowledging_twice_is_a_406(channel: BlockingChannel, queue: str) -> None:
    (tag,) = hold(channel, queue, 1)
    channel.basic_ack(tag)

    with channel_error(406, f"PRECONDITION_FAILED - unknown delivery tag {tag}"):
        channel.basic_ack(tag)
        round_trip(channel)
    assert channel.is_closed


def test_rejecting_an_unknown_tag_is_a_406(channel: BlockingChannel) -> None:
    with channel_error(406, "PRECONDITION_FAILED - unknown delivery tag 99"):
        channel.basic_reject(99)
        round_trip(channel)
    assert channel.is_closed


def test_a_rejected_message_is_gone(channel: BlockingChannel, queue: str) -> None:
    tags = hold(channel, queue, 2)

    channel.basic_reject(tags[0], requeue=False)

    assert left_after_recovery(channel, queue) == [b"1"]


def test_nack_multiple_rejects_up_to_the_tag(channel: BlockingChannel, queue: str) -> None:
    tags = hold(channel, queue, 3)

    channel.basic_nack(tags[1], multiple=True, requeue=False)

    assert left_after_recovery(channel, queue) == [b"2"]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_requeued_message_goes_back_to_its_place(
    channel: BlockingChannel, queue: str, which: int
) -> None:
    tags = hold(channel, queue, 3)
    channel.basic_publish("", queue, b"3")

    channel.basic_reject(tags[which], requeue=True)

    assert get_bodies(channel, queue) == [b"%d" % which, b"3"]


def test_nack_multiple_with_requeue_keeps_the_order(channel: BlockingChannel, queue: str) -> None:
    tags = hold(channel, queue, 3)
    channel.basic_publish("", queue, b"3")

    channel.basic_nack(tags[2], multiple=True, requeue=True)

    assert get_bodies(channel, queue) == [b"0", b"1", b"2", b"3"]


def test_requeued_one_by_one_in_any_order_they_keep_their_places(
    channel: BlockingChannel, queue: str
) -> None:
    tags = hold(channel, queue, 4)

    for which in (2, 0, 3, 1):
        channel.basic_nack(tags[which], requeue=True)

    assert get_bodies(channel, queue) == [b"0", b"1", b"2", b"3"]


def test_only_what_was_delivered_before_is_marked_redelivered(
    channel: BlockingChannel, queue: str
) -> None:
    (tag,) = hold(channel, queue, 1)
    channel.basic_publish("", queue, b"fresh")
    channel.basic_nack(tag, requeue=True)

    marks = [channel.basic_get(queue)[0].redelivered for _ in range(2)]

    assert marks == [True, False]


def test_a_requeued_message_goes_to_another_consumer(
    channel: BlockingChannel, connect: Connect, name: str
) -> None:
    channel.queue_declare(name)
    first = Inbox(channel, name)
    channel.basic_publish("", name, b"job")
    (job,) = first.take(1)
    second = Inbox(connect().channel(), name)
    channel.basic_cancel(first.tag)

    channel.basic_nack(job.tag, requeue=True)
    channel.connection.process_data_events(0)

    (again,) = second.take(1)
    assert (again.body, again.method.redelivered) == (b"job", True)
    channel.queue_delete(name)


def test_recover_delivers_again_to_the_consumer(channel: BlockingChannel, queue: str) -> None:
    inbox = Inbox(channel, queue)
    for number in range(3):
        channel.basic_publish("", queue, b"%d" % number)
    inbox.take(3)

    channel.basic_recover(requeue=True)

    again: list[Arrival] = inbox.take(3)
    assert [arrival.body for arrival in again] == [b"0", b"1", b"2"]
    assert all(arrival.method.redelivered for arrival in again)


def test_a_closed_connection_gives_back_what_it_held(
    channel: BlockingChannel, connect: Connect, name: str
) -> None:
    channel.queue_declare(name)
    worker = connect()
    hold(worker.channel(), name, 2)
    assert count(channel, name) == 0

    worker.close()

    until(lambda: count(channel, name) == 2)
    channel.queue_delete(name)


def test_a_lost_connection_gives_back_what_it_held(
    channel: BlockingChannel, open_wire: Wire, name: str
) -> None:
    channel.queue_declare(name)
    channel.basic_publish("", name, b"held")
    open_wire.call(1, spec.Basic.Get(queue=name))
    assert count(channel, name) == 0

    open_wire.socket.close()

    until(lambda: count(channel, name) == 1)
    channel.queue_delete(name)


def test_tags_belong_to_their_channel(
    channel: BlockingChannel, plain_channel: BlockingChannel, queue: str
) -> None:
    (tag,) = hold(channel, queue, 1)

    with channel_error(406, f"unknown delivery tag {tag}"):
        plain_channel.basic_ack(tag)
        round_trip(plain_channel)
    assert channel.is_open
