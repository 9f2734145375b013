"""Brokers that speak AMQP 1.0, and the clients that talk to them.

`amqp10_broker` runs a test against Penstock and against RabbitMQ's plugin for 1.0, which is less: a
test of what only Penstock has asks for `penstock`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.conftest import missing
from tests.peers import Broker, PeerMissing, Penstock, RabbitMQ


@pytest.fixture(scope="session")
def amqp10_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A RabbitMQ that speaks AMQP 1.0 as well, on the same port."""
    try:
        server = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"), plugins=("rabbitmq_amqp1_0",))
    except PeerMissing as peer:
        missing(peer)
        raise
    server.start()
    yield server
    server.stop()


@pytest.fixture(
    scope="session",
    params=["penstock", pytest.param("amqp10_rabbitmq", marks=pytest.mark.peer, id="rabbitmq")],
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
