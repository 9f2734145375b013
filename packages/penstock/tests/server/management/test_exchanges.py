from __future__ import annotations

import httpx
import pytest

from tests.server.management.given import queue


async def test_an_exchange_is_made_shown_and_deleted(api: httpx.AsyncClient) -> None:
    body = {"type": "topic", "durable": True, "arguments": {"alternate-exchange": "amq.fanout"}}

    assert (await api.put("/exchanges/%2F/events", json=body)).status_code == 201
    assert (await api.put("/exchanges/%2F/events", json=body)).status_code == 204
    shown = (await api.get("/exchanges/%2F/events")).json()
    assert (await api.delete("/exchanges/%2F/events")).status_code == 204
    assert (await api.get("/exchanges/%2F/events")).status_code == 404

    assert shown["type"] == "topic"
    assert shown["durable"] is True
    assert shown["auto_delete"] is False
    assert shown["internal"] is False
    assert shown["arguments"] == {"alternate-exchange": "amq.fanout"}


async def test_the_predeclared_exchanges_are_listed(api: httpx.AsyncClient) -> None:
    names = {row["name"] for row in (await api.get("/exchanges/%2F")).json()}

    assert names == {"", "amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match",
                     "amq.rabbitmq.trace"}  # fmt: skip


async def test_the_exchange_without_a_name_has_one_in_paths(api: httpx.AsyncClient) -> None:
    assert (await api.get("/exchanges/%2F/amq.default")).json()["name"] == ""


@pytest.mark.parametrize(
    ("method", "name", "body", "status"),
    [
        ("PUT", "x", {"type": "bogus"}, 400),
        ("PUT", "x", {"durable": "yes"}, 400),
        ("PUT", "x", {"arguments": 1}, 400),
        ("PUT", "amq.mine", {}, 401),
        ("DELETE", "amq.direct", None, 401),
        ("DELETE", "none", None, 404),
    ],
)
async def test_what_cannot_be_is_refused(
    api: httpx.AsyncClient, method: str, name: str, body: object, status: int
) -> None:
    answer = await api.request(method, f"/exchanges/%2F/{name}", json=body)

    assert answer.status_code == status
    assert answer.json().keys() == {"error", "reason"}


async def test_an_exchange_in_use_is_kept_if_asked(api: httpx.AsyncClient) -> None:
    await queue(api, "orders")
    await api.put("/exchanges/%2F/events", json={"type": "fanout"})
    await api.post("/bindings/%2F/e/events/q/orders", json={})

    answer = await api.delete("/exchanges/%2F/events?if-unused=true")

    assert answer.status_code == 400
    assert answer.json()["reason"] == "exchange 'events' in vhost '/' in use"


async def test_bindings_from_and_to_an_exchange(api: httpx.AsyncClient) -> None:
    await queue(api, "orders")
    await api.post("/bindings/%2F/e/amq.topic/q/orders", json={"routing_key": "a"})
    await api.post("/bindings/%2F/e/amq.topic/e/amq.fanout", json={"routing_key": "b"})

    from_topic = (await api.get("/exchanges/%2F/amq.topic/bindings/source")).json()
    to_fanout = (await api.get("/exchanges/%2F/amq.fanout/bindings/destination")).json()

    assert {row["destination"] for row in from_topic} == {"orders", "amq.fanout"}
    assert [row["routing_key"] for row in to_fanout] == ["b"]
