"""Clients of a cluster, as their users configure them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any

import aio_pika
import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from penstock.client.management import call_management_api
from penstock.core.errors import PenstockError
from penstock.server.cluster_member import ClusterMember
from tests.peers import free_port

from .members import new_member, pair, until, url
from .test_replication import QUORUM, bodies, message

#: A name with the addresses of all members.
NAME = "brokers.test"


async def test_clients_with_a_list_of_addresses_find_the_cluster(tmp_path: Path) -> None:
    """As users of pika and of kombu, which Celery uses, configure it."""
    kombu = pytest.importorskip("kombu")
    nobody = free_port()

    def publish_with_pika(port: int) -> None:
        parameters = [pika.ConnectionParameters("127.0.0.1", one) for one in (nobody, port)]
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True, arguments=QUORUM)
            channel.basic_publish("", "q", b"pika")

    def publish_with_kombu(port: int) -> None:
        urls = ";".join(f"amqp://guest:guest@127.0.0.1:{one}//" for one in (nobody, port))
        with kombu.Connection(urls, connect_timeout=5) as connection:
            connection.ensure_connection(max_retries=5, interval_start=0.1)
            connection.Producer().publish("kombu", routing_key="q", serializer="raw")

    async with pair(tmp_path) as (leader, follower):
        port = int(url(follower).rpartition(":")[2])
        await asyncio.to_thread(publish_with_pika, port)
        await asyncio.to_thread(publish_with_kombu, port)
        assert await bodies(leader, "q") == [b"pika", b"kombu"]


async def test_a_follower_forwards_what_the_leader_decides(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, follower):
        address = follower.addresses[1].replace("://", "://guest:guest@")
        for verb, answer in (("resign", "without etcd"), ("leave", "no member 'nobody'")):
            with pytest.raises(PenstockError, match=answer):
                await asyncio.to_thread(
                    call_management_api, address, f"/api/cluster/{verb}", {"node": "nobody"}
                )


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Of AMQP and MQTT, at both addresses of the name."""
    resolve = socket.getaddrinfo

    def both(host: Any, *arguments: Any, **options: Any) -> Any:
        hosts = ("127.0.0.1", "127.0.0.2") if host in (NAME, NAME.encode()) else (host,)
        return [found for one in hosts for found in resolve(one, *arguments, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    return free_port(), free_port()


def member_at(host: str, ports: tuple[int, int], data: Path, follow: str = "") -> ClusterMember:
    listen = [f"amqp://{host}:{ports[0]}", f"http://{host}:0", f"mqtt://{host}:{ports[1]}"]
    return new_member(data, follow, {"listen": listen})


@pytest.mark.slow
async def test_clients_of_one_name_reconnect_after_a_failover(
    ports: tuple[int, int], tmp_path: Path
) -> None:
    """Robust connections of aio-pika, and paho."""
    received: dict[str, list[bytes]] = {"amqp": [], "mqtt": []}
    subscriber = paho.Client(CallbackAPIVersion.VERSION2, "subscriber", clean_session=False)
    subscriber.username_pw_set("guest", "guest")
    subscriber.reconnect_delay_set(1, 1)
    subscribed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_subscribe(*_: Any) -> None:
        loop.call_soon_threadsafe(subscribed.set)

    subscriber.on_subscribe = on_subscribe
    subscriber.on_message = lambda _client, _data, one: received["mqtt"].append(bytes(one.payload))
    leader = member_at("127.0.0.1", ports, tmp_path / "leader")
    async with leader, contextlib.AsyncExitStack() as stack:
        await until(lambda: leader.leads)
        other = member_at("127.0.0.2", ports, tmp_path / "other", leader.address)
        follower = await stack.enter_async_context(other)
        await until(lambda: len(leader.replication.in_sync.members) == 2)
        connection = await aio_pika.connect_robust(
            f"amqp://guest:guest@{NAME}:{ports[0]}/", reconnect_interval=0.1
        )
        stack.push_async_callback(connection.close)
        channel = await connection.channel()
        queue = await channel.declare_queue("q", durable=True, arguments=QUORUM)

        async def take(delivery: aio_pika.abc.AbstractIncomingMessage) -> None:
            async with delivery.process(ignore_processed=True):
                received["amqp"].append(delivery.body)

        async def publish(body: bytes) -> None:
            while True:
                with contextlib.suppress(Exception):  # whatever says that there is no connection
                    await asyncio.wait_for(channel.default_exchange.publish(message(body), "q"), 2)
                    break
                await asyncio.sleep(0.05)
            subscriber.publish("t", body, qos=1)

        await queue.consume(take)
        await asyncio.to_thread(subscriber.connect, NAME, ports[1])
        subscriber.loop_start()
        stack.callback(subscriber.loop_stop)
        stack.callback(subscriber.disconnect)  # before: the loop would go on to the keep-alive
        subscriber.subscribe("t", 1)
        await subscribed.wait()
        await publish(b"before")
        await until(lambda: all(b"before" in one for one in received.values()))
        await leader.close()
        follower.promote()
        await until(lambda: follower.leads)
        await publish(b"after")
        await until(lambda: all(b"after" in one for one in received.values()))
