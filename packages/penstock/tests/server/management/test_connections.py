from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from aio_pika import Message
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

from penstock.client import connect
from penstock.client.padres import PadresClient
from penstock.core.config import BrokerSettings
from penstock.server import Broker
from tests.server.management.conftest import As
from tests.server.management.given import user


async def test_a_connection_is_shown(api: httpx.AsyncClient, amqp: AbstractConnection) -> None:
    [row] = (await api.get("/connections")).json()

    assert row["user"] == "guest"
    assert row["vhost"] == "/"
    assert row["state"] == "running"
    assert row["protocol"] == "AMQP 0-9-1"
    assert row["peer_host"] == row["host"] == "127.0.0.1"
    for path in (f"/connections/{quote(row['name'], safe='')}", "/vhosts/%2F/connections"):
        found = (await api.get(path)).json()
        assert (found[0] if isinstance(found, list) else found).keys() == row.keys()


async def test_traffic_and_age_of_a_connection_are_shown(
    api: httpx.AsyncClient, amqp: AbstractConnection
) -> None:
    [row] = (await api.get("/connections")).json()
    assert row["connected_at"] == pytest.approx(time.time() * 1000, abs=600_000)
    assert row["recv_oct"] > 100
    assert row["send_oct"] > 100
    channel = await amqp.channel()
    await channel.default_exchange.publish(Message(b"x" * 100_000), "nowhere", mandatory=False)
    path = f"/connections/{quote(row['name'], safe='')}?columns=recv_oct"
    assert (await api.get(path)).json()["recv_oct"] > row["recv_oct"] + 100_000


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


async def test_consumers_are_paged_and_found_by_tag_queue_or_connection(
    api: httpx.AsyncClient, amqp: AbstractConnection
) -> None:
    async def ignore(_: AbstractIncomingMessage) -> None: ...

    channels = [await amqp.channel(), await amqp.channel()]
    for name in ("orders", "audit"):
        for number, channel in enumerate(channels):
            queue = await channel.declare_queue(name)
            await queue.consume(ignore, consumer_tag=f"{name}-{number}")
    listed = sorted((await api.get("/channels")).json(), key=lambda row: row["number"])
    connection = listed[0]["connection_details"]["name"]
    second = quote(listed[1]["name"], safe="")

    async def tags(path: str) -> list[str]:
        answer = (await api.get(path, params={"page": 1, "sort": "consumer_tag"})).json()
        assert answer["total_count"] == len(answer["items"])
        return [row["consumer_tag"] for row in answer["items"]]

    assert await tags("/queues/%2F/orders/consumers") == ["orders-0", "orders-1"]
    assert await tags(f"/channels/{second}/consumers") == ["audit-1", "orders-1"]
    assert len(await tags(f"/connections/{quote(connection, safe='')}/consumers")) == 4
    assert (await api.get("/queues/%2F/absent/consumers")).status_code == 404
    for name, count in (("audit", 2), ("-1", 2), (connection, 4)):
        page = await api.get("/consumers", params={"page": 1, "name": name})
        assert page.json()["filtered_count"] == count
    [row] = (await api.get("/connections?page=1&name=gues")).json()["items"]
    assert row["user"] == "guest"


async def test_what_no_column_asks_for_is_not_shown(
    api: httpx.AsyncClient, amqp: AbstractConnection
) -> None:
    channel = await amqp.channel()
    await channel.declare_queue("orders")
    [row] = (await api.get("/channels")).json()
    for path in ("/queues/%2F/orders", f"/channels/{quote(row['name'], safe='')}"):
        assert (await api.get(f"{path}?columns=consumer_details")).json() == {
            "consumer_details": []
        }
        assert (await api.get(f"{path}?columns=vhost")).json() == {"vhost": "/"}


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


@asynccontextmanager
async def _subscribed(scheme: str, url: str) -> AsyncIterator[None]:
    if scheme == "padres":
        async with PadresClient(url) as client:
            await client.subscribe("[class,eq,stock]")
            yield
    else:
        async with connect(url) as fabric, fabric.subscribe("orders"):
            yield


@pytest.mark.parametrize("scheme", ["mqtt", "padres", "amqp10"])
async def test_consumers_of_every_protocol_are_shown(tmp_path: Path, scheme: str) -> None:
    settings = BrokerSettings(listen=[f"{scheme}://127.0.0.1:0", "http://127.0.0.1:0"])
    async with Broker(settings, data=tmp_path / "data") as broker:
        address, http = broker.addresses
        url = address.replace("amqp10", "amqp+1.0").replace("://", "://guest:guest@")
        api = httpx.AsyncClient(base_url=f"{http}/api", auth=("guest", "guest"), timeout=60)
        async with api, _subscribed(scheme, url):
            listed = await api.get("/consumers")
            assert listed.status_code == 200
            [consumer] = listed.json()
            name = quote(consumer["queue"]["name"], safe="")
            one = await api.get(f"/queues/%2F/{name}")

    assert consumer["channel_details"]["connection_name"].startswith("127.0.0.1:")
    assert isinstance(consumer["channel_details"]["number"], int)
    assert one.status_code == 200
    assert one.json()["consumer_details"] == [consumer]
