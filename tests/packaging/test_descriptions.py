"""OpenAPI and AsyncAPI documents describe what is there."""

from __future__ import annotations

from typing import Any

import pika

from penstock.client.management import call_management_api
from penstock.server.management.server import ROUTES
from pytest_penstock import BrokerFixture
from scripts.openapi_files import documents


def test_every_call_of_every_api_is_described_once() -> None:
    found = documents()
    for document in found.values():
        assert document["openapi"].startswith("3.1")
        operations = [each for path in document["paths"].values() for each in path.values()]
        named = [each["operationId"] for each in operations]
        assert len(named) == len(set(named))
        # FastAPI makes the summary of the function's name, the description of its docstring.
        sentences = {
            each["operationId"]: each.get("description") or each["summary"] for each in operations
        }
        assert not [name for name, text in sentences.items() if "." not in text and "…" not in text]
    described = {
        (method.upper(), path)
        for path, operations in found["management"]["paths"].items()
        for method in operations
    }
    assert described == {
        (route.method, route.path) for route in ROUTES if route.path.startswith("/api/")
    }


def test_asyncapi_has_queues_streams_and_bound_keys(penstock_broker: BrokerFixture) -> None:
    with pika.BlockingConnection(pika.URLParameters(penstock_broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_declare("own", exclusive=True)
        channel.exchange_declare("shop", "topic", durable=True)
        channel.queue_bind("orders", "shop", "order.*.created")
        vhost = penstock_broker.url.rpartition("/")[2]
        path = f"/api/asyncapi/{vhost}"
        document: dict[str, Any] = call_management_api(penstock_broker.management_url, path)
    assert document["asyncapi"] == "3.0.0"
    assert {"amqp", "mqtt"} <= {each["protocol"] for each in document["servers"].values()}
    orders = document["channels"]["queue-orders"]
    assert (orders["address"], orders["x-queue-type"]) == ("orders", "stream")
    assert "queue-own" not in document["channels"]
    created = document["channels"]["exchange-shop-order._.created"]
    assert created["address"] == "order.*.created"
    assert created["bindings"]["amqp"]["exchange"]["type"] == "topic"
    references = {each["channel"]["$ref"] for each in document["operations"].values()}
    assert references == {f"#/channels/{name}" for name in document["channels"]}
