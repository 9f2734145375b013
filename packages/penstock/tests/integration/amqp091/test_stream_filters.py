"""Filters of stream consumers, which RabbitMQ has since 3.13."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.dialogue import Inbox, channel_error
from tests.peers import Penstock

BODIES = [b"%d" % number for number in range(5)]


@pytest.fixture
def penstock_channel(penstock: Penstock) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(penstock.url))
    yield connection.channel()
    connection.close()


def fill(channel: BlockingChannel, stream: str) -> None:
    """Bodies a to d after the others: two kinds of fruit, and two without a filter value."""
    for body, value in ((b"a", "apple"), (b"b", "banana"), (b"c", None), (b"d", "apple")):
        headers = {"kind": "fruit"} if value is None else {"x-stream-filter-value": value}
        channel.basic_publish("", stream, body, pika.BasicProperties(headers=headers))


@pytest.mark.parametrize(
    ("arguments", "bodies"),
    [
        ({"x-stream-filter": "apple"}, [b"a", b"d"]),
        ({"x-stream-filter": ["apple", "banana"]}, [b"a", b"b", b"d"]),
        ({"x-stream-filter": "cherry", "x-stream-match-unfiltered": True}, [*BODIES, b"c"]),
        ({"x-stream-match-unfiltered": True}, [*BODIES, b"a", b"b", b"c", b"d"]),
    ],
)
def test_a_reader_filters(
    penstock_channel: BlockingChannel, name: str, arguments: dict[str, Any], bodies: list[bytes]
) -> None:
    channel = penstock_channel
    channel.confirm_delivery()
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    for body in BODIES:
        channel.basic_publish("", name, body)
    fill(channel, name)
    channel.basic_qos(prefetch_count=100)
    inbox = Inbox(channel, name, arguments={"x-stream-offset": "first", **arguments})
    assert inbox.take_bodies(len(bodies)) == bodies
    channel.queue_delete(name)


@pytest.mark.parametrize(
    "arguments",
    [{"x-stream-filter": 7}, {"x-stream-filter": []}, {"x-stream-match-unfiltered": "yes"}],
)
def test_a_filter_that_makes_no_sense_is_refused(
    penstock_channel: BlockingChannel, name: str, arguments: dict[str, Any]
) -> None:
    channel = penstock_channel
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    channel.basic_qos(prefetch_count=1)
    with channel_error(406):
        channel.basic_consume(name, lambda *_: None, arguments=arguments)
