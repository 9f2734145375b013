"""A fabric over each broker, and a line to it that a test may cut."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from penstock.client import Fabric, connect
from tests.client.line import Line
from tests.peers import Broker


@pytest.fixture
async def fabric(broker_url: str) -> AsyncIterator[Fabric]:
    async with connect(broker_url) as fabric:
        yield fabric


@pytest.fixture
async def line(broker: Broker) -> AsyncIterator[Line]:
    async with Line(broker.port) as line:
        yield line
