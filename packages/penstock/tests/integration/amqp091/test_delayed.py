"""The delayed exchange: `x-delay` milliseconds pass before a message is routed.

RabbitMQ has this as a plugin that Debian does not ship, so these run on Penstock alone.
"""

from __future__ import annotations

import time

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.dialogue import Inbox, channel_error
from tests.peers import Penstock


@pytest.fixture
def broker(penstock: Penstock) -> Penstock:
    return penstock


@pytest.fixture
def delayed(channel: BlockingChannel, name: str) -> Inbox:
    """A consumer of a queue bound to a delayed direct exchange of the same name, by key `key`."""
    arguments = {"x-delayed-type": "direct"}
    channel.exchange_declare(name, "x-delayed-message", arguments=arguments, auto_delete=True)
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, name, "key")
    return Inbox(channel, name, auto_ack=True)


def delay(milliseconds: int) -> pika.BasicProperties:
    return pika.BasicProperties(headers={"x-delay": milliseconds})


def test_a_delayed_message_comes_later(channel: BlockingChannel, name: str, delayed: Inbox) -> None:
    began = time.monotonic()
    channel.basic_publish(name, "key", b"later", delay(200))

    assert delayed.settle() == []
    assert delayed.take_bodies(1) == [b"later"]
    assert time.monotonic() - began >= 0.2


def test_a_message_without_a_delay_comes_at_once(
    channel: BlockingChannel, name: str, delayed: Inbox
) -> None:
    channel.basic_publish(name, "key", b"later", delay(100))
    channel.basic_publish(name, "key", b"now")

    assert delayed.take_bodies(2) == [b"now", b"later"]


def test_messages_come_in_the_order_of_their_times(
    channel: BlockingChannel, name: str, delayed: Inbox
) -> None:
    for body, milliseconds in [(b"3", 300), (b"1", 100), (b"2", 200)]:
        channel.basic_publish(name, "key", body, delay(milliseconds))

    assert delayed.take_bodies(3) == [b"1", b"2", b"3"]


def test_the_exchange_routes_as_the_type_it_delays(
    channel: BlockingChannel, name: str, delayed: Inbox
) -> None:
    channel.basic_publish(name, "other", b"nobody's", delay(1))
    channel.basic_publish(name, "key", b"mine", delay(50))

    assert delayed.take_bodies(1) == [b"mine"]


def test_the_delay_is_turned_negative_when_it_is_over(
    channel: BlockingChannel, name: str, delayed: Inbox
) -> None:
    channel.basic_publish(name, "key", b"later", delay(20))

    (arrival,) = delayed.take(1)
    assert arrival.headers["x-delay"] == -20


def test_a_delayed_exchange_needs_a_type_to_delay(channel: BlockingChannel, name: str) -> None:
    with channel_error(406, "x-delayed-type"):
        channel.exchange_declare(name, "x-delayed-message")
