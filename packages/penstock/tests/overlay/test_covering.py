"""What neighbours are spared: filters that others cover, and what becomes of them later."""

from __future__ import annotations

import random

import pytest

from penstock.content.covering import CoveringMode
from penstock.overlay.rules import RoutingRules
from penstock.wire.padres.envelope import EnvelopeKind
from tests.overlay.simulation import Overlay, Person, tree
from tests.overlay.stages import Stages

STOCK = "[class,eq,stock],[price,>,0],[volume,>,0]"
WIDE = "[class,eq,stock],[price,<,100]"
NARROW = "[class,eq,stock],[price,<,50]"
OVERLAPPING = "[class,eq,stock],[price,>,50]"
AT_45 = "[class,stock],[price,45]"
AT_75 = "[class,stock],[price,75]"


class Line:
    """B1 with a publisher, B2 with two who want something."""

    def __init__(self, rules: RoutingRules) -> None:
        self.stages = Stages(Overlay([("B1", "B2")], rules))
        self.publisher = self.stages.person("B1", "p")
        self.one = self.stages.person("B2", "one")
        self.other = self.stages.person("B2", "other")
        self.offer = self.publisher.advertise(STOCK)
        self.stages.stage()

    def subscribe(self, person: Person, text: str) -> str:
        identity = person.subscribe(text)
        self.stages.stage()
        return identity

    def unsubscribe(self, person: Person, identity: str) -> None:
        person.say(EnvelopeKind.UNSUBSCRIBE, identity)
        self.stages.stage()

    def told(self) -> list[str]:
        """What B1 has from B2."""
        wanted = self.stages.overlay.routers["B1"].tables.subscriptions
        return [identity for identity, hop in wanted if hop == "B2"]


BOTH = pytest.mark.parametrize("covering", [CoveringMode.LAZY, CoveringMode.ACTIVE])


@BOTH
@pytest.mark.parametrize("second", [NARROW, WIDE], ids=["narrower", "equal"])
def test_what_is_covered_is_not_told(covering: CoveringMode, second: str) -> None:
    line = Line(RoutingRules(subscriptions=covering))
    first = line.subscribe(line.one, WIDE)
    line.subscribe(line.other, second)
    assert line.told() == [first]
    line.publisher.publish(AT_45)
    line.stages.stage({line.one: [AT_45], line.other: [AT_45]})


@BOTH
@pytest.mark.parametrize("second", [OVERLAPPING, "[class,eq,stock],[volume,<,9]"])
def test_what_is_not_covered_is_told(covering: CoveringMode, second: str) -> None:
    line = Line(RoutingRules(subscriptions=covering))
    told = [line.subscribe(line.one, NARROW), line.subscribe(line.other, second)]
    assert line.told() == told


def test_lazy_leaves_what_was_told_and_active_withdraws_it() -> None:
    lazy = Line(RoutingRules(subscriptions=CoveringMode.LAZY))
    told = [lazy.subscribe(lazy.one, NARROW), lazy.subscribe(lazy.other, WIDE)]
    assert lazy.told() == told
    active = Line(RoutingRules(subscriptions=CoveringMode.ACTIVE))
    active.subscribe(active.one, NARROW)
    wide = active.subscribe(active.other, WIDE)
    assert active.told() == [wide]


@BOTH
def test_who_was_covered_may_leave_without_a_word(covering: CoveringMode) -> None:
    line = Line(RoutingRules(subscriptions=covering))
    first = line.subscribe(line.one, WIDE)
    gone = line.subscribe(line.other, NARROW)
    before = line.stages.overlay.carried()
    line.unsubscribe(line.other, gone)
    assert line.stages.overlay.carried() == before
    assert line.told() == [first]


@BOTH
def test_what_is_uncovered_is_told(covering: CoveringMode) -> None:
    line = Line(RoutingRules(subscriptions=covering))
    gone = line.subscribe(line.one, WIDE)
    left = line.subscribe(line.other, NARROW)
    line.unsubscribe(line.one, gone)
    assert line.told() == [left]
    line.publisher.publish(AT_45)
    line.publisher.publish(AT_75)
    line.stages.stage({line.other: [AT_45]})


def test_advertisements_that_others_cover_are_not_told_until_they_are_uncovered() -> None:
    stages = Stages(
        Overlay([("B1", "B2"), ("B2", "B3")], RoutingRules(advertisements=CoveringMode.LAZY))
    )
    one, other = stages.person("B1", "one"), stages.person("B1", "other")
    subscriber = stages.person("B3", "s")
    wide = one.advertise("[class,eq,stock],[price,>,0]")
    narrow = other.advertise("[class,eq,stock],[price,>,40]")
    stages.stage()
    assert stages.overlay.holders(narrow) == ["B1"]
    subscriber.subscribe(NARROW)
    stages.stage()
    other.publish(AT_45)
    stages.stage({subscriber: [AT_45]})
    one.say(EnvelopeKind.UNADVERTISE, wide)
    stages.stage()
    assert stages.overlay.holders(narrow) == ["B1", "B2", "B3"]
    other.publish(AT_45)
    stages.stage({subscriber: [AT_45]})


def test_an_advertisement_with_a_bound_covers_none_without() -> None:
    stages = Stages(
        Overlay([("B1", "B2"), ("B2", "B3")], RoutingRules(advertisements=CoveringMode.LAZY))
    )
    person = stages.person("B1", "p")
    person.advertise("[class,eq,stock],[price,>,0]", ttl=1)
    narrow = person.advertise("[class,eq,stock],[price,>,40]")
    stages.stage()
    assert stages.overlay.holders(narrow) == ["B1", "B2", "B3"]


def link_messages(rules: RoutingRules) -> int:
    """How many subscriptions cross links of a tree of a hundred brokers."""
    chance = random.Random(7)
    overlay = Overlay(tree(100, 8), rules, seed=9)
    names = list(overlay.routers)
    for number in range(10):
        overlay.person(chance.choice(names), f"p{number}").advertise(STOCK)
    overlay.settle()
    for number in range(100):
        person = overlay.person(chance.choice(names), f"s{number}")
        person.subscribe(f"[class,eq,stock],[price,<,{chance.randrange(1, 100)}]")
        overlay.settle()
    return overlay.carried(EnvelopeKind.SUBSCRIBE, EnvelopeKind.UNSUBSCRIBE)


def test_covering_spares_links_most_of_the_subscriptions() -> None:
    plain = link_messages(RoutingRules())
    lazy = link_messages(RoutingRules(subscriptions=CoveringMode.LAZY))
    active = link_messages(RoutingRules(subscriptions=CoveringMode.ACTIVE))
    assert lazy < plain / 3
    assert active < plain / 2
    assert lazy <= active  # which says more to have the neighbours hold less
