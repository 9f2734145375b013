"""Virtual hosts: declaring, binding and deleting, and what a restart finds."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.errors import (
    AccessRefused,
    CommandInvalid,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from tests.doubles import Client, Stand, message


def bound(stand: Stand) -> set[tuple[str, str, str]]:
    return {(one.source, one.destination.name, one.key) for one in stand.vhost.bindings()}


async def test_a_path_leads_to_its_driver(stand: Stand) -> None:
    queue, exchange = stand.queue("jobs"), stand.exchange("x")
    stream = stand.queue("s", durable=True, queue_type="stream")
    assert stand.vhost.lookup("/queue/jobs") is queue
    assert stand.vhost.lookup("/stream/s") is stream
    assert stand.vhost.lookup("/exchange/x/key") is exchange
    assert stand.vhost.lookup("/topic/a.b") is stand.vhost.exchanges["amq.topic"]
    for path in ("/queue/none", "/exchange/none", "/nonsense"):
        with pytest.raises(NotFound):
            stand.vhost.lookup(path)


async def test_the_predeclared_are_there_and_stay(stand: Stand) -> None:
    names = {"", "amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match",
             "amq.rabbitmq.trace"}  # fmt: skip
    assert set(stand.vhost.exchanges) == names
    for name in names:
        with pytest.raises(AccessRefused):
            stand.vhost.delete_exchange(name)
    with pytest.raises(AccessRefused, match="reserved"):
        stand.exchange("amq.mine")
    with pytest.raises(AccessRefused, match="reserved"):
        stand.queue("amq.mine")
    with pytest.raises(CommandInvalid, match="unknown exchange type"):
        stand.exchange("x", "unheard")


async def test_a_queue_without_a_name_gets_one(stand: Stand) -> None:
    names = {stand.queue("").name for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("amq.gen-") for name in names)
    with pytest.raises(PreconditionFailed, match="server-named"):
        stand.queue("", durable=True, queue_type="stream")


async def test_binding_twice_is_binding_once(stand: Stand) -> None:
    queue = stand.queue()
    for _ in range(2):
        stand.vhost.bind("amq.topic", queue, "a.#", {"x": 1})
    stand.vhost.bind("amq.topic", queue, "a.#", {"x": 2})
    assert len(stand.vhost.bindings_of(queue)) == 2
    stand.vhost.unbind("amq.topic", queue, "a.#", {"x": 1})
    stand.vhost.unbind("amq.topic", queue, "a.#", {"x": 1})
    stand.publisher("amq.topic").post(message(key="a", exchange="amq.topic"))
    assert queue.ready == 1


async def test_a_deleted_queue_takes_its_bindings_along(stand: Stand) -> None:
    stand.vhost.bind("amq.direct", stand.queue(), "k")
    stand.vhost.delete_queue("q")
    assert bound(stand) == set()
    assert stand.vhost.delete_queue("q") == 0


async def test_a_deleted_exchange_takes_its_bindings_along(stand: Stand) -> None:
    middle = stand.exchange("middle", "fanout")
    stand.vhost.bind("amq.fanout", middle)
    stand.vhost.bind("middle", stand.queue())
    stand.vhost.bind("middle", middle)  # to itself
    stand.vhost.delete_exchange("middle")
    assert bound(stand) == set()
    stand.vhost.delete_exchange("middle")


async def test_an_auto_delete_exchange_goes_with_its_last_binding(stand: Stand) -> None:
    first = stand.exchange("first", "fanout", auto_delete=True)
    second = stand.exchange("second", "fanout", auto_delete=True)
    queue = stand.queue()
    stand.vhost.bind("first", second)
    stand.vhost.bind("second", queue, "a")
    stand.vhost.bind("second", queue, "b")
    stand.vhost.unbind("second", queue, "a")
    assert "second" in stand.vhost.exchanges
    stand.vhost.delete_queue("q")
    assert not {"first", "second"} & set(stand.vhost.exchanges), "and so on up"
    assert first is not second


async def test_in_use_and_not_empty(stand: Stand) -> None:
    queue = stand.queue()
    queue.push(message())
    with pytest.raises(PreconditionFailed, match="not empty"):
        stand.vhost.delete_queue("q", if_empty=True)
    consumer = Client(queue)
    with pytest.raises(PreconditionFailed, match="in use"):
        stand.vhost.delete_queue("q", if_unused=True)
    consumer.close()
    stand.exchange("x")
    stand.vhost.bind("x", queue)
    with pytest.raises(PreconditionFailed, match="in use"):
        stand.vhost.delete_exchange("x", if_unused=True)
    assert stand.vhost.delete_queue("q", if_unused=True) == 1
    stand.vhost.delete_exchange("x", if_unused=True)


async def test_an_exclusive_queue_is_its_owners(stand: Stand) -> None:
    owner, other = object(), object()
    queue = stand.vhost.declare_queue("mine", owner=owner, exclusive=True)
    assert stand.vhost.declare_queue("mine", owner=owner, exclusive=True) is queue
    for attempt in (
        lambda: stand.vhost.queue("mine", other),
        lambda: stand.vhost.declare_queue("mine", owner=other, exclusive=True),
        lambda: stand.vhost.declare_queue("mine", owner=owner),
        lambda: stand.vhost.delete_queue("mine", owner=other),
    ):
        with pytest.raises(ResourceLocked, match="exclusive access"):
            attempt()
    stand.vhost.release(other)
    assert "mine" in stand.vhost.queues
    stand.vhost.release(owner)
    assert "mine" not in stand.vhost.queues


async def test_a_restart_finds_what_is_durable(stand: Stand) -> None:
    arguments: dict[str, Any] = {"x-max-length": 5, "x-mine": [1, {"a": None}]}
    stand.vhost.declare_queue("kept", durable=True, arguments=arguments)
    stand.exchange("kept", "topic", durable=True, internal=True)
    stand.vhost.bind("kept", stand.vhost.queues["kept"], "a.#", {"x": 1})
    stand.vhost.bind("amq.fanout", stand.vhost.exchanges["kept"])
    stand.vhost.bind("amq.fanout", stand.queue("lost"))
    stand.exchange("lost")
    stand.vhost.declare_queue("mine", durable=True, owner=stand, exclusive=True)
    stand.vhost.bind("amq.fanout", stand.vhost.queues["mine"])
    stand.queue("deleted", durable=True)
    stand.vhost.bind("amq.fanout", stand.vhost.queues["deleted"])
    stand.vhost.delete_queue("deleted")

    stand = await stand.reopened()
    assert set(stand.vhost.queues) == {"kept"}
    assert stand.vhost.queues["kept"].arguments == arguments
    assert stand.vhost.exchanges["kept"].internal
    assert "lost" not in stand.vhost.exchanges
    assert bound(stand) == {("kept", "kept", "a.#"), ("amq.fanout", "kept", "")}
    stand.publisher("amq.fanout").post(message(key="a.b", exchange="amq.fanout"))
    assert stand.vhost.queues["kept"].message_count == 1
    await stand.close()


async def test_hosts_know_nothing_of_each_other(stand: Stand) -> None:
    other = stand.open_vhost("other")
    other.declare_queue("q", durable=True).push(message())
    mine = stand.queue("q", durable=True)
    other.bind("amq.fanout", other.queues["q"])
    stand.publisher("amq.fanout").post(message(exchange="amq.fanout"))
    assert (mine.ready, other.queues["q"].message_count, bound(stand)) == (0, 1, set())
    other.delete()
    assert (list(other.queues), list(stand.vhost.queues)) == ([], ["q"])
    assert not [key for kind in ("queue", "binding") for key, _ in stand.topology.all(kind)
                if key[1] == "other"]  # fmt: skip
