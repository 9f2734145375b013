from __future__ import annotations

import base64

import aio_pika
import httpx
import pytest
from aio_pika.abc import AbstractConnection

from penstock.server import Broker
from tests.server.management.given import TEXT, publish, queue, take


async def test_a_message_that_a_queue_takes_is_routed(api: httpx.AsyncClient) -> None:
    await queue(api, "orders")

    assert await publish(api, "orders")
    assert not await publish(api, "nobody's")


async def test_a_persistent_message_is_safe_when_the_answer_comes(
    api: httpx.AsyncClient, served: Broker
) -> None:
    await queue(api, "events", durable=True, arguments={"x-queue-type": "stream"})

    await publish(api, "events")

    assert (await api.get("/streams/events")).json()["committed_offset"] == 1


async def test_a_message_is_shown_with_its_properties(api: httpx.AsyncClient) -> None:
    await queue(api, "orders")
    properties = {
        "content_type": "text/plain",
        "delivery_mode": 2,
        "priority": 3,
        "timestamp": 1_700_000_000,
        "headers": {"n": 1, "list": [1, "a"], "table": {"yes": True}},
    }
    body = {**TEXT, "properties": properties, "routing_key": "orders", "payload": "grün"}
    await api.post("/exchanges/%2F/amq.default/publish", json=body)

    assert await take(api, "orders") == [
        {
            "payload_bytes": 5,
            "redelivered": False,
            "exchange": "",
            "routing_key": "orders",
            "message_count": 0,
            "properties": properties,
            "payload": "grün",
            "payload_encoding": "string",
        }
    ]


@pytest.mark.parametrize(
    ("ackmode", "left"),
    [
        ("ack_requeue_true", 2),
        ("reject_requeue_true", 2),
        ("ack_requeue_false", 0),
        ("reject_requeue_false", 0),
    ],
)
async def test_what_becomes_of_messages_that_were_shown(
    api: httpx.AsyncClient, ackmode: str, left: int
) -> None:
    await queue(api, "orders")
    for payload in ("1", "2"):
        await publish(api, "orders", payload)

    shown = await take(api, "orders", 5, ackmode=ackmode)

    assert [(row["payload"], row["message_count"]) for row in shown] == [("1", 1), ("2", 0)]
    kept = (await api.get("/queues/%2F/orders")).json()
    assert (kept["messages_ready"], kept["messages_unacknowledged"]) == (left, 0)
    again = await take(api, "orders", 5)
    assert [(row["payload"], row["redelivered"]) for row in again] == [
        (payload, True) for payload in ("1", "2")[:left]
    ]


async def test_what_is_rejected_is_dead_lettered(api: httpx.AsyncClient) -> None:
    await queue(api, "dead")
    dead_letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    await queue(api, "orders", arguments=dead_letters)
    await publish(api, "orders")

    await take(api, "orders", ackmode="reject_requeue_false")

    [dead] = await take(api, "dead")
    assert dead["properties"]["headers"]["x-death"][0]["reason"] == "rejected"


async def test_bytes_travel_as_base64(api: httpx.AsyncClient) -> None:
    await queue(api, "orders")
    content = bytes(range(256))
    body = {
        "properties": {},
        "routing_key": "orders",
        "payload": base64.b64encode(content).decode(),
        "payload_encoding": "base64",
    }
    await api.post("/exchanges/%2F/amq.default/publish", json=body)

    [row] = await take(api, "orders")

    assert row["payload_encoding"] == "base64"
    assert base64.b64decode(row["payload"]) == content


async def test_a_payload_may_be_cut(api: httpx.AsyncClient) -> None:
    await queue(api, "orders")
    await publish(api, "orders", "123456789")

    [row] = await take(api, "orders", truncate=3)

    assert (row["payload"], row["payload_bytes"]) == ("123", 9)


async def test_a_large_message_is_shown_and_stays(
    api: httpx.AsyncClient, amqp: AbstractConnection
) -> None:
    channel = await amqp.channel()
    await channel.declare_queue("orders", durable=True)
    body = b"0123456789" * 100_000
    await channel.default_exchange.publish(aio_pika.Message(body, delivery_mode=2), "orders")

    [cut] = await take(api, "orders", truncate=10, ackmode="ack_requeue_true")
    [whole] = await take(api, "orders")

    assert (cut["payload"], cut["payload_bytes"]) == ("0123456789", 1_000_000)
    assert whole["payload"].encode() == body


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"routing_key": "x"}, "key_missing: properties, payload, payload_encoding"),
        ({**TEXT, "routing_key": "x", "payload": 1}, "payload: a string is expected"),
        ({**TEXT, "routing_key": "x", "payload": "", "properties": {"hue": 1}}, "'hue'"),
        ({**TEXT, "routing_key": "x", "payload": "", "properties": {"priority": "9"}}, "priority"),
        ({**TEXT, "routing_key": "x" * 300, "payload": ""}, "the limit is 255"),
        (
            {**TEXT, "routing_key": "x", "payload": "", "properties": {"user_id": "else"}},
            "user_id property set to 'else' but authenticated user was 'guest'",
        ),
    ],
)
async def test_what_cannot_be_published_says_why(
    api: httpx.AsyncClient, body: dict[str, object], reason: str
) -> None:
    answer = await api.post("/exchanges/%2F/amq.default/publish", json=body)

    assert answer.status_code == 400
    assert reason in answer.json()["reason"]


async def test_a_full_queue_refuses(api: httpx.AsyncClient) -> None:
    await queue(api, "orders", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    body = {**TEXT, "routing_key": "orders", "payload": ""}

    assert (await api.post("/exchanges/%2F/amq.default/publish", json=body)).status_code == 400


async def test_a_stream_is_not_read_this_way(api: httpx.AsyncClient) -> None:
    await queue(api, "events", durable=True, arguments={"x-queue-type": "stream"})

    answer = await api.post(
        "/queues/%2F/events/get",
        json={"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"},
    )

    assert answer.status_code == 400
    assert "not supported by stream" in answer.json()["reason"]
