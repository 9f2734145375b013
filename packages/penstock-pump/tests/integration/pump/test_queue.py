"""Queues and exchanges of the pump at a real broker: what becomes of them is mended or told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import connect
from penstock.core.basic_properties import decode_header
from penstock.core.errors import NotFound, PenstockError
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_pump.flow.publisher import ExchangePublisher, PumpOutgoingMessage
from penstock_pump.flow.subscription import PumpBinding, PumpDelivery, QueueSubscription
from tests.peers import Broker


@asynccontextmanager
async def subscription(
    broker: Broker, name: str, **options: Any
) -> AsyncIterator[QueueSubscription]:
    queue = QueueSubscription(broker.url, [PumpBinding(f"x{name}")], f"q{name}", 256, **options)
    await queue.open()
    try:
        yield queue
    finally:
        await queue.close()


@asynccontextmanager
async def channel(broker: Broker) -> AsyncIterator[AmqpClientChannel]:
    connection = await connect(parse_amqp_url(broker.url), "test")
    try:
        yield await connection.channel()
    finally:
        await connection.close()


@pytest.fixture
async def exchanges(broker: Broker) -> AsyncIterator[ExchangePublisher]:
    opened = ExchangePublisher(broker.url)
    await opened.open()
    yield opened
    await opened.close()


def post(name: str, text: str, **facts: Any) -> PumpOutgoingMessage:
    return PumpOutgoingMessage(
        f"x{name}", "v02.post.d", text.encode(), "text/plain", {"n": text}, **facts
    )


async def taken(queue: QueueSubscription, count: int) -> list[PumpDelivery]:
    heard: list[PumpDelivery] = []
    async with asyncio.timeout(60):
        while len(heard) < count:
            heard += await queue.receive()
    return heard


async def test_what_is_sent_is_heard_and_what_is_acknowledged_does_not_come_again(
    broker: Broker, exchanges: ExchangePublisher, name: str
) -> None:
    numbers = [str(each) for each in range(200)]
    async with subscription(broker, name) as queue:
        await asyncio.gather(*(exchanges.send(post(name, each)) for each in numbers[:100]))
        heard = await taken(queue, 100)
        await asyncio.gather(*(exchanges.send(post(name, each)) for each in numbers[100:]))
        for each in heard[::2]:
            await each.ack()
        await asyncio.sleep(0)
    texts = [each.pump_message.headers["n"] for each in heard]
    assert texts == numbers[:100]
    left = sorted({*numbers} - {*texts[::2]})
    async with subscription(broker, name) as queue:
        again = await taken(queue, len(left))
        assert sorted(str(each.pump_message.headers["n"]) for each in again) == left
        for each in again:
            await each.ack()


async def test_a_queue_that_is_deleted_is_made_again(
    broker: Broker, exchanges: ExchangePublisher, name: str
) -> None:
    async with subscription(broker, name) as queue, channel(broker) as other:
        await other.delete_queue(f"q{name}")
        await asyncio.sleep(0)
        sending = asyncio.create_task(_until_heard(exchanges, name))
        assert (await taken(queue, 1))[0].pump_message.topic == "v02.post.d"
        sending.cancel()


async def _until_heard(exchanges: ExchangePublisher, name: str) -> None:
    while True:
        await exchanges.send(post(name, "again"))
        await asyncio.sleep(0.05)


async def test_a_queue_that_was_declared_otherwise_is_taken_as_it_is(
    broker: Broker, exchanges: ExchangePublisher, name: str
) -> None:
    async with channel(broker) as other:
        await other.declare_queue(f"q{name}", arguments={"x-max-length": 7})
        async with subscription(broker, name, expire=60.0) as queue:
            await exchanges.send(post(name, "one"))
            assert len(await taken(queue, 1)) == 1
            assert await queue.queued() == 0


async def test_a_queue_that_nobody_hears_expires_where_it_is_told_to(
    broker: Broker, name: str
) -> None:
    async with subscription(broker, name, expire=0.2):
        pass
    with pytest.raises(NotFound):
        await asyncio.wait_for(_as_long_as_it_is_there(broker, f"q{name}"), 60)


async def _as_long_as_it_is_there(broker: Broker, queue: str) -> None:
    while True:
        async with channel(broker) as other:
            await other.declare_queue(queue, passive=True)
        await asyncio.sleep(0.5)


async def test_a_post_lasts_or_not_as_it_is_told(
    broker: Broker, exchanges: ExchangePublisher, name: str
) -> None:
    async with channel(broker) as other:
        await other.declare_exchange(f"x{name}", "topic")
        await other.declare_queue(f"q{name}")
        await other.bind(f"q{name}", f"x{name}", "#")
        for persistent in (True, False):
            await exchanges.send(post(name, "p", persistent=persistent))
            content = await other.get(f"q{name}", no_ack=True)
            assert content is not None
            assert decode_header(content.header).persistent == persistent


async def test_a_refusal_is_told_and_ends_nothing_else(
    broker: Broker, exchanges: ExchangePublisher, name: str
) -> None:
    with pytest.raises(PenstockError):
        await exchanges.send(PumpOutgoingMessage("amq.nobody-has-this", "v02.post", b"x"))
    async with subscription(broker, name) as queue:
        await exchanges.send(post(name, "after"))
        assert len(await taken(queue, 1)) == 1
