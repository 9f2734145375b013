"""The firehose and the timelines of messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aio_pika
import httpx
from aio_pika.abc import AbstractConnection
from typer.testing import CliRunner

from penstock.cli import app
from penstock.client import connect
from penstock.core.config import BrokerSettings
from penstock.core.trace_context import trace_id_of
from penstock.destinations.queue import ClassicQueue
from penstock.server import Broker
from tests.server.management.conftest import As
from tests.server.management.given import publish, queue, take, user


async def eventually(condition: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(20):
        while not (found := await condition()):  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.01)
        return found


async def timelines(api: httpx.AsyncClient) -> list[Any]:
    """The latest first."""
    rows = (await api.get("/message-traces/%2F")).json()["timelines"]
    return [(await api.get(f"/message-traces/%2F/{row['trace_id']}")).json() for row in rows]


def names(timeline: Any) -> list[str]:
    return [event["event"] for event in timeline["events"]]


async def test_the_path_of_a_message_to_its_dead_letter_queue(api: httpx.AsyncClient) -> None:
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    await queue(api, "orders", durable=True, arguments=dead)
    await queue(api, "dead", durable=True)
    answer = await api.put("/message-traces/%2F", json={"keys": ["orders", "x.#"]})
    assert answer.status_code == 204
    await publish(api, "orders")
    await publish(api, "dead", "not selected")
    await take(api, "orders", ackmode="reject_requeue_true")
    await take(api, "orders", ackmode="reject_requeue_false")
    [_, row] = await take(api, "dead", 2)

    [timeline] = await timelines(api)
    assert trace_id_of(row["properties"]["headers"]["traceparent"]) == timeline["trace_id"]
    assert names(timeline) == [
        *("published", "routed", "queued", "delivered", "requeued", "delivered", "rejected"),
        *("dead-lettered", "republished", "routed", "queued", "delivered", "acknowledged"),
    ]
    times = [event["time"] for event in timeline["events"]]
    assert times == sorted(times)
    dead_lettered = timeline["events"][7]
    assert (dead_lettered["queue"], dead_lettered["reason"]) == ("orders", "rejected")
    assert timeline["events"][8]["routing_key"] == "dead"


async def test_a_stored_message_is_stored_before_it_is_delivered(
    api: httpx.AsyncClient, amqp: AbstractConnection
) -> None:
    await api.put("/message-traces/%2F", json={})
    channel = await amqp.channel()
    declared = await channel.declare_queue("work", durable=True)
    arrived: asyncio.Queue[Any] = asyncio.Queue()
    await declared.consume(arrived.put)
    parent = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    message = aio_pika.Message(
        b"x", delivery_mode=aio_pika.DeliveryMode.PERSISTENT, headers={"traceparent": parent}
    )
    await channel.default_exchange.publish(message, "work")
    received = await arrived.get()
    assert received.headers["traceparent"] == parent, "the publisher's own is kept"
    await received.ack()

    async def acknowledged() -> Any:
        [timeline] = await timelines(api)
        return timeline if names(timeline)[-1] == "acknowledged" else None

    timeline = await eventually(acknowledged)
    assert timeline["trace_id"] == "ab" * 16
    assert names(timeline) == ["published", "routed", "stored", "delivered", "acknowledged"]
    assert timeline["events"][0]["user"] == timeline["events"][3]["user"] == "guest"
    [row] = (await api.get("/message-timelines/%2F?user=guest")).json()
    assert row["trace_id"] == timeline["trace_id"]


async def test_a_sample_a_limit_and_an_end(api: httpx.AsyncClient, served: Broker) -> None:
    await queue(api, "work")
    await api.put("/message-traces/%2F", json={"sample": 0.5, "limit": 20})
    assert type(served.vhosts["/"].queues["work"]) is not ClassicQueue
    for _ in range(30):
        await publish(api, "work")
    assert 3 < len(await timelines(api)) <= 20
    assert (await api.delete("/message-traces/%2F")).status_code == 204
    assert type(served.vhosts["/"].queues["work"]) is ClassicQueue
    assert served.vhosts["/"].tracer is None
    assert len(await timelines(api)) > 3, "what is recorded stays"
    for wrong in ({"keys": "x"}, {"sample": 0}, {"sample": 2}, {"limit": 0}, {"colour": 1}):
        answer = await api.put("/message-traces/%2F", json=wrong)
        assert answer.status_code == 400
    assert (await api.get("/message-traces/%2F/unknown")).status_code == 404


async def test_timelines_are_paged_sorted_and_filtered(api: httpx.AsyncClient, as_user: As) -> None:
    await api.put("/message-traces/%2F", json={})
    for name in ("alpha", "beta"):
        await queue(api, name)
        for _ in range(3):
            await publish(api, name)
    await publish(api, "nowhere")
    await take(api, "beta", 2)

    async def found(**query: Any) -> list[Any]:
        answer = await api.get("/message-timelines/%2F", params={"page": 1, **query})
        assert answer.status_code == 200, answer.text
        rows: list[Any] = answer.json()["items"]
        return rows

    rows = await found(sort="started", sort_reverse="true")
    assert [row["routing_key"] for row in rows] == ["nowhere", *["beta"] * 3, *["alpha"] * 3]
    assert rows[0]["path"] == ["published", "unroutable"]
    assert rows[1]["queues"] == ["beta"]
    assert all(row["started"] <= row["last_time"] for row in rows)
    assert len(await found(page_size=5, page=2)) == 2
    assert len(await found(name="alp")) == 3
    assert len(await found(name="^(alpha|nowhere)$", use_regex="true")) == 4
    assert len(await found(queue="beta")) == 3
    assert len(await found(queue="beta", event="acknowledged")) == 2
    assert len(await found(event="unroutable")) == 1
    assert len(await found(trace_id=rows[0]["trace_id"][:12].upper())) == 1
    assert await found(user="nobody") == []
    await api.put("/vhosts/theirs")
    await user(api, "ops", "administrator", vhost=None)
    refused = await as_user("ops", "ops").get("/message-timelines/theirs")
    assert "access virtual host" in refused.json()["reason"]


async def test_the_firehose_as_in_rabbitmq(
    api: httpx.AsyncClient, amqp: AbstractConnection
) -> None:
    channel = await amqp.channel()
    work = await channel.declare_queue("work")
    trace = await channel.declare_queue("trace")
    await trace.bind("amq.rabbitmq.trace", "#")
    assert (await api.put("/vhosts/%2F", json={"tracing": True})).status_code == 204
    assert (await api.get("/vhosts/%2F")).json()["tracing"] is True
    await channel.default_exchange.publish(aio_pika.Message(b"x", message_id="7"), "work")
    received = await work.get()
    assert received is not None
    await received.ack()
    published, delivered = await trace.get(), await trace.get()
    assert published is not None
    assert delivered is not None
    assert (published.routing_key, published.body) == ("publish.", b"x")
    assert (delivered.routing_key, delivered.body) == ("deliver.work", b"x")
    headers: Any = published.headers
    assert headers["exchange_name"] == ""
    assert headers["routing_keys"] == ["work"]
    assert headers["routed_queues"] == ["work"]
    assert headers["properties"]["message_id"] == "7"
    assert (headers["vhost"], headers["user"]) == ("/", "guest")
    assert delivered.headers["redelivered"] == 0
    assert await trace.get(fail=False) is None, "copies are not copied"
    await api.put("/vhosts/%2F", json={"tracing": False})
    await channel.default_exchange.publish(aio_pika.Message(b"y"), "work")
    assert await work.get() is not None
    assert await trace.get(fail=False) is None


async def test_mqtt_streams_and_the_commands(tmp_path: Any) -> None:
    listen = [f"{scheme}://127.0.0.1:0" for scheme in ("amqp", "http", "mqtt")]
    async with Broker(BrokerSettings(listen=listen), data=tmp_path) as broker:
        amqp, http, mqtt = (each.replace("://", "://guest:guest@") for each in broker.addresses)

        async def penstock(*words: str) -> str:
            arguments = ["trace", *words, "--url", http]
            run = await asyncio.to_thread(CliRunner().invoke, app, arguments)
            assert run.exit_code == 0, run.output
            return run.output

        await penstock("on", "--key", "sensors.#")
        async with connect(mqtt) as fabric, connect(amqp) as publisher:
            await publisher.stream("s", subjects=["sensors.#"]).send("first")
            receiving = fabric.subscribe("sensors/#", name="listener")
            await receiving.open()
            replay = publisher.replay("s", "next")
            await replay.open()
            await publisher.publish("sensors.1", "x")
            message = await receiving.receive()
            await message.ack()
            assert (await replay.receive()).text == "x"

            async def shown() -> Any:
                [line] = (await penstock("list")).splitlines()
                output = await penstock("show", line.split()[0])
                return output if output.count(" delivered ") == 2 else None

            output = await eventually(shown)
            assert output.splitlines()[0].split()[3] == "published"
            assert "routing_key=sensors.1" in output
            assert "acknowledged" in output
        await penstock("off")
        await penstock("on", "--firehose")
        assert broker.tracer(broker.vhosts["/"]).firehose
        await penstock("off", "--firehose")
        assert broker.vhosts["/"].tracer is None


async def test_clients_do_not_publish_to_the_firehose(api: httpx.AsyncClient) -> None:
    body = {"properties": {}, "routing_key": "", "payload": "", "payload_encoding": "string"}
    answer = await api.post("/exchanges/%2F/amq.rabbitmq.trace/publish", json=body)
    assert "internal exchange" in answer.text
