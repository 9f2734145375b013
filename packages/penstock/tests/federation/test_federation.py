"""Federated exchanges and queues: what is published upstream arrives here once, without loops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client import connect
from tests.federation.conftest import NewNode, Node, eventually
from tests.fixtures import NewPenstock
from tests.peers import RabbitMQ


async def federate(node: Node, uri: str, **settings: Any) -> None:
    """All exchanges and queues named `fed.` come from the broker at the URI."""
    upstream = {"uri": uri, "reconnect-delay": 0}
    upstream |= {key.replace("_", "-"): each for key, each in settings.items()}
    await node.parameter("federation-upstream", "up", upstream)
    await node.policy("fed", "^fed\\.", federation_upstream_set="all")


async def topic(node: Node, queue: str, key: str = "#", exchange: str = "fed.x") -> None:
    await node.api.put(f"/exchanges/%2F/{exchange}", json={"type": "topic", "durable": True})
    await node.api.put(f"/queues/%2F/{queue}", json={"durable": True})
    await node.api.post(f"/bindings/%2F/e/{exchange}/q/{queue}", json={"routing_key": key})


async def publish(node: Node, key: str, *bodies: str) -> None:
    for body in bodies:
        message = {"properties": {}, "routing_key": key, "payload": body,
                   "payload_encoding": "string"}  # fmt: skip
        answer = await node.api.post("/exchanges/%2F/fed.x/publish", json=message)
        assert answer.status_code == 200, answer.text


def upstream_keys(node: Node) -> set[str]:
    """The keys by which queues of links are bound."""
    bindings = node.broker.vhosts["/"].bindings()
    return {each.key for each in bindings if each.destination.name.startswith("federation: ")}


async def bound(node: Node, *keys: str) -> None:
    async def same() -> bool:
        return upstream_keys(node) == set(keys)

    await eventually(same)


async def test_an_exchange_gets_what_its_bindings_match(node: Node, other: Node) -> None:
    await topic(node, "mine", "a.*")
    await federate(node, other.amqp)
    await bound(other, "a.*")
    row = await node.link()
    assert (row["exchange"], row["upstream"], row["type"]) == ("fed.x", "up", "exchange")
    await publish(other, "a.1", "wanted")
    await publish(other, "b.1", "not wanted")
    await node.filled("mine", 1)
    [message] = await node.take("mine")
    assert (message["payload"], message["routing_key"]) == ("wanted", "a.1")
    [entry] = message["properties"]["headers"]["x-received-from"]
    assert entry["exchange"] == "fed.x"
    assert "guest" not in entry["uri"]

    await topic(node, "mine", "b.*")
    await bound(other, "a.*", "b.*")
    await node.api.delete("/bindings/%2F/e/fed.x/q/mine/a.*")
    await bound(other, "b.*")
    await publish(other, "b.2", "now wanted")
    await node.filled("mine", 1)

    await node.api.delete("/policies/%2F/fed")

    async def cleaned() -> bool:
        return not any("federation" in name for name in other.broker.vhosts["/"].queues)

    await eventually(cleaned)
    assert (await node.api.get("/federation-links")).json() == []


async def test_two_brokers_that_federate_each_other_make_no_loop(node: Node, other: Node) -> None:
    for each, peer in ((node, other), (other, node)):
        await topic(each, "mine")
        await federate(each, peer.amqp, max_hops=5)
    await bound(node, "#")
    await bound(other, "#")
    await publish(node, "a", "one")
    await publish(other, "a", "two")
    for each in (node, other):
        await each.filled("mine", 2)
    await asyncio.sleep(0.3)  # a loop would deliver more
    for each in (node, other):
        assert sorted(row["payload"] for row in await each.take("mine")) == ["one", "two"]


@pytest.mark.parametrize(("hops", "arrives"), [(1, False), (2, True)])
async def test_hops_are_limited(new_node: NewNode, hops: int, arrives: bool) -> None:
    first, second, third = await new_node(), await new_node(), await new_node()
    for each in (first, second, third):
        await topic(each, "mine")
    await federate(second, first.amqp, max_hops=hops)
    await federate(third, second.amqp, max_hops=hops)
    await bound(first, "#")
    await bound(second, "#")
    await publish(first, "a", "far")
    await second.filled("mine", 1)
    await publish(second, "a", "near")
    await third.filled("mine", 1 + arrives)
    payloads = {row["payload"] for row in await third.take("mine")}
    assert payloads == ({"far", "near"} if arrives else {"near"})


async def test_a_queue_gets_messages_when_its_consumers_wait(node: Node, other: Node) -> None:
    await other.push("fed.q", "one", "two")
    await node.api.put("/queues/%2F/fed.q", json={"durable": True})
    await federate(node, other.amqp)
    row = await node.link()
    assert (row["queue"], row["type"]) == ("fed.q", "queue")
    await asyncio.sleep(0.3)
    assert other.length("fed.q") == 2, "nobody waits here"
    async with connect(node.amqp) as fabric:
        received = []
        async with asyncio.timeout(60):
            async for message in fabric.pull("fed.q"):
                received.append(message.text)
                if len(received) == 2:
                    break
    assert received == ["one", "two"]


async def test_a_restart_of_a_link_and_its_failure(node: Node, other: Node) -> None:
    await topic(node, "mine")
    await federate(node, "amqp://guest:wrong@" + other.amqp.partition("@")[2])

    async def failed() -> Any:
        rows = (await node.api.get("/federation-links/state/down")).json()
        return rows[0] if rows and rows[0]["status"] == "error" else None

    row = await eventually(failed)
    assert "authentication failed" in row["error"]
    assert "wrong" not in row["uri"]
    answer = await node.api.delete(f"/federation-links/vhost/%2F/{row['id']}/restart")
    assert answer.status_code == 204
    for component, value, reason in (
        ("federation-upstream", {"uri": "amqp://"}, "another broker"),
        ("federation-upstream", {"uri": "amqp://x", "max-hops": 0}, "max-hops"),
        ("federation-upstream-set", {"upstream": "up"}, "a list of objects"),
    ):
        answer = await node.api.put(f"/parameters/{component}/%2F/bad", json={"value": value})
        assert answer.status_code == 400
        assert reason in answer.text


async def test_what_is_published_while_the_link_is_down_arrives_later(
    new_penstock: NewPenstock, node: Node
) -> None:
    server = new_penstock()
    await topic(node, "mine")
    await federate(node, server.url)
    await node.link()
    expected = set()
    for attempt in range(2):
        bodies = [f"{attempt}-{number}" for number in range(200)]
        expected |= set(bodies)
        async with connect(server.url) as fabric:
            for body in bodies:
                await fabric.publish("a", body, exchange="fed.x")
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
    found: set[str] = set()

    async def all_there() -> bool:
        found.update(row["payload"] for row in await node.take("mine", 1000))
        return found >= expected

    await eventually(all_there)


@pytest.mark.peer
async def test_from_rabbitmq(node: Node, rabbitmq: RabbitMQ) -> None:
    await topic(node, "mine", "a.*")
    await federate(node, rabbitmq.url)
    await node.link()
    async with connect(rabbitmq.url) as fabric:
        await fabric.publish("a.1", "wanted", exchange="fed.x")
    await node.filled("mine", 1)
    [message] = await node.take("mine")
    assert message["payload"] == "wanted"
    assert message["properties"]["headers"]["x-received-from"][0]["cluster-name"]
    await node.api.delete("/policies/%2F/fed")
