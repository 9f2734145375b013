"""`x-queue-type: quorum` is accepted, so that programs which ask for it run unchanged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.conftest import Connect
from tests.integration.amqp091.dialogue import Inbox, channel_error


@pytest.fixture
def quorum(channel: BlockingChannel, connect: Connect, name: str) -> Iterator[str]:
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
    yield name
    connect().channel().queue_delete(name)


def test_messages_pass_through(channel: BlockingChannel, quorum: str) -> None:
    inbox = Inbox(channel, quorum)

    for number in range(3):
        channel.basic_publish("", quorum, b"%d" % number)

    arrivals = inbox.take(3)
    assert [arrival.body for arrival in arrivals] == [b"0", b"1", b"2"]
    channel.basic_ack(arrivals[-1].tag, multiple=True)


def test_a_requeued_message_comes_again(channel: BlockingChannel, quorum: str) -> None:
    channel.basic_publish("", quorum, b"job")
    channel.basic_nack(channel.basic_get(quorum)[0].delivery_tag, requeue=True)

    (again,) = Inbox(channel, quorum, auto_ack=True).take(1)
    assert (again.method.redelivered, again.body) == (True, b"job")


def test_it_is_durable(channel: BlockingChannel, name: str) -> None:
    with channel_error(406, f"invalid property 'non-durable' for queue '{name}' in vhost '/'"):
        channel.queue_declare(name, arguments={"x-queue-type": "quorum"})


def test_it_is_not_a_classic_queue(channel: BlockingChannel, quorum: str) -> None:
    with channel_error(406, "inequivalent arg 'x-queue-type'"):
        channel.queue_declare(quorum, durable=True, arguments={"x-queue-type": "classic"})
