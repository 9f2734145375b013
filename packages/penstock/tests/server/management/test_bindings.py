from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.broker.contract import Binding
from penstock.server.management.exchanges import properties_key
from tests.server.management.given import queue

BETWEEN = "/bindings/%2F/e/amq.topic/q/orders"


async def bind(api: httpx.AsyncClient, key: str, **arguments: object) -> str:
    """Bind, and return the address that the answer gives."""
    answer = await api.post(BETWEEN, json={"routing_key": key, "arguments": arguments})
    assert answer.status_code == 201
    return answer.headers["location"]


async def test_a_queue_is_bound_by_its_name_from_the_start(api: httpx.AsyncClient) -> None:
    await queue(api, "orders")

    assert (await api.get("/queues/%2F/orders/bindings")).json() == [
        {
            "source": "",
            "vhost": "/",
            "destination": "orders",
            "destination_type": "queue",
            "routing_key": "orders",
            "arguments": {},
            "properties_key": "orders",
        }
    ]


async def test_bindings_are_paged_sorted_and_found_by_either_end_or_the_key(
    api: httpx.AsyncClient,
) -> None:
    for name in ("orders", "audit"):
        await queue(api, name)
        for key in ("a", "b", "c"):
            path = f"/bindings/%2F/e/amq.topic/q/{name}"
            assert (await api.post(path, json={"routing_key": key})).status_code == 201
    await api.put("/exchanges/%2F/all", json={"type": "fanout"})
    await api.post("/bindings/%2F/e/amq.topic/e/all", json={"routing_key": "#"})

    async def keys(path: str, **query: str) -> list[str]:
        parameters = {"page": "1", "sort": "routing_key", **query}
        rows = (await api.get(path, params=parameters)).json()["items"]
        return [row["routing_key"] for row in rows]

    source = "/exchanges/%2F/amq.topic/bindings/source"
    assert await keys(source, name="audit", sort_reverse="true") == ["c", "b", "a"]
    assert await keys(source, name="^[ab]$", use_regex="true") == ["a", "a", "b", "b"]
    assert await keys(source, page="2", page_size="4") == ["b", "c", "c"]
    assert await keys("/exchanges/%2F/all/bindings/destination", name="topic") == ["#"]
    assert await keys("/queues/%2F/orders/bindings", name="amq.") == ["a", "b", "c"]
    assert await keys("/bindings/%2F", name="orders") == ["a", "b", "c", "orders"]
    assert await keys("/exchanges/%2F/amq.default/bindings/source") == ["audit", "orders"]


@pytest.mark.parametrize("key", ["a.#", "", "b c/é", "100%", "~", "a+b"])
async def test_a_binding_is_found_by_its_properties_key(api: httpx.AsyncClient, key: str) -> None:
    """As RabbitMQ's clients write it into a path: as it is, or encoded once more."""
    await queue(api, "orders")
    await bind(api, key)
    await bind(api, key, x=1)
    [plain, argued] = (await api.get(BETWEEN)).json()

    for row in (plain, argued):
        for path in (row["properties_key"], quote(row["properties_key"], safe="")):
            assert (await api.get(f"{BETWEEN}/{path}")).json() == row


async def test_the_answer_says_where_the_binding_is(api: httpx.AsyncClient) -> None:
    await queue(api, "orders")

    assert await bind(api, "a.#") == "orders/a.%23"


async def test_a_binding_is_deleted_and_the_others_stay(api: httpx.AsyncClient) -> None:
    await queue(api, "orders")
    await bind(api, "a")
    await bind(api, "a", x=1)

    assert (await api.delete(f"{BETWEEN}/a")).status_code == 204
    assert (await api.delete(f"{BETWEEN}/a")).status_code == 404

    [left] = (await api.get(BETWEEN)).json()
    assert left["arguments"] == {"x": 1}


async def test_a_binding_needs_both_its_ends(api: httpx.AsyncClient) -> None:
    await queue(api, "orders")

    for path in ("e/none/q/orders", "e/amq.topic/q/none", "e/amq.topic/e/none"):
        answer = await api.post(f"/bindings/%2F/{path}", json={"routing_key": "a"})
        assert answer.status_code == 404


async def test_every_binding_is_listed(api: httpx.AsyncClient) -> None:
    await queue(api, "orders")
    await bind(api, "a")

    sources = [row["source"] for row in (await api.get("/bindings/%2F")).json()]

    assert sorted(sources) == ["", "amq.topic"]


TEXT = some.text(some.characters(codec="utf-8"))


@given(key=TEXT, other=TEXT)
def test_different_keys_have_different_names(key: str, other: str) -> None:
    def named(text: str) -> str:
        return properties_key(Binding("amq.topic", None, text))  # type: ignore[arg-type]

    assert (named(key) == named(other)) == (key == other)
