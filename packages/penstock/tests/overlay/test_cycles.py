"""Overlays with cycles: the loop of four, the triangle, and a loop with a tail."""

from __future__ import annotations

import pytest

from penstock.content.covering import CoveringMode
from penstock.core.errors import ConfigurationError, OverlayLoop
from penstock.overlay.rules import CycleMode, RoutingRules
from penstock.wire.padres.envelope import EnvelopeKind
from tests.overlay.configurations import ACYCLIC, CYCLIC
from tests.overlay.simulation import Overlay
from tests.overlay.stages import Stages

STOCK = "[class,eq,stock],[price,>,0]"
CHEAP = "[class,eq,stock],[price,<,50]"
AT_45 = "[class,stock],[price,45]"
WEATHER = "[class,eq,weather],[rain,>=,0]"
WET = "[class,weather],[rain,3]"
PAIR = "{{[class,eq,stock],[price,<,50]}&{[class,eq,weather],[rain,>,0]}}"

SHAPES = {
    "loop": [("B1", "B2"), ("B2", "B3"), ("B3", "B4"), ("B4", "B1")],
    "triangle": [("B1", "B2"), ("B2", "B3"), ("B3", "B1")],
    "loop-and-tail": [("B1", "B2"), ("B2", "B3"), ("B3", "B4"), ("B4", "B1"), ("B4", "B5")],
}


@pytest.fixture(params=CYCLIC.values(), ids=list(CYCLIC))
def rules(request: pytest.FixtureRequest) -> RoutingRules:
    chosen: RoutingRules = request.param
    return chosen


@pytest.fixture(params=SHAPES.values(), ids=list(SHAPES))
def stages(request: pytest.FixtureRequest, rules: RoutingRules) -> Stages:
    return Stages(Overlay(request.param, rules))


def test_every_broker_has_the_neighbours_it_is_linked_to(stages: Stages) -> None:
    for name, router in stages.overlay.routers.items():
        linked = {other for pair in stages.overlay.wires for other in pair if name in pair}
        assert set(router.neighbours) == linked - {name}


def test_an_advertisement_goes_round_once(stages: Stages) -> None:
    offer = stages.person("B1", "p").advertise(STOCK)
    stages.stage()
    overlay = stages.overlay
    assert set(overlay.holders(offer)) == set(overlay.routers)
    # Each link carries it once, or twice where two meet half way.
    assert len(overlay.wires) / 2 <= overlay.carried(EnvelopeKind.ADVERTISE) <= len(overlay.wires)


def test_publications_of_several_publishers_come_once_each(stages: Stages) -> None:
    names = list(stages.overlay.routers)
    publishers = [stages.person(name, "p") for name in names]
    subscribers = [stages.person(name, "s") for name in names]
    for publisher in publishers:
        publisher.advertise(STOCK)
    stages.stage()
    for subscriber in subscribers:
        subscriber.subscribe(CHEAP)
    stages.stage()
    for publisher in publishers:
        publisher.publish(AT_45)
        stages.stage({one: [AT_45] for one in subscribers})


def test_a_subscription_is_held_once_for_each_hop(stages: Stages) -> None:
    stages.person("B1", "p").advertise(STOCK)
    stages.person("B1", "q").advertise(STOCK)
    stages.stage()
    wanted = stages.person("B3", "s").subscribe(CHEAP)
    stages.stage()
    held = [key for key in stages.overlay.routers["B1"].tables.subscriptions if key[0] == wanted]
    assert len(held) == len({hop for _, hop in held})


def test_what_is_undone_is_forgotten_everywhere(stages: Stages) -> None:
    publisher, subscriber = stages.person("B1", "p"), stages.person("B3", "s")
    offers = [publisher.advertise(STOCK), publisher.advertise("[class,eq,stock],[price,<,90]")]
    stages.stage()
    wanted = subscriber.subscribe(CHEAP)
    stages.stage()
    publisher.say(EnvelopeKind.UNADVERTISE, offers[0])
    stages.stage()
    publisher.publish(AT_45)
    stages.stage({subscriber: [AT_45]})
    subscriber.say(EnvelopeKind.UNSUBSCRIBE, wanted)
    stages.stage()
    assert stages.overlay.holders(wanted) == []
    publisher.say(EnvelopeKind.UNADVERTISE, offers[1])
    stages.stage()
    assert stages.overlay.holders(offers[0]) == stages.overlay.holders(offers[1]) == []


def test_an_advertisement_that_is_undone_at_once_leaves_nothing_behind(stages: Stages) -> None:
    """The undoing may overtake copies that come another way."""
    publisher = stages.person("B1", "p")
    offers = [publisher.advertise(STOCK) for _ in range(5)]
    for offer in offers:
        publisher.say(EnvelopeKind.UNADVERTISE, offer)
    stages.stage()
    assert [stages.overlay.holders(offer) for offer in offers] == [[]] * 5


def test_composites_are_joined_and_undone(stages: Stages) -> None:
    stock, weather = stages.person("B1", "stock"), stages.person("B2", "weather")
    subscriber = stages.person("B3", "s")
    stock.advertise(STOCK)
    weather.advertise(WEATHER)
    stages.stage()
    both = subscriber.composite(PAIR)
    stages.stage()
    weather.publish(WET)
    stages.stage()
    stock.publish(AT_45)
    stages.stage({subscriber: [AT_45, WET]})
    subscriber.say(EnvelopeKind.UNCOMPOSITE, both)
    stages.stage()
    stock.publish(AT_45)
    stages.stage()
    assert stages.overlay.holders(f"{both}-s0") == []


# Leaving a tree.


def diamond() -> Stages:
    """Two ways from B1 to B4, by B2 and by B3, and publications planned for one of them."""
    links = [("B1", "B2"), ("B2", "B4"), ("B1", "B3"), ("B3", "B4")]
    return Stages(Overlay(links, RoutingRules(cycles=CycleMode.DYNAMIC)))


def both_ways(stages: Stages) -> None:
    """Advertisements of B1 whose trees reach B4 one by B2, the other by B3."""
    overlay = stages.overlay
    publisher = stages.person("B1", "p")
    for first in ("B2", "B3"):
        publisher.advertise(STOCK)
        while overlay.wires["B1", first].under_way:
            overlay.carry(overlay.wires["B1", first])
        while overlay.wires[first, "B4"].under_way:
            overlay.carry(overlay.wires[first, "B4"])
        stages.stage()


def crossed(stages: Stages, one: str, other: str) -> int:
    return stages.overlay.wires[one, other].carried[EnvelopeKind.PUBLISH]


def ready() -> Stages:
    stages = diamond()
    both_ways(stages)
    subscriber = stages.person("B4", "s")
    subscriber.subscribe(CHEAP)
    stages.stage()
    stages.overlay.clock.now += 60
    return stages


def test_a_publication_keeps_to_its_tree_while_the_link_is_idle() -> None:
    stages = ready()
    publisher, subscriber = stages.people("p", "s")
    for _ in range(3):
        publisher.publish(AT_45)
        stages.stage({subscriber: [AT_45]})
        stages.overlay.clock.now += 60
    assert (crossed(stages, "B1", "B2"), crossed(stages, "B1", "B3")) == (3, 0)


def test_a_publication_goes_round_a_busy_link() -> None:
    stages = ready()
    publisher, subscriber = stages.people("p", "s")
    publisher.publish(AT_45)
    publisher.publish(AT_45)
    stages.stage({subscriber: [AT_45, AT_45]})
    assert (crossed(stages, "B1", "B2"), crossed(stages, "B1", "B3")) == (1, 1)


def test_a_publication_goes_round_a_link_that_is_down() -> None:
    stages = ready()
    publisher, subscriber = stages.people("p", "s")
    stages.overlay.cut("B1", "B2")
    publisher.publish(AT_45)
    stages.stage({subscriber: [AT_45]})
    assert crossed(stages, "B1", "B3") == 1


def test_a_publication_goes_round_a_neighbour_that_does_not_answer() -> None:
    stages = ready()
    publisher, subscriber = stages.people("p", "s")
    stages.overlay.routers["B1"].neighbours["B2"].failed = True
    publisher.publish(AT_45)
    stages.stage({subscriber: [AT_45]})
    assert crossed(stages, "B1", "B3") == 1


def test_parts_of_a_composite_go_round_busy_links_too() -> None:
    stages = ready()
    publisher, subscriber = stages.people("p", "s")
    subscriber.composite("{{[class,eq,stock],[price,>,60]}&{[class,eq,stock],[price,>,90]}}")
    stages.stage()
    for price in (70, 95):
        publisher.publish(f"[class,stock],[price,{price}]")
    stages.overlay.settle()
    assert {envelope.text for envelope in subscriber.got} >= {
        "[class,stock],[price,70]",
        "[class,stock],[price,95]",
    }


# What does not go together.


@pytest.mark.parametrize("rules", ACYCLIC.values(), ids=list(ACYCLIC))
def test_a_cycle_that_was_not_allowed_is_found_at_once(rules: RoutingRules) -> None:
    stages = Stages(Overlay([("B1", "B2"), ("B2", "B3")], rules))
    stages.person("B1", "p").advertise(STOCK)
    stages.stage()
    stages.overlay.link("B3", "B1")
    with pytest.raises(OverlayLoop, match=r"overlay\.cycles"):
        stages.stage()


def test_covering_that_trees_do_not_allow_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"needs overlay\.cycles OFF"):
        RoutingRules(cycles=CycleMode.FIXED, advertisements=CoveringMode.LAZY)
    with pytest.raises(ConfigurationError, match="DYNAMIC"):
        RoutingRules(cycles=CycleMode.DYNAMIC, subscriptions=CoveringMode.LAZY)
    with pytest.raises(ConfigurationError, match="LAZY or OFF"):
        RoutingRules(advertisements=CoveringMode.ACTIVE)
