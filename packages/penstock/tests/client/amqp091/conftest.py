"""Connections to each broker, and what the loop has to say about them in the end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import AmqpClientConnection, connect
from penstock.wire.amqp091.address import parse_amqp_url


@pytest.fixture
async def connection(broker_url: str) -> AsyncIterator[AmqpClientConnection]:
    connection = await connect(parse_amqp_url(broker_url), "a test")
    yield connection
    await connection.close()


@pytest.fixture
async def channel(connection: AmqpClientConnection) -> AmqpClientChannel:
    return await connection.channel()


@pytest.fixture
async def quiet() -> AsyncIterator[None]:
    """Nothing is left behind that the loop complains about."""
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    yield
    gc.collect()
    await asyncio.sleep(0)
    loop.set_exception_handler(None)
    assert complaints == []
