"""A connection that mends itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.client.amqp091.connection import AmqpClientConnection, AmqpRecoveringConnection
from penstock.client.errors import BrokerUnreachable, FabricClosed
from penstock.core.basic_properties import BasicProperties
from penstock.core.errors import PenstockError, PreconditionFailed
from penstock.wire.amqp091.address import parse_amqp_url
from tests.client.line import Line
from tests.peers import Penstock, free_port

SECONDS = 60


@pytest.fixture
async def line(penstock: Penstock) -> AsyncIterator[Line]:
    async with Line(penstock.port) as line:
        yield line


class Prepared:
    """Counts connections, and fails on one of them if told so."""

    def __init__(self, error: Exception | None = None) -> None:
        self.count = 0
        self._error = error

    async def __call__(self, connection: AmqpClientConnection) -> None:
        self.count += 1
        if self.count > 1 and self._error is not None:
            raise self._error


async def test_another_is_prepared_when_one_breaks(line: Line, name: str, quiet: None) -> None:
    prepared = Prepared()
    link = AmqpRecoveringConnection(parse_amqp_url(line.url), "a test", prepared)
    await link.open()
    first = await link.connection()
    line.cut()
    async with asyncio.timeout(SECONDS):
        await asyncio.shield(first.lost)
        second = await link.connection()

    assert second is not first
    assert prepared.count == 2
    channel = await second.channel()
    await channel.declare_queue(name, exclusive=True)
    channel.publish("", name, b"after", BasicProperties())
    assert await channel.get(name) is not None
    await link.close()


async def test_it_is_waited_for_while_the_broker_is_away(line: Line, quiet: None) -> None:
    link = AmqpRecoveringConnection(parse_amqp_url(line.url), "a test", Prepared())
    await link.open()
    first = await link.connection()
    await line.down()
    async with asyncio.timeout(SECONDS):
        await asyncio.shield(first.lost)
    waiting = asyncio.create_task(link.connection())
    given_up = asyncio.create_task(link.connection())
    await asyncio.sleep(0)
    assert not link.connected
    given_up.cancel()
    await line.up()
    async with asyncio.timeout(SECONDS):
        assert await waiting is not first
    await link.close()


@pytest.mark.parametrize(
    "error", [PreconditionFailed("declared otherwise"), ValueError("declared otherwise")]
)
async def test_one_that_cannot_be_prepared_again_is_told_to_all(
    line: Line, error: Exception, quiet: None
) -> None:
    link = AmqpRecoveringConnection(parse_amqp_url(line.url), "a test", Prepared(error))
    await link.open()
    first = await link.connection()
    line.cut()
    async with asyncio.timeout(SECONDS):
        await asyncio.shield(first.lost)
        with pytest.raises(PenstockError, match="declared otherwise"):
            await link.connection()
    assert link.failed is not None
    assert "declared otherwise" in str(await link.failed)
    await link.close()


async def test_one_that_is_closed_keeps_nobody_waiting(line: Line, quiet: None) -> None:
    link = AmqpRecoveringConnection(parse_amqp_url(line.url), "a test", Prepared())
    await link.open()
    first = await link.connection()
    await line.down()
    async with asyncio.timeout(SECONDS):
        await asyncio.shield(first.lost)
        waiting = asyncio.create_task(link.connection())
        await asyncio.sleep(0)
        await link.close()
        with pytest.raises(FabricClosed):
            await waiting


async def test_a_broker_that_is_not_there_is_waited_for_no_longer_than_told(quiet: None) -> None:
    link = AmqpRecoveringConnection(
        parse_amqp_url(f"amqp://127.0.0.1:{free_port()}"), "a test", Prepared()
    )

    with pytest.raises(BrokerUnreachable):
        await link.open()
    await link.close()
