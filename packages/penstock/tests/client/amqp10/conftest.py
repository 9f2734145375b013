"""A fabric over AMQP 1.0, and a line to the broker that a test may cut."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from penstock.client import Fabric, connect
from tests.client.line import Line
from tests.peers import Penstock


def url_of(port: int) -> str:
    return f"amqp+1.0://guest:guest@127.0.0.1:{port}/"


@pytest.fixture
def url(penstock: Penstock) -> str:
    return url_of(penstock.port)


@pytest.fixture
async def fabric(url: str) -> AsyncIterator[Fabric]:
    async with connect(url) as fabric:
        yield fabric


@pytest.fixture
async def other(penstock: Penstock) -> AsyncIterator[Fabric]:
    """The same broker over AMQP 0-9-1."""
    async with connect(penstock.url) as fabric:
        yield fabric


@pytest.fixture
async def line(penstock: Penstock) -> AsyncIterator[Line]:
    async with Line(penstock.port) as line:
        yield line
