"""Messages that become due while a broker starts are routed when all bindings are restored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from penstock.broker import write_batch
from penstock.core.config import BrokerSettings
from penstock.server import Broker

SETTINGS = BrokerSettings(listen=["amqp://127.0.0.1:0"], drain_seconds=0.1)
DELAY = 0.2


async def connect(broker: Broker) -> Any:
    return await aio_pika.connect(broker.addresses[0].replace("://", "://guest:guest@"))


async def prepare_delayed(channel: Any) -> None:
    arguments = {"x-delayed-type": "direct"}
    later = await channel.declare_exchange(
        "later", "x-delayed-message", durable=True, arguments=arguments
    )
    queue = await channel.declare_queue("results", durable=True)
    await queue.bind(later, "k")
    message = aio_pika.Message(b"x", delivery_mode=2, headers={"x-delay": int(DELAY * 1000)})
    await later.publish(message, "k")


async def prepare_expiring(channel: Any) -> None:
    dead = await channel.declare_exchange("dead", "fanout", durable=True)
    arguments = {"x-dead-letter-exchange": "dead", "x-message-ttl": int(DELAY * 1000)}
    await channel.declare_queue("a", durable=True, arguments=arguments)
    queue = await channel.declare_queue("results", durable=True)
    await queue.bind(dead, "")
    await channel.default_exchange.publish(aio_pika.Message(b"x", delivery_mode=2), "a")


@pytest.mark.parametrize("prepare", [prepare_delayed, prepare_expiring])
async def test_no_message_is_released_before_its_bindings_are_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepare: Any
) -> None:
    async with Broker(SETTINGS, data=tmp_path) as broker, await connect(broker) as connection:
        channel = await connection.channel()
        for number in range(10):
            await channel.declare_queue(f"other-{number}", durable=True)
        await prepare(channel)
    await asyncio.sleep(DELAY)
    monkeypatch.setattr(write_batch, "MAX_BATCH_SECONDS", -1.0)  # the loop runs at every step

    async with Broker(SETTINGS, data=tmp_path) as broker, await connect(broker) as connection:
        channel = await connection.channel()
        queue = await channel.get_queue("results")
        async with asyncio.timeout(10):
            while await queue.get(fail=False) is None:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
