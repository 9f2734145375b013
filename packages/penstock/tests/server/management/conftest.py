"""A broker in the test's own process, and clients of its management API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aio_pika
import httpx
import pytest
from aio_pika.abc import AbstractConnection

from penstock.core.config import BrokerSettings
from penstock.server import Broker

As = Callable[[str, str], httpx.AsyncClient]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker that listens for AMQP and for HTTP."""
    settings = BrokerSettings(listen=["amqp://127.0.0.1:0", "http://127.0.0.1:0"])
    async with Broker(settings, data=tmp_path / "data") as broker:
        yield broker


@pytest.fixture
async def as_user(served: Broker) -> AsyncIterator[As]:
    """Clients of the API, by name and password; they are closed when the test ends."""
    opened: list[httpx.AsyncClient] = []

    def client(name: str, password: str) -> httpx.AsyncClient:
        made = httpx.AsyncClient(
            base_url=f"{served.addresses[1]}/api", auth=(name, password), timeout=60
        )
        opened.append(made)
        return made

    yield client
    for made in opened:
        await made.aclose()


@pytest.fixture
def api(as_user: As) -> httpx.AsyncClient:
    """The API as guest, who administers."""
    return as_user("guest", "guest")


@pytest.fixture
async def amqp(served: Broker) -> AsyncIterator[AbstractConnection]:
    url = served.addresses[0].replace("://", "://guest:guest@") + "/"
    connection = await aio_pika.connect(url)
    yield connection
    await connection.close()
