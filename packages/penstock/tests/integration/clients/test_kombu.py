"""kombu: producers, consumers, simple queues, and the broadcasts Celery's remote control uses."""

from __future__ import annotations

import importlib
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

# kombu says it is typed and is only half so; taken as it comes, mypy leaves it alone.
kombu: Any = importlib.import_module("kombu")
pidbox: Any = importlib.import_module("kombu.pidbox")
producers: Any = importlib.import_module("kombu.pools").producers

PATIENCE = 60


@pytest.fixture
def connection(broker_url: str) -> Iterator[Any]:
    with kombu.Connection(broker_url, heartbeat=10) as connection:
        yield connection


def drain(connection: Any, received: list[Any], count: int) -> None:
    while len(received) < count:
        connection.drain_events(timeout=PATIENCE)


def test_a_producer_reaches_a_consumer(connection: Any, name: str) -> None:
    exchange = kombu.Exchange(name, "topic", auto_delete=True)
    queue = kombu.Queue(name, exchange, "tasks.#", exclusive=True)
    received: list[Any] = []

    def arrived(body: Any, message: Any) -> None:
        received.append((body, message.headers, message.delivery_info["routing_key"]))
        message.ack()

    with connection.Consumer(queue, callbacks=[arrived], accept=["json"]):
        connection.Producer(serializer="json").publish(
            {"answer": 42}, exchange=exchange, routing_key="tasks.add", headers={"h": 1}
        )
        drain(connection, received, 1)

    assert received == [({"answer": 42}, {"h": 1}, "tasks.add")]


def test_a_compressed_message_arrives(connection: Any, name: str) -> None:
    queue = kombu.Queue(name, exclusive=True)
    received: list[Any] = []

    with connection.Consumer(
        queue, callbacks=[lambda body, message: received.append(body)], no_ack=True
    ):
        producer = connection.Producer()
        producer.publish({"text": "a" * 10_000}, routing_key=name, compression="zlib")
        drain(connection, received, 1)

    assert received == [{"text": "a" * 10_000}]


def test_a_simple_queue_puts_and_gets(connection: Any, name: str) -> None:
    queue = connection.SimpleQueue(name, queue_opts={"auto_delete": True, "durable": False})

    for number in (1, 2):
        queue.put({"n": number})
    messages = [queue.get(timeout=PATIENCE) for _ in range(2)]
    for message in messages:
        message.ack()

    assert [message.payload["n"] for message in messages] == [1, 2]
    with pytest.raises(queue.Empty):
        queue.get_nowait()
    queue.close()


def test_a_pool_of_producers_waits_for_confirms(broker_url: str, name: str) -> None:
    options = {"confirm_publish": True}
    with kombu.Connection(broker_url, transport_options=options) as connection:
        queue = kombu.Queue(name, channel=connection.channel(), auto_delete=True, durable=False)
        queue.declare()

        with producers[connection].acquire(block=True) as producer:
            for number in range(20):
                producer.publish({"n": number}, routing_key=name, retry=True)

        assert [queue.get(no_ack=True).payload["n"] for _ in range(20)] == list(range(20))
        queue.delete()
        producers[connection].force_close_all()


def test_a_broadcast_is_answered_by_every_node(broker_url: str, name: str) -> None:
    """kombu's pidbox: a fanout to the nodes, answers through a reply queue."""
    mailbox = pidbox.Mailbox(name, type="fanout", accept=["json"], serializer="json")
    stopped = threading.Event()

    def serve(node_name: str, ready: threading.Barrier) -> None:
        with kombu.Connection(broker_url) as connection:
            node = mailbox(connection).Node(node_name, channel=connection.channel())
            node.handlers["ping"] = lambda state, **_: {"pong": node_name}
            with node.listen():
                ready.wait(PATIENCE)
                while not stopped.is_set():
                    with suppress(socket.timeout):
                        connection.drain_events(timeout=0.2)

    ready = threading.Barrier(3)
    names = ["left", "right"]
    nodes = [threading.Thread(target=serve, args=(each, ready)) for each in names]
    for node in nodes:
        node.start()
    ready.wait(PATIENCE)
    with kombu.Connection(broker_url) as connection:
        asker = mailbox(connection)
        answers = asker.multi_call("ping", timeout=PATIENCE, limit=2)
    stopped.set()
    for node in nodes:
        node.join(PATIENCE)

    assert sorted(answers, key=str) == [{"left": {"pong": "left"}}, {"right": {"pong": "right"}}]
