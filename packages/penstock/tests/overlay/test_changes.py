"""Whatever comes and goes, and whichever links break meanwhile: in the end all is as it should be.

Advertisements and subscriptions come and go at random at six brokers, links are cut and mended,
brokers crash and come back to what they remember, some messages are carried and others wait. When
all links are there and nothing is under way any more, everyone gets what they want once, and
nothing is held that nobody asked for.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from penstock.content import parse_publication, parse_subscription, satisfies
from penstock.overlay.rules import CycleMode, RoutingRules
from penstock.wire.padres.envelope import EnvelopeKind
from tests.overlay.configurations import ALL
from tests.overlay.simulation import Overlay, Person, graph, tree

BROKERS = 6
CLASSES = ("a", "b")


@dataclass
class Life:
    """One run."""

    overlay: Overlay
    links: list[tuple[str, str]]
    chance: random.Random
    people: list[Person] = field(default_factory=list)
    offers: dict[str, tuple[Person, str]] = field(default_factory=dict)
    wants: dict[str, tuple[Person, str]] = field(default_factory=dict)
    broken: set[tuple[str, str]] = field(default_factory=set)

    def step(self) -> None:
        actions = [
            self.advertise,
            self.subscribe,
            self.subscribe,
            self.undo,
            self.carry,
            self.carry,
        ]
        if self.overlay.rules.cycles is CycleMode.OFF:
            actions += [self.cut, self.mend]
        self.chance.choice(actions)()

    def advertise(self) -> None:
        person, name = self.chance.choice(self.people), self.chance.choice(CLASSES)
        text = f"[class,eq,{name}],[x,>=,{self.chance.randrange(5)}]"
        self.offers[person.advertise(text)] = (person, text)

    def subscribe(self) -> None:
        person, name = self.chance.choice(self.people), self.chance.choice(CLASSES)
        operator = self.chance.choice(["<", ">", "<=", ">=", "="])
        text = f"[class,eq,{name}],[x,{operator},{self.chance.randrange(10)}]"
        self.wants[person.subscribe(text)] = (person, text)

    def undo(self) -> None:
        if self.offers and self.chance.random() < 0.4:
            identity = self.chance.choice(list(self.offers))
            self.offers.pop(identity)[0].say(EnvelopeKind.UNADVERTISE, identity)
        elif self.wants:
            identity = self.chance.choice(list(self.wants))
            self.wants.pop(identity)[0].say(EnvelopeKind.UNSUBSCRIBE, identity)

    def carry(self) -> None:
        for wire in self.chance.sample(list(self.overlay.wires.values()), 3):
            if wire.up and wire.under_way:
                self.overlay.carry(wire)

    def cut(self) -> None:
        link = self.chance.choice(self.links)
        if link not in self.broken:
            self.overlay.cut(*link, lost=True)
            self.broken.add(link)

    def crash(self) -> None:
        if self.chance.random() < 0.3:
            name = self.chance.choice(list(self.overlay.routers))
            self.overlay.crash(name)
            self.broken |= {link for link in self.links if name in link}

    def mend(self) -> None:
        if self.broken:
            link = self.chance.choice(sorted(self.broken))
            self.broken.remove(link)
            self.overlay.mend(*link)


def live(rules: RoutingRules, seed: int) -> Life:
    cyclic = rules.cycles is not CycleMode.OFF
    links = graph(BROKERS, 3, seed) if cyclic else list(tree(BROKERS, seed))
    overlay = Overlay(links, rules, seed=seed)
    life = Life(overlay, links, random.Random(seed))
    life.people = [overlay.person(name, "c") for name in overlay.routers]
    for person in life.people:
        person.durable = True
    for _ in range(80):
        life.step()
    while life.broken:
        life.mend()
    overlay.settle()
    overlay.clock.now += 60
    return life


EVERY = pytest.mark.parametrize("rules", ALL.values(), ids=list(ALL))
SEEDS = range(6)


@EVERY
def test_in_the_end_everyone_gets_what_they_want_once(rules: RoutingRules) -> None:
    for seed in SEEDS:
        check_deliveries(live(rules, seed))


def check_deliveries(life: Life) -> None:
    for publisher, offer in life.offers.values():
        name, least = offer[10], int(offer.partition(">=,")[2].rstrip("]"))
        for value in {least, 5, 9}:
            text = f"[class,{name}],[x,{value}]"
            publisher.publish(text)
            life.overlay.settle()
            publication = parse_publication(text)
            for person in life.people:
                due = any(
                    satisfies(publication, parse_subscription(wanted))
                    for who, wanted in life.wants.values()
                    if who is person
                )
                assert person.texts() == [text] * due, (person.name, offer)
            life.overlay.clock.now += 10


@EVERY
def test_in_the_end_nothing_is_held_that_nobody_asked_for(rules: RoutingRules) -> None:
    for seed in SEEDS:
        check_tables(live(rules, seed))


def check_tables(life: Life) -> None:
    for router in life.overlay.routers.values():
        assert set(router.tables.advertisements) <= set(life.offers)
        assert {identity for identity, _ in router.tables.subscriptions} <= set(life.wants)
    for identity, (person, _) in [*life.offers.items(), *life.wants.items()]:
        person.say(
            EnvelopeKind.UNADVERTISE if identity in life.offers else EnvelopeKind.UNSUBSCRIBE,
            identity,
        )
    life.overlay.settle()
    for router in life.overlay.routers.values():
        assert not router.tables.advertisements
        assert not router.tables.subscriptions
        assert not any(one.propagated_filters for one in router.neighbours.values())
