"""Priority queues: the most urgent first, and in order among equals."""

from __future__ import annotations

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.dialogue import Inbox, get_bodies


@pytest.fixture
def urgent(channel: BlockingChannel, name: str) -> str:
    channel.queue_declare(name, exclusive=True, arguments={"x-max-priority": 5})
    return name


def publish(channel: BlockingChannel, queue: str, body: bytes, priority: int | None) -> None:
    channel.basic_publish("", queue, body, pika.BasicProperties(priority=priority))


def test_the_most_urgent_comes_first_and_equals_in_order(
    channel: BlockingChannel, urgent: str
) -> None:
    for body, priority in [(b"a", 1), (b"b", 5), (b"c", 1), (b"d", 3), (b"e", 5)]:
        publish(channel, urgent, body, priority)

    assert get_bodies(channel, urgent) == [b"b", b"e", b"d", b"a", b"c"]


def test_no_priority_is_the_least(channel: BlockingChannel, urgent: str) -> None:
    publish(channel, urgent, b"none", None)
    publish(channel, urgent, b"one", 1)
    publish(channel, urgent, b"zero", 0)

    assert get_bodies(channel, urgent) == [b"one", b"none", b"zero"]


def test_over_the_greatest_is_the_greatest(channel: BlockingChannel, urgent: str) -> None:
    publish(channel, urgent, b"five", 5)
    publish(channel, urgent, b"nine", 9)

    assert get_bodies(channel, urgent) == [b"five", b"nine"]


def test_a_queue_without_priorities_keeps_the_order(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, b"low", 0)
    publish(channel, queue, b"high", 5)

    assert get_bodies(channel, queue) == [b"low", b"high"]


def test_a_requeued_message_keeps_its_priority_and_place(
    channel: BlockingChannel, urgent: str
) -> None:
    publish(channel, urgent, b"high", 5)
    publish(channel, urgent, b"higher later", 5)
    publish(channel, urgent, b"low", 1)

    channel.basic_reject(channel.basic_get(urgent)[0].delivery_tag, requeue=True)

    assert get_bodies(channel, urgent) == [b"high", b"higher later", b"low"]


def test_a_consumer_gets_the_urgent_ones_as_it_frees_up(
    channel: BlockingChannel, urgent: str
) -> None:
    channel.basic_qos(prefetch_count=1)
    inbox = Inbox(channel, urgent)
    publish(channel, urgent, b"first", 0)
    (first,) = inbox.take(1)
    publish(channel, urgent, b"low", 1)
    publish(channel, urgent, b"high", 4)

    channel.basic_ack(first.tag)

    assert inbox.take_bodies(1) == [b"high"]


def test_the_priority_is_kept_on_delivery(channel: BlockingChannel, urgent: str) -> None:
    publish(channel, urgent, b"nine", 9)

    assert channel.basic_get(urgent, auto_ack=True)[1].priority == 9
