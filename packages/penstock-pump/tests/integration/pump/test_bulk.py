"""Announcements in bulk: all of them, in order, whatever becomes of the broker meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.client import connect
from penstock.client.errors import BrokerUnreachable
from penstock.core.errors import PenstockError
from penstock_pump.flow.publisher import BulkPostPublisher, PumpOutgoingMessage
from tests.fixtures import NewPenstock
from tests.peers import Broker, free_port

COUNT = 1200


@contextmanager
def opened(url: str) -> Iterator[BulkPostPublisher]:
    with BulkPostPublisher(url, 60.0) as bulk:
        yield bulk


def publish(bulk: BulkPostPublisher, exchange: str, numbers: range) -> None:
    for number in numbers:
        headers = {"n": str(number), "other": 7} if number % 100 == 0 else {"n": str(number)}
        topic, body = f"v02.post.k{number % 7}", f"body {number}".encode()
        bulk.send(PumpOutgoingMessage(exchange, topic, body, "text/plain", headers))


async def heard(url: str, exchange: str, queue: str, count: int) -> list[str]:
    found: list[str] = []
    async with connect(url) as fabric:
        async with fabric.subscribe("v02.#", name=queue, exchange=exchange) as inflow:
            while len(set(found)) < count:
                message = await inflow.receive()
                assert message.text == f"body {message.headers['n']}"
                assert message.address == f"v02.post.k{int(message.headers['n']) % 7}"
                assert message.content_type == "text/plain"
                found.append(str(message.headers["n"]))
                await message.ack()
    return found


async def bound(url: str, exchange: str, queue: str) -> None:
    async with connect(url) as fabric:
        async with fabric.subscribe("v02.#", name=queue, exchange=exchange):
            pass


async def test_all_arrive_once_and_in_order(broker: Broker, name: str) -> None:
    await bound(broker.url, f"x{name}", f"q{name}")
    with opened(broker.url) as bulk:
        await asyncio.to_thread(publish, bulk, f"x{name}", range(COUNT))
        await asyncio.to_thread(bulk.flush)
    found = await heard(broker.url, f"x{name}", f"q{name}", COUNT)
    assert found == [str(number) for number in range(COUNT)]


async def test_none_is_lost_when_the_broker_is_killed(new_penstock: NewPenstock) -> None:
    broker = new_penstock()
    await bound(broker.url, "xb", "qb")
    half = threading.Event()

    def work(bulk: BulkPostPublisher) -> None:
        publish(bulk, "xb", range(COUNT // 2))
        half.set()
        publish(bulk, "xb", range(COUNT // 2, COUNT))
        bulk.flush()

    with opened(broker.url) as bulk:
        working = asyncio.create_task(asyncio.to_thread(work, bulk))
        await asyncio.to_thread(half.wait, 60)
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        async with asyncio.timeout(60):
            await working
    assert set(await heard(broker.url, "xb", "qb", COUNT)) == {str(each) for each in range(COUNT)}


def test_an_exchange_of_another_kind_is_used_as_it_is(broker: Broker) -> None:
    with opened(broker.url) as bulk:
        bulk.send(PumpOutgoingMessage("amq.fanout", "v02.post", b"x", "text/plain"))
        bulk.flush()


def test_what_the_broker_refuses_is_an_error(broker: Broker) -> None:
    def send(bulk: BulkPostPublisher) -> None:
        bulk.send(PumpOutgoingMessage("amq.nobody-has-this", "v02.post", b"x", "text/plain"))
        bulk.flush()

    with opened(broker.url) as bulk, pytest.raises(PenstockError):
        send(bulk)


def test_a_broker_that_is_not_there_is_named() -> None:
    with pytest.raises(BrokerUnreachable):
        BulkPostPublisher(f"amqp://127.0.0.1:{free_port()}/", 0.0)
