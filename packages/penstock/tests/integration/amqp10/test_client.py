"""Penstock's own client over AMQP 1.0, against RabbitMQ's plugin as well.

RabbitMQ's plugin of 3.10 has no relay, no filters and no queues of one's own by name, so what is
told here is push/pull and publish/subscribe; `tests/client/amqp10` has all of it for Penstock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from penstock.client import Fabric, connect
from penstock.core.errors import AuthenticationFailed
from tests.peers import Broker, Penstock, RabbitMQ


@pytest.fixture
async def fabric(amqp10_broker: Broker) -> AsyncIterator[Fabric]:
    async with connect(f"amqp+1.0://guest:guest@127.0.0.1:{amqp10_broker.port}/%2F") as fabric:
        yield fabric


@pytest.fixture
async def other(amqp10_broker: Broker) -> AsyncIterator[Fabric]:
    async with connect(amqp10_broker.url) as fabric:
        yield fabric


async def test_what_is_pushed_is_pulled(fabric: Fabric, name: str) -> None:
    async with fabric.push(name) as work:
        for number in range(100):
            await work.post(number)
    async with fabric.pull(name, prefetch=10) as items:
        seen = []
        async for item in items:
            seen.append(item.json())
            if len(seen) == 100:
                break
    assert seen == list(range(100))


async def test_what_is_published_is_subscribed_to(fabric: Fabric, name: str) -> None:
    async with fabric.subscribe(f"{name}.*") as prices:
        await fabric.publish(f"{name}.oil", {"usd": 61}, message_id="one")
        message = await prices.receive()
        assert message.json() == {"usd": 61}
        assert message.message_id == "one"
        assert message.content_type == "application/json"


async def test_what_is_rejected_does_not_come_again(fabric: Fabric, name: str) -> None:
    for number in range(2):
        await fabric.push(name).send(number)
    async with fabric.pull(name, prefetch=1) as items:
        await (await items.receive()).reject()
        item = await items.receive()
        assert item.json() == 1
        await item.ack()


async def test_it_meets_the_client_of_0_9_1(fabric: Fabric, other: Fabric, name: str) -> None:
    await fabric.push(name).send({"from": "1.0"})
    async with other.pull(name) as items:
        item = await items.receive()
        assert (item.json(), item.content_type) == ({"from": "1.0"}, "application/json")
        await item.ack()
    await other.push(name).send({"from": "0-9-1"})
    async with fabric.pull(name) as items:
        item = await items.receive()
        assert (item.json(), item.content_type) == ({"from": "0-9-1"}, "application/json")
        await item.ack()


async def test_a_large_message_arrives_whole(fabric: Fabric, name: str) -> None:
    body = bytes(range(256)) * 8192
    await fabric.push(name).send(body)
    async with fabric.pull(name) as items:
        item = await items.receive()
        assert item.body == body
        await item.ack()


async def test_a_wrong_password_is_told_apart(amqp10_broker: Broker) -> None:
    with pytest.raises(AuthenticationFailed, match="guest"):
        await connect(f"amqp+1.0://guest:wrong@127.0.0.1:{amqp10_broker.port}/").open()


async def test_work_moves_from_one_broker_to_the_other_and_back(
    penstock: Penstock, plugged_rabbitmq: RabbitMQ, name: str
) -> None:
    async with (
        connect(f"amqp+1.0://guest:guest@127.0.0.1:{penstock.port}/") as ours,
        connect(f"amqp+1.0://guest:guest@127.0.0.1:{plugged_rabbitmq.port}/") as theirs,
    ):
        await ours.push(name).send("there and back", message_id="m-1")
        for source, sink in ((ours, theirs), (theirs, ours)):
            async with source.pull(name) as items:
                item = await items.receive()
                await sink.push(name).send(item.body, message_id=item.message_id)
                await item.ack()
        async with ours.pull(name) as items:
            item = await items.receive()
            assert (item.text, item.message_id) == ("there and back", "m-1")
            await item.ack()
