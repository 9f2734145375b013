from __future__ import annotations

import asyncio
from typing import cast

import httpx
import pytest
from aio_pika.abc import AbstractConnection

from penstock.broker.contract import Queue
from penstock.core.metrics import Metrics
from penstock.server import Broker
from penstock.server.management.metrics import MESSAGE_STATS, RateSampler
from tests.server.management.given import publish, queue


async def test_the_overview_counts_what_there_is(
    api: httpx.AsyncClient, amqp: AbstractConnection
) -> None:
    await amqp.channel()
    await queue(api, "orders")
    await publish(api, "orders")

    overview = (await api.get("/overview")).json()

    totals = {"connections": 1, "channels": 1, "consumers": 0, "exchanges": 7, "queues": 1}
    assert overview["object_totals"] == totals
    assert overview["queue_totals"] == {
        "messages": 1,
        "messages_ready": 1,
        "messages_unacknowledged": 0,
    }
    assert overview["message_stats"]["publish"] == 1


async def test_the_overview_names_the_listeners(api: httpx.AsyncClient, served: Broker) -> None:
    listeners = (await api.get("/overview")).json()["listeners"]

    assert [row["url"] for row in listeners] == served.addresses
    assert [row["protocol"] for row in listeners] == ["amqp", "http"]


async def test_the_node_is_found_by_its_name(api: httpx.AsyncClient) -> None:
    [node] = (await api.get("/nodes")).json()

    assert node["running"] is True
    assert node["mem_used"] > 0
    assert node["uptime"] > 0
    assert (await api.get(f"/nodes/{node['name']}")).json()["name"] == node["name"]
    assert (await api.get("/nodes/other")).status_code == 404


async def test_amqp_clients_are_told_where_ranges_are(
    served: Broker, amqp: AbstractConnection
) -> None:
    assert served.product["arrow"] == f"{served.addresses[1]}/api/streams"


async def test_a_rate_is_over_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("penstock.server.management.metrics.time.time", lambda: now)
    metrics = Metrics()
    rates = RateSampler(asyncio.get_running_loop(), metrics)
    for _ in range(20):  # 100 messages a second, then none
        rates.start()
        rates.stop()
        now += 1
        metrics.published += 100 if now < 1017 else 0

    stats = rates.rates(MESSAGE_STATS, age=10)

    assert stats["publish"] == 1600
    assert stats["publish_details"]["rate"] == 40.0  # two of the last five seconds
    samples = stats["publish_details"]["samples"]
    assert [sample["sample"] for sample in samples[:4]] == [1600, 1600, 1600, 1600]
    assert samples[0]["timestamp"] - samples[-1]["timestamp"] == 10_000
    assert stats["ack_details"]["rate"] == 0.0


async def test_rates_of_a_queue_are_those_since_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    rates = RateSampler(loop, Metrics())
    queue = cast(Queue, Metrics())  # anything that can be referred to weakly
    shown = []
    for seconds, count in ((0, 100), (0.5, 200), (2, 300), (2.5, 400), (4, 300)):
        monkeypatch.setattr(loop, "time", lambda at=now + seconds: at)
        shown.append(rates.of_queue(queue, {"publish": count})["publish_details"]["rate"])
    monkeypatch.undo()

    assert shown == [0.0, 0.0, 100.0, 100.0, 0.0]
