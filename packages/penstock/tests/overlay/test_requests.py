"""What a client asks for: not without end, and a durable one not twice."""

from __future__ import annotations

import pytest

from penstock.core.errors import NotFound, ResourceExhausted
from penstock.overlay.router import OverlayRouter
from penstock.wire.padres.envelope import EnvelopeKind
from tests.overlay.simulation import Overlay, Person


def test_a_flood_of_requests_is_refused_and_ends_when_some_are_undone() -> None:
    overlay = Overlay([])
    overlay.routers["B1"] = OverlayRouter("B1", most=3)
    person = overlay.person("B1", "p")
    ids = [person.advertise(f"[class,eq,c{number}]") for number in range(3)]
    with pytest.raises(ResourceExhausted, match="limit of 3 registrations"):
        person.subscribe("[class,eq,stock]")
    person.say(EnvelopeKind.UNADVERTISE, ids[0])
    person.subscribe("[class,eq,stock]")
    other = overlay.person("B1", "other")
    other.subscribe("[class,eq,stock]")


def durable() -> Person:
    person = Overlay([]).person("B1", "s")
    person.durable = True
    return person


def test_what_a_lasting_client_says_again_is_what_it_has() -> None:
    person = durable()
    first = person.subscribe("[class,eq,stock]")
    assert person.subscribe("[class,eq,stock]") == first
    assert person.subscribe("[class,eq,stock]", options=(("topk", "price"),)) != first
    person.say(EnvelopeKind.UNSUBSCRIBE, first)
    assert person.subscribe("[class,eq,stock]") != first


def test_another_may_say_the_same_twice() -> None:
    person = Overlay([]).person("B1", "s")
    assert person.subscribe("[class,eq,stock]") != person.subscribe("[class,eq,stock]")


def test_a_composite_may_be_undone_as_a_subscription() -> None:
    person = durable()
    text = "{{[class,eq,a]}&{[class,eq,b]}}"
    both = person.composite(text)
    assert person.composite(text) == both
    person.say(EnvelopeKind.UNSUBSCRIBE, both)
    with pytest.raises(NotFound):
        person.say(EnvelopeKind.UNCOMPOSITE, both)
