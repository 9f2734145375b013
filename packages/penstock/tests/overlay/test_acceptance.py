"""PADRES' acceptance cases for two and for several brokers, in all seven configurations."""

from __future__ import annotations

import pytest

from penstock.content.covering import CoveringMode
from penstock.overlay.rules import RoutingRules
from penstock.wire.padres.envelope import EnvelopeKind
from tests.overlay.configurations import ALL
from tests.overlay.simulation import Overlay
from tests.overlay.stages import Stages

STOCK = "[class,eq,stock],[price,>,0],[name,isPresent,x]"
CHEAP = "[class,eq,stock],[price,<,50]"
DEAR = "[class,eq,stock],[price,>,100]"
AT_45 = "[class,stock],[price,45]"
AT_150 = "[class,stock],[price,150]"

#: B1 in the middle of B2, B3 and B4; B5 behind B4.
STAR = (("B1", "B2"), ("B1", "B3"), ("B1", "B4"), ("B4", "B5"))


@pytest.fixture(params=ALL.values(), ids=list(ALL))
def rules(request: pytest.FixtureRequest) -> RoutingRules:
    chosen: RoutingRules = request.param
    return chosen


@pytest.fixture
def two(rules: RoutingRules) -> Stages:
    return Stages(Overlay([("B1", "B2")], rules))


@pytest.fixture
def star(rules: RoutingRules) -> Stages:
    return Stages(Overlay(STAR, rules))


# Two brokers.


def test_an_advertisement_is_told_to_the_neighbour(two: Stages) -> None:
    offer = two.person("B1", "p").advertise(STOCK)
    two.stage()
    assert two.overlay.holders(offer) == ["B1", "B2"]


def test_what_was_there_before_the_link_is_told_when_it_comes(rules: RoutingRules) -> None:
    overlay = Overlay([], rules)
    stages = Stages(overlay)
    publisher, subscriber = stages.person("B1", "p"), stages.person("B2", "s")
    publisher.advertise(STOCK)
    subscriber.subscribe(CHEAP)
    overlay.link("B1", "B2")
    stages.stage()
    publisher.publish(AT_45)
    publisher.publish(AT_150)
    stages.stage({subscriber: [AT_45]})


def test_what_changed_while_a_link_was_down_is_made_good(two: Stages) -> None:
    overlay = two.overlay
    publisher, subscriber = two.person("B1", "p"), two.person("B2", "s")
    publisher.advertise(STOCK)
    two.stage()
    gone = subscriber.subscribe(CHEAP)
    two.stage()
    overlay.cut("B1", "B2")
    subscriber.say(EnvelopeKind.UNSUBSCRIBE, gone)
    subscriber.subscribe(DEAR)
    overlay.mend("B1", "B2")
    two.stage()
    assert overlay.holders(gone) == []
    publisher.publish(AT_45)
    publisher.publish(AT_150)
    two.stage({subscriber: [AT_150]})


def test_publications_wait_for_a_link_that_is_down(two: Stages) -> None:
    publisher, subscriber = two.person("B1", "p"), two.person("B2", "s")
    publisher.advertise(STOCK)
    two.stage()
    subscriber.subscribe(CHEAP)
    two.stage()
    two.overlay.cut("B1", "B2")
    publisher.publish(AT_45)
    two.stage()
    two.overlay.mend("B1", "B2")
    two.stage({subscriber: [AT_45]})


def test_a_subscription_follows_an_advertisement_that_came_first(two: Stages) -> None:
    two.person("B1", "p").advertise(STOCK)
    two.stage()
    wanted = two.person("B2", "s").subscribe(CHEAP)
    two.stage()
    assert two.overlay.holders(wanted) == ["B1", "B2"]


def test_a_subscription_follows_an_advertisement_that_comes_later(two: Stages) -> None:
    wanted = two.person("B2", "s").subscribe(CHEAP)
    two.stage()
    assert two.overlay.holders(wanted) == ["B2"]
    two.person("B1", "p").advertise(STOCK)
    two.stage()
    assert two.overlay.holders(wanted) == ["B1", "B2"]


def test_a_subscription_does_not_go_where_nothing_it_wants_is_advertised(two: Stages) -> None:
    two.person("B1", "p").advertise("[class,eq,weather],[price,>,0]")
    two.stage()
    wanted = two.person("B2", "s").subscribe(CHEAP)
    two.stage()
    assert two.overlay.holders(wanted) == ["B2"]


def test_two_advertisements_of_one_neighbour_get_a_subscription_once(two: Stages) -> None:
    publisher = two.person("B1", "p")
    publisher.advertise(STOCK)
    publisher.advertise("[class,eq,stock],[price,>,10],[volume,>,0]")
    two.stage()
    two.person("B2", "s").subscribe(CHEAP)
    two.stage()
    assert (
        len([key for key in two.overlay.routers["B1"].tables.subscriptions if key[1] == "B2"]) == 1
    )


def test_publications_go_to_those_who_want_them_and_to_no_others(two: Stages) -> None:
    publisher = two.person("B1", "p")
    cheap, dear, both = (two.person("B2", name) for name in ("cheap", "dear", "both"))
    publisher.advertise(STOCK)
    two.stage()
    cheap.subscribe(CHEAP)
    dear.subscribe(DEAR)
    both.subscribe(CHEAP)
    both.subscribe(DEAR)
    both.subscribe("[class,eq,stock]")
    two.stage()
    publisher.publish(AT_45)
    two.stage({cheap: [AT_45], both: [AT_45]})
    publisher.publish(AT_150)
    two.stage({dear: [AT_150], both: [AT_150]})


def test_a_message_that_may_cross_no_link_stays_and_one_that_may_cross_one_crosses_one(
    rules: RoutingRules,
) -> None:
    stages = Stages(Overlay([("B1", "B2"), ("B2", "B3")], rules))
    publisher = stages.person("B1", "p")
    here, next_, far = (stages.person(broker, "s") for broker in ("B1", "B2", "B3"))
    publisher.advertise(STOCK)
    stages.stage()
    for person in (here, next_, far):
        person.subscribe(CHEAP)
    stages.stage()
    publisher.publish(AT_45, ttl=0)
    stages.stage({here: [AT_45]})
    publisher.publish(AT_45, ttl=1)
    stages.stage({here: [AT_45], next_: [AT_45]})
    publisher.publish(AT_45, ttl=2)
    stages.stage({here: [AT_45], next_: [AT_45], far: [AT_45]})


# Several brokers.


def test_an_advertisement_is_flooded(star: Stages) -> None:
    offer = star.person("B5", "p").advertise(STOCK)
    star.stage()
    assert sorted(star.overlay.holders(offer)) == ["B1", "B2", "B3", "B4", "B5"]


@pytest.mark.parametrize("advertised_first", [True, False])
@pytest.mark.parametrize("homes", [("B2", "B2"), ("B2", "B3"), ("B2", "B5")])
def test_subscriptions_reach_all_publishers_in_either_order(
    star: Stages, homes: tuple[str, str], advertised_first: bool
) -> None:
    publishers = [star.person(home, f"p{number}") for number, home in enumerate(homes)]
    near, far = star.person("B3", "near"), star.person("B5", "far")
    if advertised_first:
        for publisher in publishers:
            publisher.advertise(STOCK)
        star.stage()
    near.subscribe(CHEAP)
    far.subscribe(DEAR)
    star.stage()
    if not advertised_first:
        for publisher in publishers:
            publisher.advertise(STOCK)
        star.stage()
    for publisher in publishers:
        publisher.publish(AT_45)
        star.stage({near: [AT_45]})
        publisher.publish(AT_150)
        star.stage({far: [AT_150]})


def test_an_unsubscription_is_forgotten_everywhere(star: Stages) -> None:
    publisher, subscriber = star.person("B2", "p"), star.person("B5", "s")
    publisher.advertise(STOCK)
    star.stage()
    wanted = subscriber.subscribe(CHEAP)
    star.stage()
    assert sorted(star.overlay.holders(wanted)) == ["B1", "B2", "B4", "B5"]
    subscriber.say(EnvelopeKind.UNSUBSCRIBE, wanted)
    star.stage()
    assert star.overlay.holders(wanted) == []
    publisher.publish(AT_45)
    star.stage()


def test_one_of_two_who_want_the_same_may_leave(star: Stages) -> None:
    publisher = star.person("B2", "p")
    leaving, staying = star.person("B5", "leaving"), star.person("B4", "staying")
    publisher.advertise(STOCK)
    star.stage()
    gone = leaving.subscribe(CHEAP)
    staying.subscribe(CHEAP)
    star.stage()
    leaving.say(EnvelopeKind.UNSUBSCRIBE, gone)
    star.stage()
    publisher.publish(AT_45)
    star.stage({staying: [AT_45]})


def test_an_unadvertisement_is_forgotten_everywhere_and_subscriptions_with_it(
    star: Stages,
) -> None:
    publisher, subscriber = star.person("B2", "p"), star.person("B5", "s")
    offer = publisher.advertise(STOCK)
    star.stage()
    wanted = subscriber.subscribe(CHEAP)
    star.stage()
    publisher.say(EnvelopeKind.UNADVERTISE, offer)
    star.stage()
    assert star.overlay.holders(offer) == []
    assert star.overlay.holders(wanted) == ["B5"]  # its client still wants it


def test_a_subscription_outlives_an_advertisement_and_meets_the_next(star: Stages) -> None:
    publisher, subscriber = star.person("B2", "p"), star.person("B5", "s")
    offer = publisher.advertise(STOCK)
    star.stage()
    subscriber.subscribe(CHEAP)
    star.stage()
    publisher.say(EnvelopeKind.UNADVERTISE, offer)
    star.stage()
    publisher.advertise(STOCK)
    star.stage()
    publisher.publish(AT_45)
    star.stage({subscriber: [AT_45]})


def test_a_client_that_goes_takes_everything_with_it(star: Stages) -> None:
    publisher, subscriber = star.person("B2", "p"), star.person("B5", "s")
    offer = publisher.advertise(STOCK)
    star.stage()
    wanted = subscriber.subscribe(CHEAP)
    pair = subscriber.composite(f"{{{{{CHEAP}}}&{{{DEAR}}}}}")
    star.stage()
    subscriber.router.detach(subscriber.name)
    publisher.router.detach(publisher.name)
    star.stage()
    assert star.overlay.holders(wanted) == star.overlay.holders(offer) == []
    assert star.overlay.holders(f"{pair}-s0") == []


# Composite subscriptions over several brokers.

PAIR = "{{[class,eq,stock],[price,<,50]}&{[class,eq,weather],[rain,>,0]}}"
WEATHER = "[class,eq,weather],[rain,>=,0]"
WET = "[class,weather],[rain,3]"


def test_a_composite_is_complete_when_its_parts_have_come_from_anywhere(star: Stages) -> None:
    stock, weather = star.person("B2", "stock"), star.person("B3", "weather")
    subscriber = star.person("B5", "s")
    stock.advertise(STOCK)
    weather.advertise(WEATHER)
    star.stage()
    subscriber.composite(PAIR)
    star.stage()
    stock.publish(AT_45)
    star.stage()
    stock.publish(AT_150)
    star.stage()
    weather.publish(WET)
    star.stage({subscriber: [AT_45, WET]})


def test_a_composite_may_come_before_the_advertisements(star: Stages) -> None:
    stock, weather = star.person("B2", "stock"), star.person("B3", "weather")
    subscriber = star.person("B5", "s")
    subscriber.composite(PAIR)
    star.stage()
    stock.advertise(STOCK)
    weather.advertise(WEATHER)
    star.stage()
    weather.publish(WET)
    star.stage()
    stock.publish(AT_45)
    star.stage({subscriber: [AT_45, WET]})


def test_a_composite_that_is_undone_is_forgotten_everywhere(star: Stages) -> None:
    stock, weather = star.person("B2", "stock"), star.person("B3", "weather")
    subscriber = star.person("B5", "s")
    stock.advertise(STOCK)
    weather.advertise(WEATHER)
    star.stage()
    both = subscriber.composite(PAIR)
    star.stage()
    assert "B2" in star.overlay.holders(f"{both}-s0")
    subscriber.say(EnvelopeKind.UNCOMPOSITE, both)
    star.stage()
    assert star.overlay.holders(f"{both}-s0") == star.overlay.holders(f"{both}-s1") == []
    stock.publish(AT_45)
    weather.publish(WET)
    star.stage()


def test_variables_join_publications_of_different_brokers(star: Stages) -> None:
    orders, payments = star.person("B2", "orders"), star.person("B5", "payments")
    subscriber = star.person("B3", "s")
    orders.advertise("[class,eq,order],[id,isPresent,x]")
    payments.advertise("[class,eq,payment],[id,isPresent,x]")
    star.stage()
    subscriber.composite("{{[class,eq,order],[id,eq,$S$x]}&{[class,eq,payment],[id,eq,$S$x]}}")
    star.stage()
    orders.publish("[class,order],[id,a]")
    payments.publish("[class,payment],[id,b]")
    star.stage()
    payments.publish("[class,payment],[id,a]")
    star.stage({subscriber: ["[class,order],[id,a]", "[class,payment],[id,a]"]})


def test_a_publication_that_was_not_advertised_is_refused_and_goes_nowhere(star: Stages) -> None:
    publisher, subscriber = star.person("B2", "p"), star.person("B5", "s")
    other = star.person("B2", "other")
    publisher.advertise(STOCK)
    star.stage()
    subscriber.subscribe("[class,eq,stock]")
    star.stage()
    for person, text in ((publisher, "[class,stock],[colour,red]"), (other, AT_45)):
        with pytest.raises(Exception, match="conforms to no advertisement"):
            person.publish(text)
    star.stage()


# Composites that are split.


def test_a_composite_travels_whole_to_where_the_ways_divide() -> None:
    stages = Stages(Overlay(STAR, RoutingRules(split=True, subscriptions=CoveringMode.OFF)))
    stock, weather = stages.person("B2", "stock"), stages.person("B3", "weather")
    subscriber = stages.person("B5", "s")
    stock.advertise(STOCK)
    weather.advertise(WEATHER)
    stages.stage()
    both = subscriber.composite(PAIR)
    stages.stage()
    routers = stages.overlay.routers
    assert [name for name in routers if routers[name].composite_router.entries] == [
        "B1",
        "B4",
        "B5",
    ]
    assert sorted(stages.overlay.holders(f"{both}-s0")) == ["B1", "B2"]  # it divides at B1
    before = stages.overlay.carried(EnvelopeKind.PUBLISH)
    stock.publish(AT_45)
    stages.stage()
    assert stages.overlay.carried(EnvelopeKind.PUBLISH) - before == 1  # and no further than that
    weather.publish(WET)
    stages.stage({subscriber: [AT_45, WET]})
    subscriber.say(EnvelopeKind.UNCOMPOSITE, both)
    stages.stage()
    assert stages.overlay.holders(f"{both}-s0") == []


def test_a_split_composite_divides_elsewhere_when_another_source_comes() -> None:
    stages = Stages(Overlay(STAR, RoutingRules(split=True)))
    stock, weather = stages.person("B2", "stock"), stages.person("B2", "weather")
    late, subscriber = stages.person("B4", "late"), stages.person("B5", "s")
    stock.advertise(STOCK)
    weather.advertise(WEATHER)
    stages.stage()
    subscriber.composite(PAIR)
    stages.stage()
    late.advertise(WEATHER)
    stages.stage()
    stock.publish(AT_45)
    stages.stage()
    late.publish(WET)
    stages.stage({subscriber: [AT_45, WET]})
