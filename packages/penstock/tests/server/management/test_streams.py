"""Ranges of streams as Arrow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import aio_pika
import httpx
import pyarrow as pa
import pytest
from aio_pika.abc import AbstractConnection

from penstock.destinations.stream import Stream
from penstock.server import Broker
from tests.server.management.conftest import As
from tests.server.management.given import publish, queue, user

STREAM = {"durable": True, "arguments": {"x-queue-type": "stream"}}


@pytest.fixture
async def events(api: httpx.AsyncClient) -> httpx.AsyncClient:
    """The API of a broker with a stream of ten messages."""
    await queue(api, "events", **STREAM)
    for number in range(10):
        await publish(api, "events", f"event {number}")
    return api


def table(answer: httpx.Response) -> pa.Table:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    return pa.ipc.open_stream(answer.content).read_all()


def offsets(answer: httpx.Response) -> list[int]:
    found: list[int] = table(answer).column("offset").to_pylist()
    return found


async def test_a_stream_says_what_it_holds(events: httpx.AsyncClient) -> None:
    shown = (await events.get("/streams/events")).json()

    assert (shown["first_offset"], shown["next_offset"], shown["committed_offset"]) == (0, 10, 10)
    assert shown["segments"] == 1
    assert shown["bytes"] > 0
    assert (await events.get("/streams")).json() == [shown]


async def test_a_range_holds_the_messages(events: httpx.AsyncClient) -> None:
    answer = await events.get("/streams/events?from=3&to=5")

    rows = table(answer).to_pylist()
    assert [row["offset"] for row in rows] == [3, 4]
    assert [row["body"] for row in rows] == [b"event 3", b"event 4"]
    assert {(row["exchange"], row["routing_key"]) for row in rows} == {("", "events")}
    assert (answer.headers["x-first-offset"], answer.headers["x-next-offset"]) == ("3", "5")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("from=first", range(10)),
        ("from=first&to=2", range(2)),
        ("to=2", range(2)),
        ("from=8", range(8, 10)),
        ("from=8&to=99", range(8, 10)),
        ("from=last", range(9, 10)),
        ("from=next", range(0)),
        ("from=10", range(0)),
        ("from=4&to=4", range(0)),
        ("timestamp=0", range(10)),
        ("timestamp=99999999999999", range(0)),
        ("from=3&max_bytes=1", range(3, 4)),
        ("from=3&max_bytes=100000", range(3, 10)),
    ],
)
async def test_where_a_range_begins_and_ends(
    events: httpx.AsyncClient, query: str, expected: range
) -> None:
    assert offsets(await events.get(f"/streams/events?{query}")) == list(expected)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("from=11", 416),
        ("from=5&to=4", 400),
        ("from=-1", 400),
        ("from=x", 400),
        ("from=1&timestamp=1", 400),
        ("timestamp=yesterday", 400),
        ("from=1&max_bytes=few", 400),
    ],
)
async def test_a_range_that_is_none_says_why(
    events: httpx.AsyncClient, query: str, status: int
) -> None:
    answer = await events.get(f"/streams/events?{query}")

    assert answer.status_code == status
    assert answer.json()["reason"]


async def test_what_retention_took_is_gone(api: httpx.AsyncClient, served: Broker) -> None:
    small = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 1000}
    await queue(api, "events", durable=True, arguments=small)
    for _ in range(10):
        await publish(api, "events", "x" * 600)
    stream = cast(Stream, served.vhosts["/"].queues["events"])
    stream.log.retain(None, 2000)
    first = stream.log.first_offset

    gone = await api.get("/streams/events?from=0")

    assert first > 0
    assert gone.status_code == 410
    assert (gone.json()["first_offset"], gone.json()["next_offset"]) == (first, 10)
    assert offsets(await api.get(f"/streams/events?from={first}")) == list(range(first, 10))
    assert offsets(await api.get("/streams/events?from=first")) == list(range(first, 10))


async def test_only_what_is_safely_on_disk_is_served(
    events: httpx.AsyncClient, served: Broker
) -> None:
    stream = cast(Stream, served.vhosts["/"].queues["events"])
    stream.log.synced_offset = 7

    answer = await events.get("/streams/events?from=5")
    beyond = await events.get("/streams/events?from=8")

    assert offsets(answer) == [5, 6]
    assert answer.headers["x-next-offset"] == "7"
    assert beyond.status_code == 416


async def test_a_large_body_is_in_its_place(
    api: httpx.AsyncClient, amqp: AbstractConnection
) -> None:
    await queue(api, "events", **STREAM)
    channel = await amqp.channel()
    bodies = [b"small", os.urandom(1 << 20), b"small again"]
    for body in bodies:
        await channel.default_exchange.publish(aio_pika.Message(body), "events")

    rows = table(await api.get("/streams/events?from=0")).to_pylist()

    assert [row["body"] for row in rows] == bodies
    # A body in a file of its own counts as what it has.
    for most, expected in ((1_000_000, [0]), (1 << 20, [0]), (1_100_000, [0, 1, 2])):
        assert offsets(await api.get(f"/streams/events?from=0&max_bytes={most}")) == expected
    assert offsets(await api.get("/streams/events?from=1&max_bytes=1000")) == [1]


async def test_to_read_is_to_consume_and_needs_no_tag(
    events: httpx.AsyncClient, as_user: As
) -> None:
    await user(events, "ada")
    ada = as_user("ada", "ada")
    assert len(offsets(await ada.get("/streams/events?from=0"))) == 10

    nothing = {"configure": "", "write": "", "read": "^other"}
    await events.put("/permissions/%2F/ada", json=nothing)
    assert (await ada.get("/streams/events?from=0")).status_code == 401
    assert (await ada.get("/streams")).json() == []


async def test_a_queue_is_no_stream(api: httpx.AsyncClient) -> None:
    await queue(api, "orders")

    assert (await api.get("/streams/orders?from=0")).status_code == 404


async def test_a_stream_of_another_virtual_host(api: httpx.AsyncClient) -> None:
    await api.put("/vhosts/lab")
    await api.put("/queues/lab/events", json=STREAM)

    assert (await api.get("/streams/events?vhost=lab")).json()["vhost"] == "lab"
    assert (await api.get("/streams/events?vhost=none")).status_code == 404
    assert len((await api.get("/streams?vhost=lab")).json()) == 1


def test_arrow_is_loaded_when_it_is_needed(tmp_path: Path) -> None:
    """An idle broker has no use for its fifty megabytes."""
    program = (
        "import asyncio, pathlib, sys\n"
        "from penstock.core.config import BrokerSettings\n"
        "from penstock.server import Broker\n"
        "async def main():\n"
        "    settings = BrokerSettings(listen=['http://127.0.0.1:0'])\n"
        f"    async with Broker(settings, data=pathlib.Path({str(tmp_path)!r})):\n"
        "        assert 'pyarrow' not in sys.modules and 'numpy' not in sys.modules\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
