"""A hop that is told who subscribes to what it advertises, as a neighbour would be."""

from __future__ import annotations

import pytest

from penstock.overlay.rules import RoutingRules
from penstock.wire.padres.envelope import EnvelopeKind
from tests.overlay.configurations import ALL
from tests.overlay.simulation import Overlay, Person

OFFER = "[class,eq,historic],[_query_id,isPresent,x],[price,>,0]"
QUERY = "[class,eq,historic],[_query_id,eq,q1]"
OTHER = "[class,eq,stock],[price,>,0]"


@pytest.fixture(params=ALL.values(), ids=list(ALL))
def overlay(request: pytest.FixtureRequest) -> Overlay:
    return Overlay([("B1", "B2")], request.param)


def notify_subscriptions(overlay: Overlay) -> Person:
    person = overlay.person("B1", "history")
    person.router.attach(person, notify_subscriptions=True)
    return person


def told(person: Person) -> list[tuple[EnvelopeKind, str]]:
    got, person.got = person.got, []
    return [(one.kind, one.text) for one in got]


def test_it_is_told_of_subscriptions_from_anywhere_and_of_their_end(overlay: Overlay) -> None:
    history = notify_subscriptions(overlay)
    history.advertise(OFFER)
    overlay.settle()
    near, far = overlay.person("B1", "near"), overlay.person("B2", "far")
    ids = [near.subscribe(QUERY), far.subscribe(QUERY)]
    far.subscribe(OTHER)
    overlay.settle()
    assert sorted(told(history)) == [(EnvelopeKind.SUBSCRIBE, QUERY)] * 2
    near.say(EnvelopeKind.UNSUBSCRIBE, ids[0])
    far.say(EnvelopeKind.UNSUBSCRIBE, ids[1])
    overlay.settle()
    assert sorted(told(history)) == sorted((EnvelopeKind.UNSUBSCRIBE, one) for one in ids)


def test_what_was_there_before_its_advertisement_comes_with_that(overlay: Overlay) -> None:
    overlay.person("B2", "far").subscribe(QUERY)
    history = notify_subscriptions(overlay)
    assert told(history) == []
    history.advertise(OFFER)
    overlay.settle()
    assert told(history) == [(EnvelopeKind.SUBSCRIBE, QUERY)]


def test_it_is_told_once_though_two_advertisements_are_met(overlay: Overlay) -> None:
    history = notify_subscriptions(overlay)
    offers = [history.advertise(OFFER), history.advertise(OFFER)]
    overlay.settle()
    identity = overlay.person("B2", "far").subscribe(QUERY)
    overlay.settle()
    assert told(history) == [(EnvelopeKind.SUBSCRIBE, QUERY)]
    history.say(EnvelopeKind.UNADVERTISE, offers[0])
    overlay.settle()
    assert [one for one in told(history) if one[0] is EnvelopeKind.SUBSCRIBE] == []
    assert overlay.has("B1", identity)


def test_parts_of_composites_are_subscriptions(overlay: Overlay) -> None:
    history = notify_subscriptions(overlay)
    history.advertise(OFFER)
    overlay.settle()
    overlay.person("B2", "far").composite(f"{{{{{QUERY}}}&{{{OTHER}}}}}")
    overlay.settle()
    assert [kind for kind, _ in told(history)] == [EnvelopeKind.SUBSCRIBE]


def test_whoever_is_not_attentive_is_told_nothing(overlay: Overlay) -> None:
    person = overlay.person("B1", "p")
    person.advertise(OFFER)
    overlay.person("B1", "s").subscribe(QUERY)
    assert told(person) == []


def test_covering_hides_what_a_neighbour_has_covered(overlay: Overlay) -> None:
    """As a neighbour is: who wants every query wants none hidden, and says so by a wide one."""
    rules: RoutingRules = overlay.rules
    history = notify_subscriptions(overlay)
    history.advertise(OFFER)
    overlay.settle()
    far = overlay.person("B2", "far")
    far.subscribe("[class,eq,historic]")
    far.subscribe(QUERY)
    overlay.settle()
    expected = 2 if rules.subscriptions.value == "OFF" else 1
    assert len(told(history)) == expected
