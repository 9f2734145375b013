"""A definition as subscriptions in the content language.

A threshold is two of them, one at a time. While it is *armed* it waits for the crossing; once it
has fired it waits for the way back, as far as its hysteresis:

    [class,eq,occupancy],[hive,=,7],[percent,>=,80]      armed, fires
    [class,eq,occupancy],[hive,=,7],[percent,<,75]       fired, arms again

So a place that stays full matches nothing, however often it reports, and what matches is always a
change. Deals match as often as something happens to them:

    [class,eq,deal],[event,eq,new],[hive,=,7],[kind,eq,discount]
    [class,eq,deal],[event,eq,expiring],[hours,=,24]
"""

from __future__ import annotations

from itertools import product

from penstock.content import Operator, Predicate, Subscription
from penstock.hives.app.alerts.definitions import Definition, Kind, Unit

OCCUPANCY = "occupancy"
DEAL = "deal"
_ATTRIBUTES = {Unit.COUNT: "occupancy", Unit.PERCENT: "percent"}


def threshold(definition: Definition, armed: bool) -> Subscription:
    """What a definition of occupancy waits for now."""
    assert definition.hive_id is not None
    assert definition.threshold is not None
    assert definition.unit is not None
    limit = definition.threshold
    above = definition.kind is Kind.OCCUPANCY_ABOVE
    if armed:
        operator = Operator.GREATER_EQUAL if above else Operator.LESS_EQUAL
    else:
        operator = Operator.LESS if above else Operator.GREATER
        limit += -definition.hysteresis if above else definition.hysteresis
    return Subscription(
        OCCUPANCY,
        (
            Predicate("hive", Operator.EQUAL, definition.hive_id),
            Predicate(_ATTRIBUTES[definition.unit], operator, limit),
        ),
    )


def deals(definition: Definition) -> list[Subscription]:
    """Which events of deals a definition wants: one subscription for each thing it names."""
    event = "expiring" if definition.kind is Kind.DEAL_EXPIRING else "new"
    hives: tuple[int | None, ...] = (definition.hive_id,)
    if definition.kind is Kind.FAVOURITE_DEAL:
        hives = definition.favourites
    hours: tuple[int | None, ...] = (None,)
    if definition.kind is Kind.DEAL_EXPIRING:
        hours = definition.expiry_hours
    kinds = definition.deal_kinds or (None,)
    types = definition.hive_types or (None,)
    around = definition.near.bounds() if definition.near is not None else ()
    return [_deal(event, *each, around) for each in product(hives, hours, kinds, types)]


def _deal(
    event: str,
    hive: int | None,
    hours: int | None,
    kind: str | None,
    hive_type: str | None,
    around: tuple[tuple[str, float, float], ...],
) -> Subscription:
    wanted = [Predicate("event", Operator.EQ, event)]
    if hive is not None:
        wanted.append(Predicate("hive", Operator.EQUAL, hive))
    if hours is not None:
        wanted.append(Predicate("hours", Operator.EQUAL, hours))
    if kind is not None:
        wanted.append(Predicate("kind", Operator.EQ, kind))
    if hive_type is not None:
        wanted.append(Predicate("type", Operator.EQ, hive_type))
    for attribute, least, most in around:
        wanted.append(Predicate(attribute, Operator.GREATER_EQUAL, least))
        wanted.append(Predicate(attribute, Operator.LESS_EQUAL, most))
    return Subscription(DEAL, tuple(wanted))
