"""Shovels move messages between brokers and protocols, and lose none."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from penstock.client import connect
from penstock.core.basic_properties import BasicProperties
from tests.federation.conftest import Node, eventually
from tests.fixtures import NewPenstock
from tests.peers import Mosquitto, RabbitMQ

BODIES = [f"order {number}" for number in range(50)]


async def moved(node: Node, queue: str) -> list[str]:
    await node.filled(queue, len(BODIES))
    return [row["payload"] for row in await node.take(queue)]


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
async def test_from_a_queue_of_this_broker_to_another(node: Node, other: Node, mode: str) -> None:
    await node.push("orders", *BODIES)
    await node.shovel(
        "s", src_uri="amqp://", src_queue="orders", dest_uri=other.amqp, dest_queue="copy",
        ack_mode=mode, src_prefetch_count=7,
    )  # fmt: skip
    assert await moved(other, "copy") == BODIES
    row = await node.running("s")
    assert (row["type"], row["src_queue"], row["dest_queue"]) == ("dynamic", "orders", "copy")
    assert "guest" not in str(row), "the password is not shown"
    await node.push("orders", "later")
    await other.filled("copy", 1)

    async def acknowledged() -> bool:  # once the copy is confirmed
        return bool(node.broker.vhosts["/"].queues["orders"].describe()["messages"] == 0)

    await eventually(acknowledged)


@pytest.mark.parametrize("length", [300_000, 5_000_000])
async def test_large_messages_pass(node: Node, other: Node, length: int) -> None:
    await node.push("big", "x" * length)
    await node.shovel("out", src_uri="amqp://", src_queue="big", dest_uri=other.amqp,
                      dest_queue="big")  # fmt: skip
    await other.filled("big", 1)
    await other.shovel("back", src_uri="amqp://", src_queue="big", dest_uri=node.amqp,
                       dest_queue="again")  # fmt: skip
    await node.filled("again", 1)
    assert (await node.take("again"))[0]["payload"] == "x" * length


async def test_it_ends_after_the_length_of_the_queue_or_a_number(node: Node) -> None:
    await node.push("orders", *BODIES)
    local = {"src_uri": "amqp://", "dest_uri": "amqp://"}
    await node.shovel("five", src_queue="orders", dest_queue="first", src_delete_after=5, **local)
    await node.gone("five")
    assert [row["payload"] for row in await node.take("first")] == BODIES[:5]
    await node.shovel(
        "rest", src_queue="orders", dest_queue="rest", src_delete_after="queue-length", **local
    )
    await node.gone("rest")
    assert [row["payload"] for row in await node.take("rest")] == BODIES[5:]


async def test_routes_headers_and_properties(node: Node) -> None:
    await node.api.put("/queues/%2F/kept", json={})
    await node.api.post("/bindings/%2F/e/amq.topic/q/kept", json={"routing_key": "new.key"})
    await node.shovel(
        "s", src_uri="amqp://", src_exchange="amq.fanout", dest_uri="amqp://",
        dest_exchange="amq.topic", dest_exchange_key="new.key", dest_add_forward_headers=True,
        dest_add_timestamp_header=True, dest_publish_properties={"delivery_mode": 2},
    )  # fmt: skip
    await node.running("s")
    async with connect(node.amqp) as fabric:
        await fabric.amqp.open()
        channel = await fabric.amqp.channel()
        properties = BasicProperties(user_id="guest", headers={"a": 1})
        channel.publish("amq.fanout", "old", b"body", properties)
        await node.filled("kept", 1)
    [row] = await node.take("kept")
    assert (row["exchange"], row["routing_key"], row["payload"]) == ("amq.topic", "new.key", "body")
    given = row["properties"]
    assert given["delivery_mode"] == 2
    assert "user_id" not in given
    assert given["headers"]["a"] == 1
    assert given["headers"]["x-shovelled"][0]["shovel-name"] == "s"
    assert given["headers"]["x-shovelled-timestamp"] > 0


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "Must specify 'src-exchange' or 'src-queue'"),
        ({"src-queue": "a", "src-exchange": "b"}, "Cannot specify"),
        ({"src-queue": "a", "ack-mode": "never"}, "ack-mode should be one of"),
        ({"src-queue": "a", "src-delete-after": "soon"}, "src-delete-after"),
        ({"src-queue": "a", "ack-mode": "no-ack", "src-delete-after": 3}, "acknowledgements"),
        ({"src-queue": "a", "color": "red"}, "unrecognised term 'color'"),
        ({"src-queue": "a", "src-uri": "gopher://x"}, "src-uri"),
        ({"src-uri": "mqtt://localhost"}, "Must specify 'src-topic'"),
        ({"src-protocol": "amqp10", "src-uri": "amqp://localhost"}, "Must specify 'src-address'"),
        ({"src-queue": "a", "dest-publish-properties": {"shoe": 1}}, "unknown property 'shoe'"),
        ({"src-queue": "a", "reconnect-delay": -1}, "reconnect-delay"),
    ],
)
async def test_invalid_definitions_are_refused(
    node: Node, value: dict[str, Any], reason: str
) -> None:
    body = {"value": {"src-uri": "amqp://", "dest-uri": "amqp://", **value}}
    answer = await node.api.put("/parameters/shovel/%2F/s", json=body)
    assert answer.status_code == 400
    assert reason in answer.json()["reason"], answer.text


async def test_a_failure_is_shown_and_a_restart_and_a_change_take_effect(node: Node) -> None:
    await node.push("orders", *BODIES)
    local = {"src_uri": "amqp://", "dest_uri": "amqp://", "src_queue": "orders"}
    await node.shovel("s", dest_exchange="missing", reconnect_delay=3600, **local)

    async def terminated() -> Any:
        row = (await node.api.get("/shovels/vhost/%2F/s")).json()
        return row if row.get("state") == "terminated" else None

    row = await eventually(terminated)
    assert row["reason"] == "no exchange 'missing' in vhost '/'"
    queue = node.broker.vhosts["/"].queues["orders"]
    assert queue.message_count == len(BODIES), "the source keeps what the destination refuses"
    await node.api.put("/exchanges/%2F/missing", json={"type": "fanout"})
    await node.api.put("/queues/%2F/copy", json={})
    await node.api.post("/bindings/%2F/e/missing/q/copy", json={})
    answer = await node.api.delete("/shovels/vhost/%2F/s/restart")
    assert answer.status_code == 204
    assert await moved(node, "copy") == BODIES
    changed = {"value": {"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "orders",
                         "dest-queue": "elsewhere"}}  # fmt: skip
    assert (await node.api.put("/parameters/shovel/%2F/s", json=changed)).status_code == 204
    await node.push("orders", *BODIES)
    assert await moved(node, "elsewhere") == BODIES
    assert (await node.api.delete("/shovels/vhost/%2F/s")).status_code == 204
    assert (await node.api.get("/parameters/shovel")).json() == []
    assert (await node.api.delete("/shovels/vhost/%2F/s")).status_code == 404


async def test_over_amqp_10_in_both_directions(node: Node, other: Node) -> None:
    await node.push("orders", *BODIES)
    await other.api.put("/queues/%2F/copy", json={"durable": True})
    await node.shovel(
        "out", src_uri="amqp://", src_queue="orders", dest_protocol="amqp10",
        dest_uri=other.amqp, dest_address="/queue/copy",
    )  # fmt: skip
    await other.filled("copy", len(BODIES))
    await node.shovel(
        "back", src_uri=other.amqp10, src_address="/queue/copy", src_prefetch_count=9,
        dest_uri="amqp://", dest_queue="again",
    )  # fmt: skip
    assert await moved(node, "again") == BODIES


async def test_over_mqtt_in_both_directions(node: Node, other: Node) -> None:
    await node.push("orders", *BODIES)
    await other.api.put("/queues/%2F/copy", json={})
    await other.api.post("/bindings/%2F/e/amq.topic/q/copy", json={"routing_key": "shop.orders"})
    await node.shovel(
        "out", src_uri="amqp://", src_queue="orders", dest_uri=other.mqtt, dest_topic="shop/orders"
    )
    await other.filled("copy", len(BODIES))
    await node.shovel(
        "back", src_uri=other.mqtt, src_topic="echo/#", dest_uri="amqp://", dest_queue="again"
    )
    await node.running("back")
    async with connect(other.mqtt) as fabric:
        for body in BODIES:
            await fabric.publish("echo/one", body, headers={"colour": "red"})
    await node.filled("again", len(BODIES))
    rows = await node.take("again")
    assert [row["payload"] for row in rows] == BODIES
    assert rows[0]["properties"]["headers"]["colour"] == "red"


@pytest.mark.peer
async def test_between_rabbitmq_and_mosquitto(
    node: Node, rabbitmq: RabbitMQ, mosquitto: Mosquitto, name: str
) -> None:
    topic = name.replace(".", "/")
    await node.shovel(
        "in", src_uri=mosquitto.mqtt_url, src_topic=f"{topic}/#", dest_uri=rabbitmq.url,
        dest_queue=name,
    )  # fmt: skip
    await node.running("in")
    await node.shovel(
        "out", src_uri=rabbitmq.url, src_queue=name, dest_uri="amqp://", dest_queue="copy"
    )
    async with connect(mosquitto.mqtt_url) as fabric:
        for body in BODIES:
            await fabric.publish(f"{topic}/one", body)
    assert await moved(node, "copy") == BODIES
    await node.shovel(
        "to", src_uri="amqp://", src_queue="work", dest_uri=mosquitto.mqtt_url, dest_topic=topic
    )
    async with connect(mosquitto.mqtt_url) as fabric:
        receiving = fabric.subscribe(topic)
        await receiving.open()
        await node.push("work", *BODIES)
        async with asyncio.timeout(60):
            assert [(await receiving.receive()).text for _ in BODIES] == BODIES


@pytest.mark.peer
async def test_kills_of_either_side_lose_nothing(new_penstock: NewPenstock, node: Node) -> None:
    """Each of the brokers is killed while the shovel runs; duplicates are allowed."""
    server = new_penstock()
    await node.shovel("out", src_uri="amqp://", src_queue="work", dest_uri=server.url,
                      dest_queue="there", src_prefetch_count=10)  # fmt: skip
    await node.shovel("back", src_uri=server.url, src_queue="there", dest_uri="amqp://",
                      dest_queue="here", src_prefetch_count=10)  # fmt: skip
    expected = set()
    for attempt in range(3):
        bodies = [f"{attempt}-{number}" for number in range(300)]
        expected |= set(bodies)
        pushing = asyncio.create_task(node.push("work", *bodies))
        await node.filled("here", 300 * attempt + 50)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await pushing

    found: set[str] = set()

    async def all_there() -> bool:
        found.update(row["payload"] for row in await node.take("here", 1000))
        return found >= expected

    await eventually(all_there)


@pytest.mark.peer
async def test_kills_of_the_broker_that_runs_the_shovel_lose_nothing(
    new_penstock: NewPenstock, node: Node
) -> None:
    """It acknowledges its own queue when the other broker has confirmed."""
    server = new_penstock()
    value = {"src-uri": "amqp://", "src-queue": "work", "src-prefetch-count": 10}
    value |= {"dest-uri": node.amqp, "dest-queue": "there", "ack-mode": "on-confirm"}
    async with httpx.AsyncClient(base_url=server.http_url, auth=("guest", "guest")) as api:
        answer = await api.put("/api/parameters/shovel/%2F/out", json={"value": value}, timeout=60)
        assert answer.status_code == 201, answer.text
    expected = set()
    for attempt in range(3):
        bodies = [f"{attempt}-{number}" for number in range(300)]
        expected |= set(bodies)
        async with connect(server.url) as fabric, fabric.push("work") as work:
            for body in bodies:
                await work.post(body)
        await node.filled("there", 300 * attempt + 50)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)

    found: set[str] = set()

    async def all_there() -> bool:
        found.update(row["payload"] for row in await node.take("there", 1000))
        return found >= expected

    await eventually(all_there)
