"""Policies and limits do what RabbitMQ's do to queues, exchanges, connections and channels."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aio_pika
import httpx
import pika
import pytest
from aio_pika.abc import AbstractConnection
from aio_pika.exceptions import ChannelPreconditionFailed

from penstock.broker.policies import Policy
from penstock.core.config import BrokerSettings
from penstock.core.errors import PreconditionFailed
from penstock.server import Broker
from tests.integration.mqtt.clients_paho import Paho
from tests.server.management.conftest import As
from tests.server.management.given import TEXT, publish, queue, take, user


async def policy(api: httpx.AsyncClient, name: str, pattern: str, **definition: Any) -> None:
    """Underscores are hyphens."""
    body = {
        "pattern": pattern,
        "priority": definition.pop("priority", 0),
        "apply-to": definition.pop("apply_to", "all"),
        "definition": {key.replace("_", "-"): value for key, value in definition.items()},
    }
    path = "operator-policies" if name.startswith("operator") else "policies"
    answer = await api.put(f"/{path}/%2F/{name}", json=body)
    assert answer.is_success, answer.text


async def described(api: httpx.AsyncClient, name: str) -> Any:
    return (await api.get(f"/queues/%2F/{name}")).json()


async def test_the_highest_priority_applies_to_existing_and_new_queues(
    api: httpx.AsyncClient,
) -> None:
    await queue(api, "orders.old")
    await policy(api, "low", "^orders", max_length=1)
    await policy(api, "high", "^orders", max_length=2, priority=7)
    await policy(api, "exchanges", "^orders", alternate_exchange="x", apply_to="exchanges")
    await policy(api, "streams", "^orders", max_age="1D", apply_to="streams", priority=99)
    await queue(api, "orders.new")

    for name in ("orders.old", "orders.new"):
        row = await described(api, name)
        assert (row["policy"], row["effective_policy_definition"]) == ("high", {"max-length": 2})
        for payload in "abc":
            await publish(api, name, payload)
        assert [each["payload"] for each in await take(api, name, 9)] == ["b", "c"]

    await api.delete("/policies/%2F/high")
    assert (await described(api, "orders.old"))["policy"] == "low"
    await api.delete("/policies/%2F/low")
    assert (await described(api, "orders.old"))["policy"] is None
    for payload in "abc":
        await publish(api, "orders.old", payload)
    assert len(await take(api, "orders.old", 9)) == 3


async def test_the_lower_number_of_policy_operator_policy_and_argument_counts(
    api: httpx.AsyncClient,
) -> None:
    await queue(api, "q", arguments={"x-max-length": 3, "x-dead-letter-exchange": "own"})
    await policy(api, "p", "q", max_length=5, dead_letter_exchange="theirs")
    for _ in range(9):
        await publish(api, "q")
    assert (await described(api, "q"))["messages"] == 3
    await policy(api, "operator", "q", max_length=2)
    row = await described(api, "q")
    assert row["messages"] == 2  # the oldest were dropped at once
    assert row["operator_policy"] == "operator"
    assert row["effective_policy_definition"] == {
        "max-length": 2,
        "dead-letter-exchange": "theirs",
    }


async def test_dead_letters_ttl_and_overflow_follow_a_policy(api: httpx.AsyncClient) -> None:
    await queue(api, "q")
    await queue(api, "dead")
    await policy(
        api,
        "p",
        "^q$",
        message_ttl=0,
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
    )
    await publish(api, "q", "expired")
    for _ in range(1000):
        if found := await take(api, "dead"):
            break
    assert found[0]["payload"] == "expired"
    await policy(api, "p", "^q$", max_length=1, overflow="reject-publish")
    assert await publish(api, "q", "kept")
    body = {**TEXT, "routing_key": "q", "payload": "rejected"}
    await api.post("/exchanges/%2F/amq.default/publish", json=body)
    assert [each["payload"] for each in await take(api, "q", 9)] == ["kept"]


async def test_an_unused_queue_expires_by_a_policy(api: httpx.AsyncClient) -> None:
    await queue(api, "q")
    await policy(api, "p", "^q$", expires=50)
    for _ in range(5000):
        if (answer := await api.get("/queues/%2F/q")).status_code == 404:
            break
    assert answer.status_code == 404


async def test_an_alternate_exchange_by_a_policy(api: httpx.AsyncClient) -> None:
    await queue(api, "lost")
    await api.put("/exchanges/%2F/e", json={"type": "direct"})
    await api.post("/bindings/%2F/e/amq.fanout/q/lost", json={})
    assert not await publish(api, "nowhere", exchange="e")
    await policy(api, "p", "^e$", alternate_exchange="amq.fanout", apply_to="exchanges")
    assert await publish(api, "nowhere", exchange="e")
    assert (await api.get("/exchanges/%2F/e")).json()["policy"] == "p"


async def test_retention_of_a_stream_by_a_policy(api: httpx.AsyncClient, served: Broker) -> None:
    stream = {"durable": True, "arguments": {"x-queue-type": "stream", "x-max-age": "7D"}}
    await queue(api, "s", **stream)
    await policy(api, "p", "^s$", max_age="1D", max_length_bytes=5_000_000)
    row = await described(api, "s")
    assert row["policy"] == "p"
    found: Any = served.vhosts["/"].queues["s"]
    # The argument's age stays; there is no argument for the size.
    assert (found._max_age, found._max_bytes) == (7 * 86_400_000, 5_000_000)


async def test_policies_and_limits_survive_a_restart(tmp_path: Path) -> None:
    settings = BrokerSettings(listen=[])
    async with Broker(settings, data=tmp_path) as broker:
        vhost = broker.vhosts["/"]
        vhost.declare_queue("q", durable=True)
        vhost.set_policy(Policy("p", "^q", {"max-length": 2}))
        vhost.set_policy(Policy("o", "^q", {"expires": 90_000}), operator=True)
        vhost.policies.set_limit("max-queues", 5)
        broker.users.set_limit("guest", "max-connections", 3)
    async with Broker(settings, data=tmp_path) as broker:
        vhost = broker.vhosts["/"]
        assert vhost.queues["q"].policy.definition == {"max-length": 2, "expires": 90_000}
        assert vhost.policies.limits == {"max-queues": 5}
        assert broker.users.get("guest").limits == {"max-connections": 3}
        vhost.remove_policy("p")
        broker.add_vhost("other").set_policy(Policy("p", "^q", {"max-length": 2}))
        broker.delete_vhost("other")
    async with Broker(settings, data=tmp_path) as broker:
        assert broker.vhosts["/"].queues["q"].policy.definition == {"expires": 90_000}
        assert not [key for key, _ in broker.topology.all("policy")]


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ({"ha-mode": "all"}, "classic queues are not mirrored"),
        ({"max-lenght": 1}, "max-lenght is not a recognised policy setting"),
        ({"expires": 0}, "expires: 0 is not allowed"),
        ({"dead-letter-exchange": 7}, "expected a string"),
    ],
)
def test_what_a_policy_cannot_have_is_refused_with_the_reason(
    definition: dict[str, Any], said: str
) -> None:
    with pytest.raises(PreconditionFailed, match=said):
        Policy.from_json("p", {"pattern": ".*", "definition": definition})


def test_a_pattern_cannot_block_the_broker() -> None:
    slow = Policy.from_json("p", {"pattern": "^(a+)+$", "definition": {"max-length": 1}})
    assert not slow.matches("classic", "a" * 250 + "b")
    assert slow.matches("classic", "a" * 250)
    with pytest.raises(PreconditionFailed, match="pattern"):
        Policy.from_json("p", {"pattern": "(?=a)", "definition": {"max-length": 1}})


async def test_a_policymaker_sets_policies_and_monitoring_does_not(
    api: httpx.AsyncClient, as_user: As
) -> None:
    body = {"pattern": "^q", "definition": {"max-length": 1}}
    for tag, expected in (("policymaker", 201), ("monitoring", 401), ("management", 401)):
        await user(api, tag, tag)
        answer = await as_user(tag, tag).put(f"/policies/%2F/{tag}", json=body)
        assert answer.status_code == expected


async def test_limits_of_a_virtual_host(
    api: httpx.AsyncClient, amqp: AbstractConnection, served: Broker
) -> None:
    await api.put("/vhost-limits/%2F/max-queues", json={"value": 1})
    channel = await amqp.channel()
    await channel.declare_queue("one")
    with pytest.raises(ChannelPreconditionFailed, match=r"queue limit in vhost '/' \(1\)"):
        await channel.declare_queue("two")
    await api.put("/vhost-limits/%2F/max-connections", json={"value": 1})
    parameters = pika.URLParameters(served.addresses[0].replace("://", "://guest:guest@"))
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=r"connection limit \(1\)"):
        await asyncio.to_thread(pika.BlockingConnection, parameters)
    await api.delete("/vhost-limits/%2F/max-connections")
    connection = await asyncio.to_thread(pika.BlockingConnection, parameters)
    await asyncio.to_thread(connection.close)


async def test_limits_of_a_user(api: httpx.AsyncClient, amqp: AbstractConnection) -> None:
    await api.put("/user-limits/guest/max-channels", json={"value": 1})
    await amqp.channel()
    with pytest.raises(aio_pika.exceptions.AMQPConnectionError, match="user limit of"):
        await (await amqp.channel()).get_queue("x")


async def test_limits_of_connections_hold_for_mqtt(tmp_path: Path) -> None:
    async with Broker(BrokerSettings(listen=["mqtt://127.0.0.1:0"]), data=tmp_path) as broker:
        broker.users.set_limit("guest", "max-connections", 1)
        port = int(broker.addresses[0].rpartition(":")[2])

        def second() -> int:
            with Paho(port, "first"):
                refused = Paho(port, "second")
                reason = refused.open().reason
                refused.client.loop_stop()
                return reason

        assert await asyncio.to_thread(second) == 0x97  # quota exceeded


async def test_connections_of_a_user_are_listed_and_closed(
    api: httpx.AsyncClient, amqp: AbstractConnection
) -> None:
    closed = asyncio.Event()
    amqp.close_callbacks.add(lambda *_: closed.set())
    assert len((await api.get("/connections/username/guest")).json()) == 1
    assert (await api.get("/connections/username/nobody")).json() == []
    assert (await api.delete("/connections/username/guest")).status_code == 204
    await asyncio.wait_for(closed.wait(), 30)
