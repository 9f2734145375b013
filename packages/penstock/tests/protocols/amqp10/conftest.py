"""A broker in the test's own process, and clients of AMQP 1.0 that come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock.core.config import BrokerSettings
from penstock.server.broker import Broker
from tests.protocols.amqp10.peer import Peer

Connect = Callable[..., Awaitable[Peer]]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    settings = BrokerSettings(
        listen=["amqp://127.0.0.1:0"], drain_seconds=0.1, spool_threshold=16 * 1024
    )
    async with Broker(settings, data=tmp_path) as broker:
        yield broker


@pytest.fixture
def port(broker: Broker) -> int:
    port = urlsplit(broker.addresses[0]).port
    assert port is not None
    return port


@pytest.fixture
async def connect(port: int) -> AsyncIterator[Connect]:
    """Connect as a client, with what the client's open is to say."""
    peers: list[Peer] = []

    async def connect(container: str = "peer", frame_max: int = 65536, **said: Any) -> Peer:
        peer = Peer(container, frame_max)
        peers.append(peer)
        return await peer.connect(port, **said)

    yield connect
    for peer in peers:
        await peer.hang_up()


@pytest.fixture
async def peer(connect: Connect) -> Peer:
    return await connect()
