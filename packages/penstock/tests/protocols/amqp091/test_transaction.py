"""What a transaction holds counts against the broker's memory budget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractConnection
from pika import spec

from penstock.core.config import BrokerSettings
from penstock.server.broker import Broker
from tests.integration.amqp091.wire import BODY, Wire, frame_bytes, header_bytes, method_bytes

BUDGET = 4 << 20
MESSAGE = aio_pika.Message(bytes(100_000))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    settings = BrokerSettings(
        listen=["amqp://127.0.0.1:0"], drain_seconds=0.1, memory_budget=BUDGET
    )
    async with Broker(settings, data=tmp_path) as broker:
        broker.vhosts["/"].declare_queue("q")
        yield broker


@pytest.fixture
async def connection(broker: Broker) -> AsyncIterator[AbstractConnection]:
    url = broker.addresses[0].replace("://", "://guest:guest@")
    connection = await aio_pika.connect(url)
    yield connection
    await connection.close()


@pytest.fixture
async def channel(connection: AbstractConnection) -> AbstractChannel:
    return await connection.channel(publisher_confirms=False)


def used(broker: Broker) -> int:
    return broker.kernel.pool.used


async def publish(channel: AbstractChannel, count: int) -> None:
    for _ in range(count):
        await channel.default_exchange.publish(MESSAGE, "q")
    await channel.set_qos(0)  # an answer: they have been read


async def test_what_waits_for_a_commit_is_charged_until_then(
    broker: Broker, channel: AbstractChannel
) -> None:
    before = used(broker)
    transaction = channel.transaction()
    await transaction.select()

    await publish(channel, 10)
    assert 1_000_000 < used(broker) - before < 1_010_000

    await transaction.commit()
    assert 1_000_000 < used(broker) - before < 1_010_000  # by the queue, and once
    broker.vhosts["/"].queues["q"].purge()
    assert used(broker) == before


@pytest.mark.parametrize("end", ["rollback", "close"])
async def test_what_is_given_up_is_charged_no_longer(
    broker: Broker, channel: AbstractChannel, end: str
) -> None:
    before = used(broker)
    transaction = channel.transaction()
    await transaction.select()
    await publish(channel, 10)

    await (transaction.rollback() if end == "rollback" else channel.close())

    assert used(broker) == before


async def test_a_transaction_over_the_budget_fails_and_frees_what_it_held(
    broker: Broker, connection: AbstractConnection, channel: AbstractChannel
) -> None:
    before = used(broker)
    await channel.transaction().select()

    with pytest.raises(aio_pika.exceptions.ChannelPreconditionFailed, match="commit more often"):
        await publish(channel, BUDGET // 100_000 + 1)

    assert used(broker) == before
    await publish(await connection.channel(publisher_confirms=False), 1)
    assert broker.vhosts["/"].queues["q"].message_count == 1


async def test_a_body_is_charged_as_it_comes(broker: Broker) -> None:
    def begin_messages() -> str:
        with Wire(urlsplit(broker.addresses[0]).port or 0) as wire:
            wire.negotiate()
            for number in range(1, BUDGET // 100_000 + 2):
                wire.open_channel(number)
                wire.call(number, spec.Tx.Select())
                wire.send(
                    method_bytes(number, spec.Basic.Publish(routing_key="q"))
                    + header_bytes(number, 200_000)
                    + frame_bytes(BODY, number, bytes(100_000))
                )
            closed = wire.receive_method()
            assert isinstance(closed, spec.Channel.Close)
            return str(closed.reply_text)

    assert "memory budget" in await asyncio.to_thread(begin_messages)
