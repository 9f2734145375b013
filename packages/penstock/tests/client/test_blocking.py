"""The client without `async` keeps the same promises under the same names."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator

import pytest

from penstock.client import BrokerUnreachable, NoService, RemoteError, UnknownScheme
from penstock.client import Fabric as AsyncFabric
from penstock.client.blocking_client import (
    BlockingFabric,
    BlockingMessage,
    EventLoopThread,
    connect,
)
from tests.peers import free_port


@pytest.fixture
def fabric(broker_url: str) -> Iterator[BlockingFabric]:
    with connect(broker_url) as fabric:
        yield fabric


def test_it_has_every_name_of_the_other() -> None:
    names = {name for name, _ in inspect.getmembers(AsyncFabric) if not name.startswith("_")}
    assert names - {"amqp", "mqtt"} == {
        name for name, _ in inspect.getmembers(BlockingFabric) if not name.startswith("_")
    }


def test_publish_subscribe(fabric: BlockingFabric, name: str) -> None:
    with fabric.subscribe(f"{name}.*") as prices:
        fabric.publish(f"{name}.oil", {"usd": 61}, headers={"unit": "barrel"})
        message = prices.receive()
        assert (message.json(), message.headers) == ({"usd": 61}, {"unit": "barrel"})


def test_push_pull(fabric: BlockingFabric, name: str) -> None:
    with fabric.push(name) as work:
        for number in range(10):
            work.post(number)
    seen = []
    for item in fabric.pull(name):
        seen.append(item.json())
        if len(seen) == 10:
            break
    assert seen == list(range(10))


def test_an_exception_puts_the_item_back(fabric: BlockingFabric, name: str) -> None:
    fabric.push(name).send(0)

    def divide() -> None:
        for item in fabric.pull(name):
            1 // item.json()

    with pytest.raises(ZeroDivisionError):
        divide()
    with fabric.pull(name) as items:
        assert items.receive().redelivered


def test_a_receipt_tells_when_it_is_safe(fabric: BlockingFabric, name: str) -> None:
    fabric.push(name).post(b"safe").wait()
    with fabric.pull(name) as items:
        assert items.receive().body == b"safe"


def test_a_service_answers_in_threads_that_may_wait(fabric: BlockingFabric, name: str) -> None:
    def relay(request: BlockingMessage) -> bytes:
        return fabric.request(f"{name}.inner", request.body).body

    with (
        fabric.serve(name, relay),
        fabric.serve(f"{name}.inner", lambda request: request.body.upper()),
    ):
        assert fabric.request(name, b"loud").body == b"LOUD"


def test_errors_travel_back(fabric: BlockingFabric, name: str) -> None:
    def fail(request: BlockingMessage) -> bytes:
        raise LookupError("no such hive")

    with fabric.serve(name, fail), pytest.raises(RemoteError, match="no such hive"):
        fabric.request(name)
    with pytest.raises(NoService):
        fabric.request(name)


def test_streams(fabric: BlockingFabric, name: str) -> None:
    fabric.stream(name).send("one")
    fabric.stream(name).send("two")
    with fabric.replay(name, start=1) as replay:
        message = replay.receive()
        assert (message.text, message.offset) == ("two", 1)


def test_a_receive_may_end_by_a_timeout(fabric: BlockingFabric, name: str) -> None:
    with fabric.subscribe(name) as nothing, pytest.raises(TimeoutError):
        nothing.receive(timeout=0.05)


def test_a_fabric_that_does_not_open_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with pytest.raises(BrokerUnreachable):
        connect(f"amqp://127.0.0.1:{free_port()}").open()
    with pytest.raises(UnknownScheme):
        connect("gopher://localhost")
    assert not set(threading.enumerate()) - before


def test_what_is_left_of_a_loop_that_stops_is_cancelled() -> None:
    loop = EventLoopThread()

    async def begin() -> asyncio.Task[None]:
        async def forever() -> None:
            await asyncio.Event().wait()

        return asyncio.create_task(forever())

    task = loop.wait(begin())
    loop.stop()
    assert task.cancelled()
