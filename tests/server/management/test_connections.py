from __future__ import annotations

import asyncio
from urllib.parse import quote

import httpx
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

from tests.server.management.conftest import As
from tests.server.management.given import user


async def test_a_connection_is_shown(api: httpx.AsyncClient, amqp: AbstractConnection) -> None:
    [row] = (await api.get("/connections")).json()

    assert row["user"] == "guest"
    assert row["vhost"] == "/"
    assert row["state"] == "running"
    assert row["protocol"] == "AMQP 0-9-1"
    assert row["peer_host"] == row["host"] == "127.0.0.1"
    assert (await api.get(f"/connections/{quote(row['name'], safe='')}")).json() == row
    assert (await api.get("/vhosts/%2F/connections")).json() == [row]


async def test_channels_and_consumers_are_shown(
    api: httpx.AsyncClient, amqp: AbstractConnection
) -> None:
    channel = await amqp.channel()
    await channel.set_qos(7)
    queue = await channel.declare_queue("orders")

    async def ignore(_: AbstractIncomingMessage) -> None: ...

    tag = await queue.consume(ignore)

    [row] = (await api.get("/channels")).json()
    one = (await api.get(f"/channels/{quote(row['name'], safe='')}")).json()
    [consumer] = (await api.get("/consumers/%2F")).json()
    connection = quote(row["connection_details"]["name"], safe="")

    assert (row["number"], row["prefetch_count"], row["consumer_count"]) == (1, 7, 1)
    assert one["consumer_details"] == [consumer]
    assert (await api.get(f"/connections/{connection}/channels")).json() == [row]
    assert consumer["consumer_tag"] == tag
    assert consumer["queue"] == {"name": "orders", "vhost": "/"}
    assert consumer["channel_details"]["name"] == row["name"]


async def test_a_connection_can_be_closed(api: httpx.AsyncClient, amqp: AbstractConnection) -> None:
    closed: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    amqp.close_callbacks.add(lambda _, why: closed.set_result(why))
    [row] = (await api.get("/connections")).json()

    name = quote(row["name"], safe="")
    answer = await api.delete(f"/connections/{name}", headers={"x-reason": "enough"})

    assert answer.status_code == 204
    assert "CONNECTION_FORCED - enough" in str(await asyncio.wait_for(closed, 60))


async def test_one_sees_and_closes_only_ones_own(
    api: httpx.AsyncClient, amqp: AbstractConnection, as_user: As
) -> None:
    await user(api, "ada", "management")
    await user(api, "eve", "monitoring")
    [row] = (await api.get("/connections")).json()
    name = quote(row["name"], safe="")

    assert (await as_user("ada", "ada").get("/connections")).json() == []
    assert (await as_user("ada", "ada").delete(f"/connections/{name}")).status_code == 404
    assert len((await as_user("eve", "eve").get("/connections")).json()) == 1
