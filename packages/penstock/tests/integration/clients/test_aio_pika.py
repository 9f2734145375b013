"""aio-pika: everyday use, and robust connections that live through a restart of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage, AbstractRobustChannel, AbstractRobustConnection

from tests.fixtures import NewPenstock

PATIENCE = 30


@pytest.fixture
async def channel(broker_url: str) -> AsyncIterator[AbstractRobustChannel]:
    connection: AbstractRobustConnection = await aio_pika.connect_robust(broker_url)
    async with connection:
        channel = await connection.channel()
        assert isinstance(channel, AbstractRobustChannel)
        yield channel


async def test_a_message_goes_through_an_exchange_to_an_iterator(
    channel: AbstractRobustChannel, name: str
) -> None:
    exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.TOPIC, auto_delete=True)
    queue = await channel.declare_queue(name, exclusive=True)
    await queue.bind(exchange, "sensors.#")

    message = aio_pika.Message(b"report", headers={"unit": "m"}, content_type="text/plain")
    await exchange.publish(message, "sensors.7.report")

    async with queue.iterator(timeout=PATIENCE) as arrivals:
        async for arrival in arrivals:
            async with arrival.process():
                assert (arrival.body, arrival.headers, arrival.routing_key) == (
                    b"report",
                    {"unit": "m"},
                    "sensors.7.report",
                )
            break


async def test_many_publishes_at_once_are_all_confirmed(
    channel: AbstractRobustChannel, name: str
) -> None:
    queue = await channel.declare_queue(name, exclusive=True)
    bodies = [b"%d" % number for number in range(500)]

    async with asyncio.TaskGroup() as tasks:
        for body in bodies:
            tasks.create_task(
                channel.default_exchange.publish(aio_pika.Message(body), name, timeout=PATIENCE)
            )

    received = [
        arrival.body for arrival in [await queue.get(no_ack=True, timeout=PATIENCE) for _ in bodies]
    ]
    assert sorted(received) == sorted(bodies)


async def test_a_message_nobody_wants_is_an_error(broker_url: str, name: str) -> None:
    async with await aio_pika.connect_robust(broker_url) as connection:
        channel = await connection.channel(on_return_raises=True)

        with pytest.raises(aio_pika.exceptions.PublishError):
            await channel.default_exchange.publish(aio_pika.Message(b""), name, mandatory=True)


async def test_a_rejected_message_comes_again(channel: AbstractRobustChannel, name: str) -> None:
    queue = await channel.declare_queue(name, exclusive=True)
    await channel.default_exchange.publish(aio_pika.Message(b"job"), name)

    first = await queue.get(timeout=PATIENCE)
    assert first is not None
    await first.reject(requeue=True)
    again = await queue.get(timeout=PATIENCE)

    assert again is not None
    assert (again.body, again.redelivered) == (b"job", True)


async def test_a_transaction_commits(broker_url: str, name: str) -> None:
    async with await aio_pika.connect_robust(broker_url) as connection:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue(name, exclusive=True)

        async with channel.transaction():
            await channel.default_exchange.publish(aio_pika.Message(b"together"), name)

        arrival = await queue.get(timeout=PATIENCE)
        assert arrival.body == b"together"


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_robust_connection_lives_through_a_restart(
    new_penstock: NewPenstock, name: str, how: str
) -> None:
    broker = new_penstock()
    arrivals: asyncio.Queue[bytes] = asyncio.Queue()

    async def consume(message: AbstractIncomingMessage) -> None:
        async with message.process():
            arrivals.put_nowait(message.body)

    connection = await aio_pika.connect_robust(broker.url, reconnect_interval=0.2)
    async with connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.FANOUT)
        queue = await channel.declare_queue(name, durable=True)
        await queue.bind(exchange)
        await queue.consume(consume)
        await exchange.publish(aio_pika.Message(b"before"), "")
        assert await asyncio.wait_for(arrivals.get(), PATIENCE) == b"before"

        back = asyncio.Event()
        connection.reconnect_callbacks.add(lambda *_: back.set())
        await asyncio.to_thread(getattr(broker, how))
        await asyncio.to_thread(broker.start)
        await asyncio.wait_for(back.wait(), PATIENCE)

        await exchange.publish(aio_pika.Message(b"after"), "", timeout=PATIENCE)
        assert await asyncio.wait_for(arrivals.get(), PATIENCE) == b"after"
