"""Connections to the broker under test, by pika, closed when the test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from tests.integration.amqp091.dialogue import get_body
from tests.integration.amqp091.differences import rabbitmq_4_difference
from tests.integration.amqp091.wire import Wire
from tests.peers import Broker

Connect = Callable[..., pika.BlockingConnection]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "integration/amqp091" in item.nodeid and (why := rabbitmq_4_difference(item.name)):
            item.add_marker(pytest.mark.xfail(reason=why, strict=True))


@pytest.fixture
def connect(broker: Broker) -> Iterator[Connect]:
    """Open a connection; keyword arguments are pika's connection parameters."""
    opened: list[pika.BlockingConnection] = []

    def open_one(**parameters: Any) -> pika.BlockingConnection:
        wanted = pika.URLParameters(broker.url)
        for key, value in parameters.items():
            setattr(wanted, key, value)
        connection = pika.BlockingConnection(wanted)
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        if connection.is_open:
            with suppress(AMQPError):
                connection.close()


@pytest.fixture
def connection(connect: Connect) -> pika.BlockingConnection:
    return connect()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    """A channel in confirm mode: when `basic_publish` returns, the message is in its queues."""
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


@pytest.fixture
def plain_channel(connection: pika.BlockingConnection) -> BlockingChannel:
    """A channel without confirms: `basic_publish` returns at once."""
    return connection.channel()


@pytest.fixture
def queue(channel: BlockingChannel, name: str) -> str:
    """A transient queue that goes with the test's connection."""
    channel.queue_declare(name, exclusive=True)
    return name


@pytest.fixture
def exchange(channel: BlockingChannel, name: str) -> Iterator[str]:
    """A fanout exchange; it goes when its last binding does."""
    exchange = f"{name}.exchange"
    channel.exchange_declare(exchange, "fanout")
    yield exchange
    with suppress(AMQPError):
        channel.connection.channel().exchange_delete(exchange)


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    """A plain connection on which nothing has been said."""
    with Wire(broker.port) as plain:
        yield plain


@pytest.fixture
def open_wire(wire: Wire) -> Wire:
    """A plain connection that is open, with channel 1."""
    wire.negotiate()
    wire.open_channel()
    return wire


@pytest.fixture
def bystander(channel: BlockingChannel, queue: str) -> Iterator[None]:
    """Another client, who is served as before when the test is over."""
    yield
    channel.basic_publish("", queue, b"still here")
    assert get_body(channel, queue) == b"still here"
