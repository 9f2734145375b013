"""One order of all publications for everybody, where that was asked for."""

from __future__ import annotations

import random

import pytest

from penstock.core.errors import ConfigurationError
from penstock.overlay.heartbeats import HeartbeatSettings
from penstock.overlay.rules import CycleMode, RoutingRules
from penstock.wire.padres.envelope import EnvelopeKind
from tests.overlay.simulation import Overlay, Person, tree

STOCK = "[class,eq,stock],[price,>=,0],[from,isPresent,x]"


def busy(rules: RoutingRules, seed: int) -> list[list[str]]:
    """What subscribers at ten brokers get of what publishers at ten brokers say at once."""
    overlay = Overlay(tree(10, seed), rules, seed=seed, pulse=HeartbeatSettings())
    overlay.settle()
    names = list(overlay.routers)
    publishers = [overlay.person(name, "p") for name in names]
    subscribers = [overlay.person(name, "s") for name in names]
    for publisher in publishers:
        publisher.advertise(STOCK)
    overlay.settle()
    for subscriber in subscribers:
        subscriber.subscribe("[class,eq,stock]")
    overlay.settle()
    chance = random.Random(seed)
    for _ in range(40):
        chance.choice(publishers).publish("[class,stock],[price,1]")
        for wire in chance.sample(list(overlay.wires.values()), 5):
            if wire.under_way:
                overlay.carry(wire)
    overlay.settle()
    return [subscriber.take() for subscriber in subscribers]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("orderer", ["B0", "B7"])
def test_all_get_all_in_the_same_order(seed: int, orderer: str) -> None:
    got = busy(RoutingRules(ordered_by=orderer), seed)
    assert len(got[0]) == len(set(got[0])) == 40
    assert all(one == got[0] for one in got)


def test_without_it_they_may_differ() -> None:
    assert any(len({tuple(one) for one in busy(RoutingRules(), seed)}) > 1 for seed in range(5))


def test_only_who_wants_it_gets_it_and_what_is_undone_is_forgotten() -> None:
    rules = RoutingRules(ordered_by="B1")
    overlay = Overlay([("B1", "B2"), ("B1", "B3")], rules, pulse=HeartbeatSettings())
    overlay.settle()
    publisher = overlay.person("B2", "p")
    near, far = overlay.person("B2", "near"), overlay.person("B3", "far")
    publisher.advertise(STOCK)
    wanted = near.subscribe("[class,eq,stock],[price,<,50]")
    far.subscribe("[class,eq,stock],[price,>,50]")
    overlay.settle()
    publisher.publish("[class,stock],[price,45]")
    overlay.settle()
    assert (len(near.take()), len(far.take())) == (1, 0)
    near.say(EnvelopeKind.UNSUBSCRIBE, wanted)
    overlay.settle()
    assert overlay.holders(wanted) == []


def test_before_the_broker_that_orders_is_known_nothing_is_published() -> None:
    overlay = Overlay([], RoutingRules(ordered_by="B9"), pulse=HeartbeatSettings())
    person: Person = overlay.person("B1", "p")
    person.advertise(STOCK)
    with pytest.raises(Exception, match="ordering broker B9"):
        person.publish("[class,stock],[price,1]")


def test_there_is_no_one_order_where_there_are_cycles() -> None:
    with pytest.raises(ConfigurationError, match=r"needs overlay\.cycles OFF"):
        RoutingRules(cycles=CycleMode.FIXED, ordered_by="B1")
