"""A server of gates for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.server.websocket.connections import Server


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(timeout=30, tls=None).running() as running:
        yield running
