"""Delayed messages of AMQP 1.0 and MQTT clients: durable, and cancelled over the API."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.broker.contract import PERSISTENT, SENDER_SELECTED, Message
from penstock.client import connect
from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.core.config import BrokerSettings
from penstock.core.errors import PenstockError
from penstock.destinations.delayed import DueTimes
from penstock.server import Broker
from penstock.server.management.messages import HttpPublisher
from tests.peers import resident_bytes
from tests.server.management.given import queue, take
from tests.server.management.test_tracing import eventually

LISTEN = [f"{scheme}://127.0.0.1:0" for scheme in ("amqp", "http", "mqtt")]


def api_of(broker: Broker) -> httpx.AsyncClient:
    url = f"{broker.addresses[1]}/api"
    return httpx.AsyncClient(base_url=url, auth=("guest", "guest"), timeout=60)


def url_of(broker: Broker, scheme: str) -> str:
    address = broker.addresses[2 if scheme == "mqtt" else 0]
    return f"{scheme}://guest:guest@{address.partition('://')[2]}"


async def waiting(api: httpx.AsyncClient) -> Any:
    return (await api.get("/delayed-messages/%2F")).json()


async def test_amqp_10_and_mqtt_clients_delay_messages(tmp_path: Path) -> None:
    async with (
        Broker(BrokerSettings(listen=LISTEN), data=tmp_path) as broker,
        api_of(broker) as api,
    ):
        await queue(api, "work")
        await api.post("/bindings/%2F/e/amq.topic/q/work", json={"routing_key": "a.b"})
        async with connect(url_of(broker, "mqtt")) as fabric:
            await fabric.publish("$delayed/0/a/b", "at once")
            await fabric.publish("$delayed/1/a/b", "by the topic")
            await fabric.publish("a/b", "by a property", headers={"x-opt-delivery-delay": 400})
        async with connect(url_of(broker, "amqp+1.0")) as fabric:
            at = int(time.time() * 1000) + 200
            await fabric.push("work").send("by the time", headers={"x-opt-delivery-time": at})
            await fabric.push("work").send("late", headers={"x-opt-delivery-delay": 60_000})
        assert (await waiting(api))["waiting"] >= 1

        async def arrived() -> bool:
            return broker.vhosts["/"].queues["work"].message_count == 4

        await eventually(arrived)
        rows = await take(api, "work", 9)
        expected = ["at once", "by a property", "by the time", "by the topic"]
        assert sorted(row["payload"] for row in rows) == expected
        assert all("x-opt" not in str(row["properties"]) for row in rows)


@pytest.mark.parametrize("topic", ["$delayed/x/a", "$delayed/5", "$delayed/5/"])
async def test_an_invalid_delayed_topic_is_refused(tmp_path: Path, topic: str) -> None:
    async with Broker(BrokerSettings(listen=LISTEN), data=tmp_path) as broker:
        with pytest.raises(PenstockError, match="144"):
            async with asyncio.timeout(20), connect(url_of(broker, "mqtt")) as fabric:
                await fabric.publish(topic, "x")


async def test_they_survive_a_restart_and_are_cancelled(tmp_path: Path) -> None:
    settings = BrokerSettings(listen=LISTEN)
    async with Broker(settings, data=tmp_path) as broker:
        async with connect(url_of(broker, "amqp+1.0")) as fabric:
            for name in ("kept", "cancelled", "cancelled", "by number"):
                delay = {"x-opt-delivery-delay": 1500 if name == "kept" else 3000}
                await fabric.push("work").send(name, headers=delay, message_id=name)
    async with Broker(settings, data=tmp_path) as broker, api_of(broker) as api:
        listed = await waiting(api)
        assert listed["waiting"] == 4
        [number] = [row["id"] for row in listed["messages"] if row["message_id"] == "by number"]
        assert (await api.delete(f"/delayed-messages/%2F/{number}")).status_code == 204
        assert (await api.delete(f"/delayed-messages/%2F/{number}")).status_code == 404
        path = "/delayed-messages/%2F?message_id=cancelled"
        assert (await api.delete(path)).json() == {"cancelled": 2}
        assert (await waiting(api))["waiting"] == 1
        assert (await api.delete(path)).status_code == 404
        assert (await api.delete("/delayed-messages/%2F")).status_code == 400

        async def arrived() -> bool:
            return bool((await waiting(api))["waiting"] == 0)

        await eventually(arrived)
        assert [row["payload"] for row in await take(api, "work", 9)] == ["kept"]


def test_due_times_are_in_order_and_small() -> None:
    times = DueTimes()
    given = [(number * 7919 % 1_000_000, number) for number in range(5000)]
    for due, offset in given:
        times.add(due, offset)
    assert len(times) == 5000
    found = []
    while (first := times.first()) is not None:
        times.pop()
        found.append(first)
        if len(found) == 100:
            times.add(first[0], 9999)  # in the current minute
    assert found == sorted([*given, (found[99][0], 9999)])


async def delay_many(broker: Broker, count: int) -> None:
    broker.vhosts["/"].declare_queue("work", durable=True)
    exchange = broker.vhosts["/"].exchanges[""]
    body, route = b"x" * 100, encode_route("", "work")
    for number in range(count):
        delay = 3_600_000 + number * 7919 % 7_200_000
        properties = BasicProperties(headers={"x-opt-delivery-delay": delay}, delivery_mode=2)
        flags = PERSISTENT | SENDER_SELECTED
        message = Message(route, encode_header(properties, len(body)), body, flags)
        if number % 1000 == 999:
            await HttpPublisher(broker.kernel, exchange).post(message)
        else:
            exchange.accept(message)


@pytest.mark.slow
async def test_a_million_that_wait_take_little_memory(tmp_path: Path) -> None:
    async with Broker(BrokerSettings(listen=LISTEN), data=tmp_path) as broker:
        await delay_many(broker, 1000)
        before = resident_bytes(os.getpid())
        await delay_many(broker, 1_000_000)
        grown = resident_bytes(os.getpid()) - before
        print(f"{grown / 2**20:.0f} MiB for a million delayed messages")
        assert grown < 64 << 20
        started = time.process_time()
    async with Broker(BrokerSettings(listen=LISTEN), data=tmp_path) as broker:
        print(f"{time.process_time() - started:.1f} CPU seconds to restore them")
        assert len(broker.vhosts["/"].delayed) == 1_001_000
