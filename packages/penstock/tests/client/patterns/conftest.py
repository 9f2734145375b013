"""The fabric in every way that keeps all of its promises: AMQP 0-9-1 over each broker, AMQP 1.0."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from penstock.client import Fabric, connect
from tests.client.line import Line
from tests.peers import Broker


@dataclass(frozen=True, slots=True)
class Way:
    broker: Broker
    scheme: str

    def url(self, port: int | None = None) -> str:
        return f"{self.scheme}://guest:guest@127.0.0.1:{port or self.broker.port}/%2F"


@pytest.fixture(
    params=[
        pytest.param(("penstock", "amqp"), id="penstock"),
        pytest.param(("rabbitmq", "amqp"), id="rabbitmq", marks=pytest.mark.peer),
        pytest.param(("penstock", "amqp+1.0"), id="penstock-1.0"),
    ]
)
def way(request: pytest.FixtureRequest) -> Way:
    broker, scheme = request.param
    return Way(request.getfixturevalue(broker), scheme)


@pytest.fixture
async def fabric(way: Way) -> AsyncIterator[Fabric]:
    async with connect(way.url()) as fabric:
        yield fabric


@pytest.fixture
async def other(way: Way) -> AsyncIterator[Fabric]:
    """The same broker over AMQP 0-9-1, for what the patterns have no word for."""
    async with connect(way.broker.url) as fabric:
        yield fabric


@pytest.fixture
async def line(way: Way) -> AsyncIterator[Line]:
    async with Line(way.broker.port, way.scheme) as line:
        yield line
