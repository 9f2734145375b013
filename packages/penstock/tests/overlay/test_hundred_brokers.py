"""A hundred brokers: each publication reaches everyone who wants it, once, in any overlay."""

from __future__ import annotations

import random

import pytest

from penstock.content import parse_publication, parse_subscription, satisfies
from penstock.overlay.rules import RoutingRules
from penstock.wire.padres.envelope import EnvelopeKind
from tests.overlay.configurations import ACYCLIC, CYCLIC
from tests.overlay.simulation import Overlay, Person, graph, tree

BROKERS = 100
CLASSES = ("stock", "weather", "sport")


def filter_text(chance: random.Random) -> str:
    low = chance.randrange(0, 90)
    parts = [f"[class,eq,{chance.choice(CLASSES)}]"]
    if chance.random() < 0.8:
        parts.append(f"[price,{chance.choice(['<', '>', '<=', '>='])},{low}]")
    if chance.random() < 0.5:
        parts.append(f"[symbol,str-prefix,'{chance.choice('abc')}']")
    return ",".join(parts)


def populate(overlay: Overlay, seed: int, changing: bool) -> None:
    """Publishers and subscribers here and there; check what everyone gets."""
    chance = random.Random(seed)
    names = list(overlay.routers)
    publishers = []
    for number in range(20):
        person = overlay.person(chance.choice(names), f"p{number}")
        name = CLASSES[number % len(CLASSES)]
        offer = f"[class,eq,{name}],[price,>=,0],[symbol,isPresent,x]"
        publishers.append((person, name, person.advertise(offer)))
    overlay.settle()
    wanted: dict[Person, dict[str, str]] = {}
    for number in range(100):
        person = overlay.person(chance.choice(names), f"s{number}")
        filters = [filter_text(chance) for _ in range(chance.randrange(1, 4))]
        wanted[person] = {person.subscribe(text): text for text in filters}
    overlay.settle()
    if changing:  # a third of it goes, and what it covered must come back
        for person in chance.sample(list(wanted), 33):
            gone = chance.choice(list(wanted[person]))
            del wanted[person][gone]
            person.say(EnvelopeKind.UNSUBSCRIBE, gone)
        person, name, offer = publishers.pop(0)
        person.say(EnvelopeKind.UNADVERTISE, offer)
        overlay.settle()
    overlay.clock.now += 60
    for _ in range(40):
        person, name, _ = chance.choice(publishers)
        text = f"[class,{name}],[price,{chance.randrange(100)}],[symbol,'{chance.choice('abcd')}x']"
        identity = person.publish(text)
        overlay.settle()
        publication = parse_publication(text)
        for subscriber, texts in wanted.items():
            due = any(satisfies(publication, parse_subscription(one)) for one in texts.values())
            assert subscriber.take() == [identity] * due, (text, texts)
        overlay.clock.now += chance.choice([0, 0, 10])


@pytest.mark.parametrize("rules", ACYCLIC.values(), ids=list(ACYCLIC))
def test_in_a_tree_each_publication_reaches_each_who_wants_it_once(rules: RoutingRules) -> None:
    populate(Overlay(tree(BROKERS, 1), rules, seed=2), seed=3, changing=True)


@pytest.mark.parametrize("rules", CYCLIC.values(), ids=list(CYCLIC))
def test_in_a_graph_each_publication_reaches_each_who_wants_it_once(rules: RoutingRules) -> None:
    populate(Overlay(graph(BROKERS, 60, 4), rules, seed=5), seed=6, changing=True)
