"""The ways to a stream: Penstock's Arrow ranges, RabbitMQ's chunks, and AMQP to either."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from penstock.pipeline.brokers.chunked import Chunked
from penstock.pipeline.brokers.contract import Streams
from penstock.pipeline.brokers.opening import Door, find_door
from penstock.pipeline.brokers.ranges import ArrowRanges
from penstock.pipeline.brokers.replays import Replays
from penstock.wire.amqp091.address import parse_address
from tests.peers import Broker, RabbitMQ

_KINDS = {"ranges": ArrowRanges, "replays": Replays, "chunked": Chunked}


@dataclass
class Way:
    broker: Broker
    streams: Streams

    @property
    def url(self) -> str:
        return self.broker.url


@pytest.fixture(
    params=[
        ("penstock", "ranges"),
        ("penstock", "replays"),
        pytest.param(("rabbitmq", "replays"), marks=pytest.mark.peer),
        pytest.param(("plugged_rabbitmq", "chunked"), marks=pytest.mark.peer),
    ],
    ids=lambda param: f"{param[1]} of {param[0]}",
)
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    kind, protocol = request.param
    server: Broker = request.getfixturevalue(kind)
    port = server.stream_port if isinstance(server, RabbitMQ) else None
    door = find_door(parse_address(server.url), None, port)
    if protocol == "replays":
        door = Door(door.address, None)
    streams = door.open()
    assert type(streams) is _KINDS[protocol]
    yield Way(server, streams)
    streams.close()
