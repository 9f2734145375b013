from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.core.config import BrokerSettings
from penstock.server import Broker
from tests.server.management.given import queue, user


def ordered(definitions: dict[str, Any]) -> dict[str, Any]:
    """The same with every list in one order, as order means nothing in it."""
    return {
        key: sorted(value, key=str) if isinstance(value, list) else value
        for key, value in definitions.items()
    }


async def lay_out(api: httpx.AsyncClient) -> None:
    await queue(api, "orders", durable=True, arguments={"x-max-length": 10})
    await queue(api, "events", durable=True, arguments={"x-queue-type": "stream"})
    await queue(api, "fleeting")
    await api.put("/exchanges/%2F/news", json={"type": "headers", "durable": True})
    await api.post(
        "/bindings/%2F/e/news/q/orders", json={"arguments": {"x-match": "any", "kind": 1}}
    )
    await api.post("/bindings/%2F/e/news/e/amq.topic", json={"routing_key": "a"})
    await api.put("/vhosts/lab")
    await user(api, "ada", "management")
    topics = {"exchange": "amq.topic", "write": "^a", "read": ".*"}
    await api.put("/topic-permissions/%2F/ada", json=topics)


async def test_what_is_exported_can_be_imported(api: httpx.AsyncClient, tmp_path: Path) -> None:
    await lay_out(api)
    exported = (await api.get("/definitions")).json()
    settings = BrokerSettings(listen=["http://127.0.0.1:0"])

    async with (
        Broker(settings, data=tmp_path / "other") as other,
        httpx.AsyncClient(
            base_url=f"{other.addresses[0]}/api", auth=("guest", "guest"), timeout=60
        ) as there,
    ):
        assert (await there.post("/definitions", json=exported)).status_code == 204
        assert ordered((await there.get("/definitions")).json()) == ordered(exported)
        assert (await there.get("/whoami", auth=("ada", "ada"))).status_code == 200


async def test_what_does_not_outlive_the_broker_is_not_exported(api: httpx.AsyncClient) -> None:
    await lay_out(api)

    exported = (await api.get("/definitions")).json()

    assert {row["name"] for row in exported["queues"]} == {"orders", "events"}
    assert all(row["source"] for row in exported["bindings"])


async def test_rabbitmq_can_read_the_users(api: httpx.AsyncClient) -> None:
    """It knows no argon2: the hash stands where it does not look."""
    anonymous, guest = (await api.get("/definitions")).json()["users"]

    assert guest["password_hash"] == ""
    assert guest["hashing_algorithm"] == "rabbit_password_hashing_sha256"
    assert guest["argon2_hash"].startswith("$argon2id$")
    assert anonymous["password_hash"] == ""  # nobody logs in by that name


async def test_one_virtual_host_alone(api: httpx.AsyncClient) -> None:
    await lay_out(api)
    exported = (await api.get("/definitions/%2F")).json()

    assert (await api.post("/definitions/lab", json=exported)).status_code == 204

    assert ordered((await api.get("/definitions/lab")).json()) == ordered(exported)
    assert (await api.post("/definitions/nowhere", json=exported)).status_code == 404


async def test_what_is_there_stays_as_it_is(api: httpx.AsyncClient) -> None:
    await queue(api, "orders", durable=True)
    other = {"name": "orders", "vhost": "/", "durable": True, "arguments": {"x-max-length": 1}}

    assert (await api.post("/definitions", json={"queues": [other]})).status_code == 204

    assert (await api.get("/queues/%2F/orders")).json()["arguments"] == {}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"queues": [{"name": "q", "durable": True}]}, "queues[0]: no_such_vhost: None"),
        ({"queues": [{"name": "q", "vhost": "x"}]}, "queues[0]: no_such_vhost: x"),
        ({"queues": [{"name": 1, "vhost": "/"}]}, "queues[0]: name: a string is expected"),
        ({"queues": {}}, None),
        ({"queues": 1}, "queues: a list of objects is expected"),
        ({"users": [{"name": "u", "password_hash": "?"}]}, "users[0]"),
        ({"bindings": [{"vhost": "/", "source": "no", "destination": "no"}]}, "no queue 'no'"),
    ],
)
async def test_what_makes_no_sense_is_named(
    api: httpx.AsyncClient, wrong: dict[str, Any], reason: str | None
) -> None:
    answer = await api.post("/definitions", json=wrong)

    if reason is None:
        assert answer.status_code == 204
    else:
        assert answer.status_code == 400
        assert reason in answer.json()["reason"]


async def test_a_malformed_entry_leaves_everything_undone(api: httpx.AsyncClient) -> None:
    good = {"name": "good", "vhost": "/", "durable": True}

    await api.post("/definitions", json={"queues": [good, {"name": "bad", "vhost": "none"}]})

    assert (await api.get("/queues/%2F/good")).status_code == 404


async def test_others_are_served_during_a_long_import(api: httpx.AsyncClient) -> None:
    queues = [{"name": f"q{n}", "vhost": "/", "durable": False} for n in range(5_000)]

    importing = asyncio.create_task(api.post("/definitions", json={"queues": queues}))
    seen: list[int] = []
    while not importing.done():
        overview = (await api.get("/overview?columns=object_totals")).json()
        seen.append(overview["object_totals"]["queues"])

    assert (await importing).status_code == 204
    assert any(0 < count < 5_000 for count in seen)
    assert len((await api.get("/queues?columns=name")).json()) == 5_000
