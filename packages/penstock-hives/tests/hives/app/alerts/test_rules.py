"""A definition is a subscription in the content language."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content import format_message, parse_subscription
from penstock_hives.alerts.matcher import (
    AlertMatcher,
    DealEvent,
    deal_subscriptions,
    threshold_subscription,
)
from penstock_hives.alerts.models import AlertDefinition, AlertKind, GeoRadius, ThresholdUnit
from penstock_hives.places.models import GeoPoint
from tests.hives.app.alerts.given import NOW, figure


def at(kind: AlertKind, limit: float, hysteresis: float = 0.0, number: int = 1) -> AlertDefinition:
    return AlertDefinition(number, 7, kind, 1, limit, ThresholdUnit.PERCENT, hysteresis)


@pytest.mark.parametrize(
    ("kind", "armed", "written"),
    [
        (AlertKind.OCCUPANCY_ABOVE, True, "[class,eq,occupancy],[hive,=,1],[percent,>=,80.0]"),
        (AlertKind.OCCUPANCY_ABOVE, False, "[class,eq,occupancy],[hive,=,1],[percent,<,75.0]"),
        (AlertKind.OCCUPANCY_BELOW, True, "[class,eq,occupancy],[hive,=,1],[percent,<=,80.0]"),
        (AlertKind.OCCUPANCY_BELOW, False, "[class,eq,occupancy],[hive,=,1],[percent,>,85.0]"),
    ],
)
def test_a_threshold_waits_for_the_crossing_and_then_for_the_way_back(
    kind: AlertKind, armed: bool, written: str
) -> None:
    assert format_message(threshold_subscription(at(kind, 80.0, 5.0), armed)) == written


def test_a_threshold_may_be_a_count_of_people() -> None:
    counted = AlertDefinition(1, 7, AlertKind.OCCUPANCY_ABOVE, 1, 40.0, ThresholdUnit.COUNT)
    assert "[occupancy,>=,40.0]" in format_message(threshold_subscription(counted, True))


def wanted(*texts: str, **facts: Any) -> bool:
    """Whether a definition wants these, no more and no less."""
    return deal_subscriptions(AlertDefinition(1, 7, **facts)) == [
        parse_subscription(text) for text in texts
    ]


def test_deals_are_wanted_by_event_hive_kind_and_type() -> None:
    assert wanted("[class,eq,deal],[event,eq,new]", kind=AlertKind.DEAL_NEW)
    assert wanted(
        "[class,eq,deal],[event,eq,new],[hive,=,3],[kind,eq,daily],[type,eq,bar]",
        kind=AlertKind.DEAL_NEW,
        hive_id=3,
        deal_kinds=("daily",),
        hive_types=("bar",),
    )


def test_favourites_are_a_subscription_each() -> None:
    assert wanted(
        "[class,eq,deal],[event,eq,new],[hive,=,3]",
        "[class,eq,deal],[event,eq,new],[hive,=,5]",
        kind=AlertKind.FAVOURITE_DEAL,
        favourites=(3, 5),
    )
    assert wanted(kind=AlertKind.FAVOURITE_DEAL)


def test_an_end_is_told_as_long_before_as_somebody_has_chosen() -> None:
    assert wanted(
        "[class,eq,deal],[event,eq,expiring],[hours,=,24]",
        "[class,eq,deal],[event,eq,expiring],[hours,=,2]",
        kind=AlertKind.DEAL_EXPIRING,
        expiry_hours=(24, 2),
    )


percents = st.integers(0, 120).map(float)


@given(
    st.sampled_from([AlertKind.OCCUPANCY_ABOVE, AlertKind.OCCUPANCY_BELOW]),
    percents,
    st.integers(0, 30).map(float),
    st.lists(percents, max_size=40),
)
def test_a_threshold_fires_as_the_obvious_rule_does(
    kind: AlertKind, limit: float, hysteresis: float, figures: list[float]
) -> None:
    table = AlertMatcher()
    table.add(at(kind, limit, hysteresis))
    fired, expected = [], []
    armed = True
    sign = 1 if kind is AlertKind.OCCUPANCY_ABOVE else -1
    for version, percent in enumerate(figures):
        for crossing in table.crossings(figure(percent, version)):
            if crossing.fired:
                fired.append(version)
            table.toggle(crossing)
        over = sign * (percent - limit)
        if armed and over >= 0:
            expected.append(version)
            armed = False
        elif not armed and over < -hysteresis:
            armed = True
    assert fired == expected


@given(st.lists(st.tuples(st.integers(1, 4), percents, st.booleans()), max_size=60), percents)
def test_every_definition_of_a_hive_is_asked_and_no_other(
    made: list[tuple[int, float, bool]], percent: float
) -> None:
    table = AlertMatcher()
    definitions = {
        number: AlertDefinition(
            number,
            number,
            AlertKind.OCCUPANCY_ABOVE if above else AlertKind.OCCUPANCY_BELOW,
            hive,
            limit,
            ThresholdUnit.PERCENT,
        )
        for number, (hive, limit, above) in enumerate(made)
    }
    for definition in definitions.values():
        table.add(definition)
    found = {each.definition.id for each in table.crossings(figure(percent, 1, hive=2))}
    assert found == {
        number
        for number, (hive, limit, above) in enumerate(made)
        if hive == 2 and (percent >= limit if above else percent <= limit)
    }


def test_a_stale_figure_crosses_nothing() -> None:
    table = AlertMatcher()
    table.add(at(AlertKind.OCCUPANCY_BELOW, 20.0))
    assert table.crossings(figure(0.0, 1, quality="stale")) == []


def test_a_definition_that_was_changed_meanwhile_is_not_turned() -> None:
    table = AlertMatcher()
    table.add(at(AlertKind.OCCUPANCY_ABOVE, 80.0))
    (crossing,) = table.crossings(figure(90.0, 1))
    table.add(at(AlertKind.OCCUPANCY_ABOVE, 85.0))
    table.toggle(crossing)
    assert [each.fired for each in table.crossings(figure(90.0, 2))] == [True]


def test_what_is_removed_is_asked_no_more() -> None:
    table = AlertMatcher()
    table.add(at(AlertKind.OCCUPANCY_ABOVE, 80.0))
    table.add(AlertDefinition(2, 7, AlertKind.FAVOURITE_DEAL, favourites=(1, 2)))
    for number in (1, 2, 2):
        table.remove(number)
    assert table.crossings(figure(90.0, 1)) == []
    assert len(table) == 0


def test_a_deal_is_near_by_the_great_circle() -> None:
    table = AlertMatcher()
    berlin = GeoRadius(GeoPoint(52.52, 13.40), 30.0)
    table.add(AlertDefinition(1, 7, AlertKind.DEAL_NEW, near=berlin))
    near = DealEvent(1, 1, "Comb", "cafe", "daily", "Tea", NOW, lat=52.40, lon=13.07)
    corner = DealEvent(1, 1, "Comb", "cafe", "daily", "Tea", NOW, lat=52.76, lon=13.80)
    nowhere = DealEvent(1, 1, "Comb", "cafe", "daily", "Tea", NOW)
    assert [each.id for each in table.match_deal(near)] == [1]
    assert table.match_deal(corner) == []  # inside the box, and too far
    assert table.match_deal(nowhere) == []
