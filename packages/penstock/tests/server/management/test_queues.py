from __future__ import annotations

import httpx
import pytest
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

from tests.server.management.given import publish, queue


async def test_a_queue_is_made_once(api: httpx.AsyncClient) -> None:
    body = {"durable": True, "arguments": {"x-max-length": 10}}

    assert (await api.put("/queues/%2F/orders", json=body)).status_code == 201
    assert (await api.put("/queues/%2F/orders", json=body)).status_code == 204


async def test_a_queue_cannot_be_made_otherwise_than_it_is(api: httpx.AsyncClient) -> None:
    await queue(api, "orders", durable=True)

    answer = await api.put("/queues/%2F/orders", json={"durable": False})

    assert answer.status_code == 400
    assert answer.json() == {
        "error": "bad_request",
        "reason": "inequivalent arg 'durable' for queue 'orders' in vhost '/': "
        "received 'false' but current is 'true'",
    }


async def test_a_queue_shows_what_it_holds(api: httpx.AsyncClient) -> None:
    await queue(api, "orders", arguments={"x-max-length": 10})
    await publish(api, "orders", "12345")

    shown = (await api.get("/queues/%2F/orders")).json()

    assert shown["name"] == "orders"
    assert shown["vhost"] == "/"
    assert shown["arguments"] == {"x-max-length": 10}
    assert (shown["messages"], shown["messages_ready"], shown["message_bytes_ready"]) == (1, 1, 5)
    assert shown["consumer_details"] == []


async def test_a_queue_counts_its_messages(
    api: httpx.AsyncClient, amqp: AbstractConnection
) -> None:
    await queue(api, "orders")
    for number in range(3):
        await publish(api, "orders", str(number))
    channel = await amqp.channel()
    declared = await channel.get_queue("orders")
    await (await declared.get()).ack()
    await declared.get()
    await declared.get(no_ack=True)
    await channel.get_queue("orders")  # the acknowledgement was read before

    stats = (await api.get("/queues/%2F/orders")).json()["message_stats"]

    assert (stats["publish"], stats["deliver_get"], stats["ack"]) == (3, 3, 1)
    assert stats["publish_details"] == {"rate": 0.0}  # asked for the first time


async def test_a_queue_names_its_consumers(
    api: httpx.AsyncClient, amqp: AbstractConnection
) -> None:
    channel = await amqp.channel()
    declared = await channel.declare_queue("orders")

    async def ignore(_: AbstractIncomingMessage) -> None: ...

    tag = await declared.consume(ignore)

    [consumer] = (await api.get("/queues/%2F/orders")).json()["consumer_details"]

    assert consumer["consumer_tag"] == tag
    assert consumer["channel_details"]["user"] == "guest"


async def test_a_list_is_of_one_virtual_host_or_of_all(api: httpx.AsyncClient) -> None:
    await api.put("/vhosts/other")
    await queue(api, "here")
    await api.put("/queues/other/there", json={})

    async def names(path: str) -> set[str]:
        return {row["name"] for row in (await api.get(path)).json()}

    assert await names("/queues") == {"here", "there"}
    assert await names("/queues/%2F") == {"here"}
    assert await names("/queues/other") == {"there"}


@pytest.mark.parametrize("path", ["/queues/%2F/none", "/queues/none", "/queues/none/orders"])
async def test_what_is_not_there_is_not_found(api: httpx.AsyncClient, path: str) -> None:
    answer = await api.get(path)

    assert answer.status_code == 404
    assert answer.json()["error"] == "Object Not Found"


async def test_a_queue_is_deleted_once(api: httpx.AsyncClient) -> None:
    await queue(api, "orders")

    assert (await api.delete("/queues/%2F/orders")).status_code == 204
    assert (await api.delete("/queues/%2F/orders")).status_code == 404


async def test_a_queue_that_holds_messages_is_kept_if_asked(api: httpx.AsyncClient) -> None:
    await queue(api, "orders")
    await publish(api, "orders")

    answer = await api.delete("/queues/%2F/orders?if-empty=true")

    assert answer.status_code == 400
    assert answer.json()["reason"] == "queue 'orders' in vhost '/' not empty"


async def test_a_queue_is_purged(api: httpx.AsyncClient) -> None:
    await queue(api, "orders")
    await publish(api, "orders")

    assert (await api.delete("/queues/%2F/orders/contents")).status_code == 204
    assert (await api.get("/queues/%2F/orders")).json()["messages"] == 0


async def test_a_stream_is_not_purged(api: httpx.AsyncClient) -> None:
    await queue(api, "events", durable=True, arguments={"x-queue-type": "stream"})

    assert (await api.delete("/queues/%2F/events/contents")).status_code == 400


async def test_another_connections_own_queue_is_left_alone(
    api: httpx.AsyncClient, amqp: AbstractConnection
) -> None:
    channel = await amqp.channel()
    await channel.declare_queue("mine", exclusive=True)

    assert (await api.delete("/queues/%2F/mine")).status_code == 400
    assert (await api.get("/queues/%2F/mine")).json()["exclusive"] is True


async def test_a_name_may_hold_anything(api: httpx.AsyncClient) -> None:
    await queue(api, "caf%C3%A9%2F%3Fnoir%25")

    assert [row["name"] for row in (await api.get("/queues")).json()] == ["café/?noir%"]


async def test_a_body_that_is_no_json_is_refused(api: httpx.AsyncClient) -> None:
    answer = await api.put("/queues/%2F/orders", content=b"{durable")

    assert (answer.status_code, answer.json()["reason"]) == (400, "not_json")
