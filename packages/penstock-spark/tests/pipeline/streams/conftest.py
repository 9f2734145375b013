"""The ways to a stream: Penstock's Arrow ranges, RabbitMQ's chunks, and AMQP to either."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from penstock.wire.amqp091.address import parse_amqp_url
from penstock_spark.rabbitmq.backend import RabbitmqStreamBackend
from penstock_spark.streams.amqp import AmqpStreamBackend
from penstock_spark.streams.arrow import ArrowStreamBackend
from penstock_spark.streams.backend import StreamBackend
from penstock_spark.streams.endpoint import StreamEndpoint, find_endpoint
from tests.peers import Broker, RabbitMQ

_KINDS = {
    "ranges": ArrowStreamBackend,
    "replays": AmqpStreamBackend,
    "chunked": RabbitmqStreamBackend,
}


@dataclass
class Way:
    broker: Broker
    streams: StreamBackend

    @property
    def url(self) -> str:
        return self.broker.url


@pytest.fixture(
    params=[
        ("penstock", "ranges"),
        ("penstock", "replays"),
        pytest.param(("rabbitmq", "replays"), marks=pytest.mark.peer),
        pytest.param(("plugged_rabbitmq", "chunked"), marks=pytest.mark.peer),
        *(
            pytest.param(each, marks=[pytest.mark.peer, pytest.mark.slow])
            for each in (("new_rabbitmq", "replays"), ("new_plugged_rabbitmq", "chunked"))
        ),
    ],
    ids=lambda param: f"{param[1]} of {param[0]}",
)
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    kind, protocol = request.param
    server: Broker = request.getfixturevalue(kind)
    port = server.stream_port if isinstance(server, RabbitMQ) else None
    endpoint = find_endpoint(parse_amqp_url(server.url), None, port)
    if protocol == "replays":
        endpoint = StreamEndpoint(endpoint.address, None)
    streams = endpoint.open()
    assert type(streams) is _KINDS[protocol]
    yield Way(server, streams)
    streams.close()
