"""Exchanges that choose one destination, and the one that replays recent messages."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.contract import Binding
from penstock.core.errors import PreconditionFailed
from penstock.destinations.selective_routers import ConsistentHashRouter
from tests.doubles import Stand, message

KEYS = [f"sensor-{number}" for number in range(2000)]


class Target:
    kind = "queue"

    def __init__(self, name: str) -> None:
        self.name = name


def ring(**weights: int) -> tuple[ConsistentHashRouter, dict[str, Binding]]:
    router = ConsistentHashRouter({})
    bindings = {}
    for name, weight in weights.items():
        target: Any = Target(name)
        bindings[name] = Binding("x", target, str(weight))
        router.check(bindings[name])
        router.add(bindings[name])
    return router, bindings


def routes(router: ConsistentHashRouter) -> dict[str, str]:
    found = {}
    for key in KEYS:
        [destination] = router.match(key.encode(), message(key=key))
        found[key] = destination.name
    return found


def test_shares_follow_the_weights() -> None:
    shares = Counter(routes(ring(a=1, b=1, c=2)[0]).values())
    assert 350 < shares["a"] < 650
    assert 350 < shares["b"] < 650
    assert 800 < shares["c"] < 1200


@settings(max_examples=10)
@given(st.permutations(["a", "b", "c", "d"]))
def test_the_order_of_bindings_does_not_matter(order: list[str]) -> None:
    assert routes(ring(**dict.fromkeys(order, 1))[0]) == routes(ring(a=1, b=1, c=1, d=1)[0])


def test_a_binding_more_or_less_moves_only_its_own_keys() -> None:
    router, bindings = ring(a=1, b=1, c=1)
    before = routes(router)
    router.remove(bindings["b"])
    without = routes(router)
    assert all(without[key] == name for key, name in before.items() if name != "b")
    assert "b" not in without.values()
    router.add(bindings["b"])
    assert routes(router) == before


@pytest.mark.parametrize("key", ["", "x", "0", "-1", "1.5", "100000"])
def test_a_weight_is_a_whole_number(key: str) -> None:
    target: Any = Target("a")
    with pytest.raises(PreconditionFailed, match="binding key"):
        ConsistentHashRouter({}).check(Binding("x", target, key))


@pytest.mark.parametrize(
    "arguments",
    [
        {"hash-header": "a", "hash-property": "message_id"},
        {"hash-property": "priority"},
        {"hash-header": 7},
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(PreconditionFailed):
        ConsistentHashRouter(arguments)


async def test_a_header_or_a_property_can_be_the_key(stand: Stand) -> None:
    for name, arguments in (
        ("by-header", {"hash-header": "device"}),
        ("by-property", {"hash-property": "message_id"}),
    ):
        stand.vhost.declare_exchange(name, "x-consistent-hash", arguments=arguments)
        queues = [stand.queue(f"{name}-{number}") for number in range(4)]
        for queue in queues:
            stand.vhost.bind(name, queue, "1")
        publisher = stand.publisher(name)
        for number in range(40):
            publisher.post(
                message(key=str(number), exchange=name, headers={"device": "7"}, message_id="7")
            )
        assert sorted(queue.ready for queue in queues) == [0, 0, 0, 40]


@pytest.mark.parametrize("kind", ["x-random", "x-local-random", "x-modulus-hash"])
async def test_one_destination_gets_a_message(stand: Stand, kind: str) -> None:
    stand.vhost.declare_exchange("e", kind)
    publisher = stand.publisher("e")
    publisher.post(message(key="nobody", exchange="e"))
    queues = [stand.queue(f"q{number}") for number in range(3)]
    for queue in queues:
        stand.vhost.bind("e", queue, "ignored")
    for number in range(300):
        publisher.post(message(key=str(number), exchange="e"))
    assert sum(queue.ready for queue in queues) == 300
    assert min(queue.ready for queue in queues) > 30
    if kind == "x-modulus-hash":
        before = [queue.ready for queue in queues]
        for _ in range(10):
            publisher.post(message(key="same", exchange="e"))
        assert sorted(
            after.ready - earlier for after, earlier in zip(queues, before, strict=True)
        ) == [0, 0, 10]


async def test_a_new_binding_gets_recent_messages(stand: Stand) -> None:
    stand.vhost.declare_exchange("e", "x-recent-history", arguments={"x-recent-history-length": 2})
    early = stand.queue("early")
    stand.vhost.bind("e", early)
    publisher = stand.publisher("e")
    for body in (b"a", b"b", b"c"):
        publisher.post(message(body, key="k", exchange="e"))
    unstored = {"x-recent-history-no-store": True}
    publisher.post(message(b"d", key="k", exchange="e", headers=unstored))
    late = stand.queue("late")
    stand.vhost.bind("e", late)
    assert (early.ready, late.ready) == (4, 2)
    with pytest.raises(PreconditionFailed, match="positive integer"):
        stand.vhost.declare_exchange(
            "f", "x-recent-history", arguments={"x-recent-history-length": 0}
        )
