"""Brokers that speak AMQP 1.0, and the clients that talk to them.

`amqp10_broker` runs a test against Penstock and against RabbitMQ's plugin for 1.0, which is less: a
test of what only Penstock has asks for `penstock`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.peers import Broker, Penstock


@pytest.fixture(
    scope="session",
    params=["penstock", pytest.param("plugged_rabbitmq", marks=pytest.mark.peer, id="rabbitmq")],
)
def amqp10_broker(request: pytest.FixtureRequest) -> Broker:
    server: Broker = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def channel(amqp10_broker: Broker) -> Iterator[BlockingChannel]:
    """The same broker over AMQP 0-9-1."""
    connection = pika.BlockingConnection(pika.URLParameters(amqp10_broker.url))
    yield connection.channel()
    connection.close()


@pytest.fixture
def penstock_channel(penstock: Penstock) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(penstock.url))
    yield connection.channel()
    connection.close()
