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
