"""RabbitMQ federates exchanges and queues of Penstock, and runs shovels between both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.federation.conftest import PATIENCE_SECONDS
from tests.fixtures import needed, running
from tests.peers import Penstock, RabbitMQ

pytestmark = [pytest.mark.peer, pytest.mark.slow]

PLUGINS = (
    "rabbitmq_management",
    "rabbitmq_federation_management",
    "rabbitmq_shovel_management",
    "rabbitmq_amqp1_0",
)


@pytest.fixture(scope="module")
def rabbitmq_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, httpx.Client]]:
    """The AMQP URL and the management API of a RabbitMQ with the plugins."""
    server = needed(RabbitMQ, tmp_path_factory.mktemp("links"), plugins=PLUGINS)
    url = f"http://127.0.0.1:{server.management_port}/api"
    with running(server), httpx.Client(base_url=url, auth=("guest", "guest"), timeout=60) as api:
        until(lambda: answers(api))
        yield server.url, api


def answers(api: httpx.Client) -> bool:
    try:
        return api.get("/overview").is_success
    except httpx.TransportError:
        return False


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def put(api: httpx.Client, path: str, body: Any) -> None:
    api.put(path, json=body).raise_for_status()


def channel(url: str) -> BlockingChannel:
    return pika.BlockingConnection(pika.URLParameters(url)).channel()


def test_rabbitmq_federates_an_exchange_and_a_queue_of_penstock(
    rabbitmq_api: tuple[str, httpx.Client], penstock: Penstock
) -> None:
    url, api = rabbitmq_api
    here, there = channel(penstock.url), channel(url)
    put(api, "/parameters/federation-upstream/%2F/up", {"value": {"uri": penstock.url}})
    definition = {"federation-upstream-set": "all"}
    put(api, "/policies/%2F/fed", {"pattern": r"^fed\.", "definition": definition})
    for side in (here, there):
        side.exchange_declare("fed.x", "topic", durable=True)
        side.queue_declare("fed.q", durable=True)
    there.queue_declare("got")
    there.queue_bind("got", "fed.x", "a.#")
    consumed: list[bytes] = []
    there.basic_consume("fed.q", lambda *found: consumed.append(found[3]), auto_ack=True)

    def are_running() -> bool:
        there.connection.process_data_events(0.1)
        return [link["status"] for link in api.get("/federation-links").json()] == ["running"] * 2

    until(are_running)
    here.basic_publish("fed.x", "a.1", b"federated")
    here.basic_publish("fed.x", "b.1", b"not wanted")
    here.basic_publish("", "fed.q", b"queued")

    def arrived() -> Any:
        there.connection.process_data_events(0.1)
        method, properties, body = there.basic_get("got", auto_ack=True)
        return method and (properties, body)

    properties, body = until(arrived)
    assert body == b"federated"
    assert properties.headers["x-received-from"][0]["exchange"] == "fed.x"
    until(lambda: there.connection.process_data_events(0.1) or consumed == [b"queued"])
    assert there.basic_get("got", auto_ack=True)[0] is None
    for side in (here, there):
        side.connection.close()


def test_shovels_of_rabbitmq_move_messages_over_both_versions_of_amqp(
    rabbitmq_api: tuple[str, httpx.Client], penstock: Penstock
) -> None:
    url, api = rabbitmq_api
    here, there = channel(penstock.url), channel(url)
    for queue in ("out", "back"):
        here.queue_declare(queue, durable=True)
    ours = {
        "uri": penstock.url,
        "uri10": f"amqp://guest:guest@127.0.0.1:{penstock.port}?sasl=plain",
    }
    first = {"src-protocol": "amqp091", "src-uri": ours["uri"], "src-queue": "out"}
    first |= {"dest-protocol": "amqp091", "dest-uri": "amqp://", "dest-queue": "there"}
    second = {"src-protocol": "amqp091", "src-uri": "amqp://", "src-queue": "there"}
    second |= {"dest-protocol": "amqp10", "dest-uri": ours["uri10"], "dest-address": "/queue/back"}
    third = {"src-protocol": "amqp10", "src-uri": ours["uri10"], "src-address": "/queue/back"}
    third |= {"dest-protocol": "amqp091", "dest-uri": "amqp://", "dest-queue": "end"}
    for name, value in (("first", first), ("second", second), ("third", third)):
        put(api, f"/parameters/shovel/%2F/{name}", {"value": value})
    for number in range(20):
        here.basic_publish("", "out", b"%d" % number, pika.BasicProperties(delivery_mode=2))
    end = there.queue_declare
    until(lambda: end("end", durable=True).method.message_count == 20)
    bodies = [there.basic_get("end", auto_ack=True)[2] for _ in range(20)]
    assert bodies == [b"%d" % number for number in range(20)]
    for side in (here, there):
        side.connection.close()
