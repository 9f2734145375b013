"""The three ways to a stream: Arrow ranges of Penstock, and AMQP to Penstock and to RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from penstock.pipeline.amqp.address import parse_url
from penstock.pipeline.brokers.contract import Streams
from penstock.pipeline.brokers.opening import Door, find_door
from penstock.pipeline.brokers.replays import Replays
from tests.peers import Broker


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
    ],
    ids=lambda param: f"{param[1]} of {param[0]}",
)
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    kind, protocol = request.param
    server: Broker = request.getfixturevalue(kind)
    door = find_door(parse_url(server.url), None)
    if protocol == "replays":
        door = Door(door.address, None, None)
    streams = door.open()
    assert isinstance(streams, Replays) is (protocol == "replays")
    yield Way(server, streams)
    streams.close()
