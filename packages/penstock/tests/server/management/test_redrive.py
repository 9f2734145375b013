"""Browsing, redriving and discarding messages over HTTP."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.core.config import BrokerSettings
from penstock.server import Broker
from tests.server.management.conftest import As
from tests.server.management.given import TEXT, publish, queue, take, user

ORDERS = {
    "durable": True,
    "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
}


async def send(
    api: httpx.AsyncClient, key: str, payload: object, exchange: str = "amq.default", **more: Any
) -> None:
    properties = {"delivery_mode": 2, **more}
    body = {**TEXT, "routing_key": key, "payload": json.dumps(payload), "properties": properties}
    answer = await api.post(f"/exchanges/%2F/{exchange}/publish", json=body)
    assert answer.json() == {"routed": True}


async def browse(api: httpx.AsyncClient, name: str, **query: Any) -> Any:
    answer = await api.get(f"/queues/%2F/{name}/messages", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def payloads(api: httpx.AsyncClient, name: str, **query: Any) -> list[Any]:
    return [json.loads(row["payload"]) for row in (await browse(api, name, **query))["messages"]]


async def redrive(api: httpx.AsyncClient, name: str, **body: Any) -> Any:
    answer = await api.post(f"/queues/%2F/{name}/redrive", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def dead_orders(api: httpx.AsyncClient, count: int) -> None:
    """Orders that were published to amq.topic and rejected."""
    await queue(api, "orders", **ORDERS)
    await queue(api, "dead", durable=True)
    await api.post("/bindings/%2F/e/amq.topic/q/orders", json={"routing_key": "order.#"})
    for number in range(count):
        await send(api, f"order.{number}", number, "amq.topic")
    await take(api, "orders", count, ackmode="reject_requeue_false")


async def test_browsing_leaves_messages_as_they_are(api: httpx.AsyncClient) -> None:
    await queue(api, "orders", durable=True)
    for number in range(5):
        await send(api, "orders", number)

    assert await payloads(api, "orders") == [0, 1, 2, 3, 4]
    first = await browse(api, "orders", count=2)
    assert (len(first["messages"]), first["next"]) == (2, 2)
    assert await payloads(api, "orders", offset=first["next"]) == [2, 3, 4]
    row = first["messages"][0]
    assert row["timestamp"] > 1_600_000_000_000
    assert not row["redelivered"]
    found = await take(api, "orders", 5)
    assert [(one["payload"], one["redelivered"]) for one in found] == [
        (str(n), False) for n in range(5)
    ]


@pytest.mark.parametrize("kind", ["classic", "stream"])
async def test_one_message_is_read_whole(api: httpx.AsyncClient, kind: str) -> None:
    await queue(api, "orders", durable=True, arguments={"x-queue-type": kind})
    for size in (10, 50_000, 20):
        await send(api, "orders", "x" * size)

    listed = (await browse(api, "orders"))["messages"]
    assert len(listed[1]["payload"]) == 10_000
    found = await browse(api, "orders", id=listed[1]["id"], truncate=100_000)
    assert [len(row["payload"]) for row in found["messages"]] == [50_002]
    assert (await browse(api, "orders", id="999"))["messages"] == []


FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({"key": "order.*.eu"}, [0, 2]),
    ({"key": "order.#"}, [0, 1, 2]),
    ({"key": "order"}, []),
    ({"headers": '{"region": "us"}'}, [1]),
    ({"headers": '{"weight": 2}'}, [2]),
    ({"headers": '{"region": null}'}, [0, 1, 2]),
    ({"where": "[total,>,5]"}, [1, 2]),
    ({"where": "[total,>,5],[region,eq,'us']"}, [1]),
    ({"where": "[address/city,str-prefix,'Lon']"}, [2]),
    ({"where": "[class,eq,order],[total,>=,0]"}, [0]),
    ({"text": "London"}, [2]),
    ({"from": "2020-01-01T00:00:00Z"}, [0, 1, 2]),
    ({"to": "2020-01-01T00:00:00Z"}, []),
]


@pytest.mark.parametrize("kind", ["classic", "stream"])
async def test_messages_are_filtered(api: httpx.AsyncClient, kind: str) -> None:
    await queue(api, "orders", durable=True, arguments={"x-queue-type": kind})
    await api.post("/bindings/%2F/e/amq.topic/q/orders", json={"routing_key": "#"})
    for number, (key, headers, more) in enumerate(
        [
            ("order.1.eu", {"region": "eu", "class": "order"}, {}),
            ("order.2.us", {"region": "us"}, {}),
            ("order.3.eu", {"region": "eu", "weight": 2}, {"address": {"city": "London"}}),
        ]
    ):
        payload = {"n": number, "total": number * 10, **more}
        await send(api, key, payload, "amq.topic", headers=headers)

    for query, expected in FILTERS:
        found = await payloads(api, "orders", **query)
        assert [one["n"] for one in found] == expected, query


@pytest.mark.parametrize(
    "query",
    [
        {"where": "[total,>"},
        {"where": "[total,eq,5]"},
        {"headers": "region"},
        {"from": "yesterday"},
        {"count": "0"},
        {"offset": "-1"},
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused(
    api: httpx.AsyncClient, query: dict[str, str]
) -> None:
    await queue(api, "orders")
    answer = await api.get("/queues/%2F/orders/messages", params=query)
    assert answer.status_code == 400
    assert next(iter(query)) in answer.json()["reason"]


async def test_a_stream_is_browsed_from_an_offset(api: httpx.AsyncClient) -> None:
    await queue(api, "log", durable=True, arguments={"x-queue-type": "stream"})
    for number in range(5):
        await send(api, "log", number)

    found = await browse(api, "log", offset=2, count=2)
    assert [row["id"] for row in found["messages"]] == ["2", "3"]
    assert found["next"] == 4
    assert await payloads(api, "log", offset="last") == [0, 1, 2, 3, 4]


async def test_long_queues_are_browsed_and_moved_where_they_are_paged(tmp_path: Path) -> None:
    settings = BrokerSettings(listen=["http://127.0.0.1:0"], queue_memory_bytes=64 * 1024)
    async with (
        Broker(settings, data=tmp_path) as broker,
        httpx.AsyncClient(
            base_url=f"{broker.addresses[0]}/api", auth=("guest", "guest"), timeout=60
        ) as api,
    ):
        await queue(api, "long", durable=True)
        await queue(api, "other", durable=True)
        for number in range(300):
            await send(api, "long", {"n": number, "filler": "x" * 1000})

        found = await browse(api, "long", where="[n,>=,280],[n,<>,299]", count=100, truncate=0)
        ids = [row["id"] for row in found["messages"]]
        assert len(ids) == 19
        assert await redrive(api, "long", ids=ids, to={"queue": "other"}) == {
            "moved": 19,
            "failed": [],
        }
        counts = {row["name"]: row["messages"] for row in (await api.get("/queues")).json()}
        assert counts == {"long": 281, "other": 19}
        rest = await take(api, "long", 400)
        left = [json.loads(row["payload"])["n"] for row in rest]
        assert left == [*range(280), 299]
        # What cannot be delivered returns to its place, also among messages on disk.
        for number in range(300):
            await send(api, "long", {"n": number, "filler": "x" * 1000})
        ids = [row["id"] for row in (await browse(api, "long", offset=290))["messages"]]
        answer = await redrive(api, "long", ids=ids, to={"exchange": "amq.topic"})
        assert (answer["moved"], len(answer["failed"])) == (0, 10)
        rest = await take(api, "long", 400)
        assert [json.loads(row["payload"])["n"] for row in rest] == list(range(300))


async def test_dead_letters_return_to_where_they_died_with_their_route(
    api: httpx.AsyncClient,
) -> None:
    await dead_orders(api, 3)
    found = (await browse(api, "dead"))["messages"]
    assert found[0]["properties"]["headers"]["x-death"][0]["queue"] == "orders"

    [listed] = (await api.get("/dead-letters")).json()
    assert (listed["name"], listed["messages"]) == ("dead", 3)
    assert listed["first_death"]["reason"] == "rejected"

    assert await redrive(api, "dead", ids=[found[1]["id"]]) == {"moved": 1, "failed": []}
    assert await payloads(api, "dead") == [0, 2]
    assert await redrive(api, "dead") == {"moved": 2, "failed": []}
    back = await take(api, "orders", 5)
    assert [(one["exchange"], one["routing_key"]) for one in back] == [
        ("amq.topic", "order.1"),
        ("amq.topic", "order.0"),
        ("amq.topic", "order.2"),
    ]
    assert (await api.get("/queues/%2F/dead")).json()["messages"] == 0


async def test_dead_letters_are_listed_when_the_first_is_on_disk(tmp_path: Path) -> None:
    settings = BrokerSettings(listen=["http://127.0.0.1:0"], queue_memory_bytes=64 * 1024)
    async with (
        Broker(settings, data=tmp_path) as broker,
        httpx.AsyncClient(
            base_url=f"{broker.addresses[0]}/api", auth=("guest", "guest"), timeout=60
        ) as api,
    ):
        await dead_orders(api, 400)
        backlog = broker.vhosts["/"].queues["dead"]._messages._lanes[0]  # type: ignore[attr-defined]
        assert backlog.paged > 0
        in_memory = len(backlog.fresh)
        assert (await redrive(api, "dead", count=in_memory))["moved"] == in_memory
        assert not backlog.fresh
        [listed] = (await api.get("/dead-letters")).json()
        assert (listed["name"], listed["messages"]) == ("dead", 400 - in_memory)


async def test_a_message_is_edited_on_its_way(api: httpx.AsyncClient) -> None:
    await dead_orders(api, 1)
    [row] = (await browse(api, "dead"))["messages"]
    edit = {"payload": "[1]", "properties": {"headers": {"fixed": True}, "delivery_mode": 2}}

    answer = await redrive(api, "dead", edit={row["id"]: edit}, to={"queue": "orders"})
    assert answer["moved"] == 1
    [moved] = await take(api, "orders")
    assert moved["payload"] == "[1]"
    assert moved["properties"] == {"headers": {"fixed": True}, "delivery_mode": 2}


async def test_some_are_selected_by_a_filter_and_a_count(api: httpx.AsyncClient) -> None:
    await dead_orders(api, 6)
    where = {"key": "dead", "where": "[x-first-death-queue,eq,orders]"}

    assert (await redrive(api, "dead", filter=where, count=2))["moved"] == 2
    assert await payloads(api, "orders") == [0, 1]
    answer = await api.post("/queues/%2F/dead/discard", json={"filter": {"text": "3"}})
    assert answer.json() == {"discarded": 1}
    assert await payloads(api, "dead") == [2, 4, 5]


async def test_what_cannot_be_delivered_stays_in_its_place(api: httpx.AsyncClient) -> None:
    await dead_orders(api, 2)
    full = {"x-max-length": 0, "x-overflow": "reject-publish"}
    await queue(api, "full", arguments=full)
    for to in ({"exchange": "amq.direct", "routing_key": "nowhere"}, {"queue": "full"}):
        answer = await redrive(api, "dead", to=to)
        assert answer["moved"] == 0
        assert [one["reason"] != "" for one in answer["failed"]] == [True, True]
        assert await payloads(api, "dead") == [0, 1]
    await publish(api, "dead", "7")  # not a dead letter: it has no way back
    answer = await redrive(api, "dead")
    assert (answer["moved"], len(answer["failed"])) == (2, 1)
    assert "not a dead letter" in answer["failed"][0]["reason"]


async def test_messages_of_a_stream_are_copied(api: httpx.AsyncClient) -> None:
    await queue(api, "log", durable=True, arguments={"x-queue-type": "stream"})
    await queue(api, "copy", durable=True)
    for number in range(3):
        await send(api, "log", number)

    assert (await redrive(api, "log", to={"queue": "copy"}, ids=["1"]))["moved"] == 1
    assert await payloads(api, "copy") == [1]
    assert await payloads(api, "log") == [0, 1, 2]
    refused = await api.post("/queues/%2F/log/redrive", json={})
    assert refused.status_code == 400


async def test_redriving_needs_permissions_at_both_ends(
    api: httpx.AsyncClient, as_user: As
) -> None:
    await dead_orders(api, 1)
    await user(api, "ada", "management")
    ada = as_user("ada", "ada")
    for rights in ({"read": "^$", "write": ".*"}, {"read": ".*", "write": "^$"}):
        await api.put("/permissions/%2F/ada", json={"configure": ".*", **rights})
        answer = await ada.post("/queues/%2F/dead/redrive", json={"to": {"queue": "orders"}})
        assert answer.status_code == 401
        answer = await ada.post("/queues/%2F/dead/redrive", json={})
        assert answer.status_code == 401 or answer.json()["moved"] == 0
    assert await payloads(api, "dead") == [0]


async def test_a_crash_before_the_confirm_loses_nothing(
    api: httpx.AsyncClient, served: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of the data is what a broker finds that was killed at this moment."""
    await dead_orders(api, 2)
    pending: list[Any] = []
    committer = served.kernel.committer
    plain = committer.wait
    waiting = asyncio.Event()

    def wait(*arguments: Any) -> None:
        pending.append(arguments)
        waiting.set()

    monkeypatch.setattr(type(committer), "wait", lambda _, *arguments: wait(*arguments))
    call = asyncio.create_task(redrive(api, "dead"))
    async with asyncio.timeout(30):
        await waiting.wait()
    await asyncio.sleep(0.05)
    shutil.copytree(tmp_path / "data", tmp_path / "killed", ignore=shutil.ignore_patterns("*.lock"))
    monkeypatch.undo()
    for arguments in pending:
        plain(*arguments)
    served.kernel.write_batch.flush()
    assert (await call)["moved"] == 2

    settings = BrokerSettings(listen=["http://127.0.0.1:0"])
    async with Broker(settings, data=tmp_path / "killed") as broker:
        url = f"{broker.addresses[0]}/api"
        async with httpx.AsyncClient(base_url=url, auth=("guest", "guest")) as again:
            assert await payloads(again, "dead") == [0, 1]
