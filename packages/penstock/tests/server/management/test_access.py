from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from penstock.core.config import BrokerSettings
from penstock.core.host_policy import HostPolicy
from penstock.server import Broker
from tests.server.management.conftest import As
from tests.server.management.given import queue, user


async def test_without_a_name_nobody_comes_in(served: Broker) -> None:
    async with httpx.AsyncClient(base_url=served.addresses[1], timeout=60) as nobody:
        answer = await nobody.get("/api/overview")

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")


async def test_a_wrong_password_is_told_from_nothing_else(as_user: As) -> None:
    wrong = await as_user("guest", "wrong").get("/whoami")
    unknown = await as_user("nobody", "guest").get("/whoami")

    assert wrong.status_code == unknown.status_code == 401
    assert wrong.json() == unknown.json() == {"error": "not_authorized", "reason": "Login failed"}


@pytest.mark.parametrize(
    ("tag", "allowed"),
    [
        ("", set()),
        ("management", {"overview"}),
        ("policymaker", {"overview"}),
        ("monitoring", {"overview", "nodes"}),
        ("administrator", {"overview", "nodes", "users", "definitions", "permissions"}),
    ],
)
async def test_tags_say_how_far_one_may_go(
    api: httpx.AsyncClient, as_user: As, tag: str, allowed: set[str]
) -> None:
    await user(api, "ada", tag)
    ada = as_user("ada", "ada")

    for path in ("overview", "nodes", "users", "definitions", "permissions"):
        expected = 200 if path in allowed else 401
        assert (await ada.get(f"/{path}")).status_code == expected, path


async def test_one_sees_the_virtual_hosts_one_may_enter(
    api: httpx.AsyncClient, as_user: As
) -> None:
    await api.put("/vhosts/hers")
    await api.put("/queues/hers/inbox", json={})
    await queue(api, "orders")
    await user(api, "ada", "management", vhost="hers")
    ada = as_user("ada", "ada")

    assert [row["name"] for row in (await ada.get("/vhosts")).json()] == ["hers"]
    assert [row["name"] for row in (await ada.get("/queues")).json()] == ["inbox"]
    assert (await ada.get("/queues/%2F")).status_code == 401
    assert (await ada.get("/vhosts/%2F")).status_code == 401


async def test_permissions_hold_as_they_do_in_amqp(api: httpx.AsyncClient, as_user: As) -> None:
    await queue(api, "orders")
    await user(api, "ada", "management")
    mine = {"configure": "^ada\\.", "write": "^ada\\.", "read": "^ada\\."}
    await api.put("/permissions/%2F/ada", json=mine)
    ada = as_user("ada", "ada")
    message = {"properties": {}, "routing_key": "x", "payload": "", "payload_encoding": "string"}
    look = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}

    assert (await ada.put("/queues/%2F/ada.inbox", json={})).status_code == 201
    for refused in (
        await ada.put("/queues/%2F/others", json={}),
        await ada.delete("/queues/%2F/orders"),
        await ada.delete("/queues/%2F/orders/contents"),
        await ada.put("/exchanges/%2F/others", json={}),
        await ada.post("/exchanges/%2F/amq.fanout/publish", json=message),
        await ada.post("/queues/%2F/orders/get", json=look),
        await ada.post("/bindings/%2F/e/amq.fanout/q/ada.inbox", json={}),
    ):
        assert refused.status_code == 401
        assert refused.json()["error"] == "not_authorised"


@pytest.mark.parametrize(
    "from_elsewhere",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://elsewhere.example"},
        {"origin": "http://127.0.0.1:3000", "sec-fetch-site": "same-site"},
        {"origin": "null"},
    ],
)
async def test_another_sites_page_changes_nothing(
    api: httpx.AsyncClient, from_elsewhere: dict[str, str]
) -> None:
    """A browser that remembers the password would send it with a stranger's form."""
    assert (await api.put("/vhosts/new", headers=from_elsewhere)).status_code == 403
    assert (await api.get("/vhosts", headers=from_elsewhere)).status_code == 200
    own = {"sec-fetch-site": "same-origin"}
    assert (await api.put("/vhosts/new", headers=own)).status_code == 201
    assert (await api.put("/vhosts/other")).status_code == 201


async def test_a_name_that_is_not_the_brokers_is_not_answered(api: httpx.AsyncClient) -> None:
    """A site may let its own name resolve to this machine: a browser takes us for that site."""
    rebound = {"host": "rebound.example:15672", "origin": "http://rebound.example:15672"}
    eve = {"password": "eve", "tags": "administrator"}

    made = await api.put("/users/eve", json=eve, headers=rebound)
    read = await api.get("/users", headers=rebound)

    assert (made.status_code, read.status_code) == (403, 403)
    assert "broker.allowed_hosts" in made.json()["reason"]
    assert (await api.get("/users/eve")).status_code == 404


async def test_names_and_sites_can_be_allowed(tmp_path: Path) -> None:
    settings = BrokerSettings(
        listen=["http://127.0.0.1:0"],
        allowed_hosts=["broker.example"],
        allowed_origins=["https://console.example"],
    )
    headers = {"host": "broker.example", "origin": "https://console.example"}
    async with Broker(settings, data=tmp_path) as broker:
        async with httpx.AsyncClient(base_url=broker.addresses[0], auth=("guest", "guest")) as api:
            made = await api.put("/api/vhosts/new", headers=headers)

    assert made.status_code == 201


async def test_guest_comes_only_from_this_machine(served: Broker) -> None:
    from penstock.server.management.http import HttpRequest
    from penstock.server.management.server import ManagementServer

    async def read(limit: int) -> bytes:
        return b""

    guest = {"authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}
    management = ManagementServer(served, HostPolicy(setting="broker.allowed_hosts"))
    try:
        near = await management.answer(
            HttpRequest("GET", "/api/whoami", {}, guest, "127.0.0.1", read)
        )
        far = await management.answer(
            HttpRequest("GET", "/api/whoami", {}, guest, "192.0.2.1", read)
        )
    finally:
        await management.close()

    assert (near.status, far.status) == (200, 401)
