"""All alert definitions in one matcher, as subscriptions in the content language.

A threshold is one of two subscriptions at a time. While it is *armed* it waits for the crossing;
after it has fired it waits for the return past its hysteresis:

    [class,eq,occupancy],[hive,=,7],[percent,>=,80]      armed, fires
    [class,eq,occupancy],[hive,=,7],[percent,<,75]       fired, arms again

So a hive that stays full matches nothing, however often it reports. Deals match each event:

    [class,eq,deal],[event,eq,new],[hive,=,7],[kind,eq,discount]
    [class,eq,deal],[event,eq,expiring],[hours,=,24]

Matching changes no state: `toggle` is called after the transition is committed, so memory is never
ahead of the database. A report of a stale hive is not published: stale is not empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any, NamedTuple

from penstock.content import Operator, Predicate, Publication, Subscription
from penstock.content.matching import Matcher
from penstock.content.messages import Value, Variable
from penstock.core.errors import WireSyntaxError
from penstock_hives.alerts.models import AlertDefinition, AlertKind, ThresholdUnit
from penstock_hives.places.models import GeoPoint


class _Key(NamedTuple):
    definition: int
    part: int  #: the index of the subscription, of definitions with several


@dataclass(frozen=True, slots=True)
class ThresholdCrossing:
    definition: AlertDefinition
    report: OccupancyReport
    fired: bool  #: False: it is armed again


class AlertMatcher:
    __slots__ = ("_armed", "_definitions", "_matcher", "_parts")

    def __init__(self) -> None:
        self._matcher: Matcher[_Key] = Matcher()
        self._definitions: dict[int, AlertDefinition] = {}
        self._armed: dict[int, bool] = {}
        self._parts: dict[int, int] = {}  #: the number of subscriptions of a deal definition

    def __len__(self) -> int:
        return len(self._definitions)

    def __iter__(self) -> Iterator[int]:
        return iter(self._definitions)

    def add(self, definition: AlertDefinition, armed: bool = True) -> None:
        """Add or replace a definition."""
        self.remove(definition.id)
        self._definitions[definition.id] = definition
        if definition.kind.of_occupancy:
            self._armed[definition.id] = armed
            self._matcher.insert(_Key(definition.id, 0), threshold_subscription(definition, armed))
            return
        wanted = deal_subscriptions(definition)
        self._parts[definition.id] = len(wanted)
        for part, subscription in enumerate(wanted):
            self._matcher.insert(_Key(definition.id, part), subscription)

    def remove(self, definition: int) -> None:
        if self._definitions.pop(definition, None) is None:
            return
        if self._armed.pop(definition, None) is not None:
            self._matcher.remove(_Key(definition, 0))
            return
        for part in range(self._parts.pop(definition)):
            self._matcher.remove(_Key(definition, part))

    def crossings(self, report: OccupancyReport) -> list[ThresholdCrossing]:
        if report.stale:
            return []
        return [
            ThresholdCrossing(
                self._definitions[key.definition], report, self._armed[key.definition]
            )
            for key in self._matcher.match(report.publication())
        ]

    def match_deal(self, event: DealEvent) -> list[AlertDefinition]:
        found = {key.definition for key in self._matcher.match(event.publication())}
        matched = (self._definitions[each] for each in sorted(found))
        return [each for each in matched if is_near(each, event)]

    def toggle(self, crossing: ThresholdCrossing) -> None:
        """Wait for the opposite crossing, unless the definition was changed or removed."""
        definition = crossing.definition
        if self._definitions.get(definition.id) is definition:
            self.add(definition, armed=not crossing.fired)


def is_near(definition: AlertDefinition, event: DealEvent) -> bool:
    if definition.near is None:
        return True
    if event.lat is None or event.lon is None:
        return False
    return definition.near.contains(GeoPoint(event.lat, event.lon))


OCCUPANCY = "occupancy"
DEAL = "deal"
_ATTRIBUTES = {ThresholdUnit.COUNT: "occupancy", ThresholdUnit.PERCENT: "percent"}


def threshold_subscription(definition: AlertDefinition, armed: bool) -> Subscription:
    assert definition.hive_id is not None
    assert definition.threshold is not None
    assert definition.unit is not None
    limit = definition.threshold
    above = definition.kind is AlertKind.OCCUPANCY_ABOVE
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


def deal_subscriptions(definition: AlertDefinition) -> list[Subscription]:
    """One for each combination of hives, hours, kinds and types."""
    event = "expiring" if definition.kind is AlertKind.DEAL_EXPIRING else "new"
    hives: tuple[int | None, ...] = (definition.hive_id,)
    if definition.kind is AlertKind.FAVOURITE_DEAL:
        hives = definition.favourites
    hours: tuple[int | None, ...] = (None,)
    if definition.kind is AlertKind.DEAL_EXPIRING:
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


@dataclass(frozen=True, slots=True)
class OccupancyReport:
    """The occupancy of a hive, as the pipeline publishes it."""

    hive_id: int
    occupancy: int
    percent: float | None
    level: str | None
    quality: str
    as_of: datetime
    version: int

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> OccupancyReport:
        try:
            percent = document["percent"]
            return cls(
                int(document["hive"]),
                int(document["occupancy"]),
                None if percent is None else float(percent),
                document["level"],
                document["quality"],
                datetime.fromisoformat(document["as_of"]),
                int(document["version"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise WireSyntaxError(f"invalid occupancy message: {error!r}") from error

    @property
    def stale(self) -> bool:
        return self.quality == "stale"

    def publication(self) -> Publication:
        facts: dict[str, Any] = {
            "hive": self.hive_id,
            "occupancy": self.occupancy,
            "percent": self.percent,
            "level": self.level,
            "quality": self.quality,
        }
        return Publication(OCCUPANCY, _known(facts), self.as_of, self)


@dataclass(frozen=True, slots=True)
class DealEvent:
    """A deal is new, or ends in so many hours."""

    deal_id: int
    hive_id: int
    hive: str
    hive_type: str
    kind: str
    title: str
    expires_at: datetime
    hours: int | None = None  #: until the end; None: the deal is new
    lat: float | None = None
    lon: float | None = None

    @property
    def mark(self) -> str:
        """Identifies the event of a deal in table `deal_announcement`."""
        return "new" if self.hours is None else f"{self.hours}h"

    def publication(self) -> Publication:
        facts: dict[str, Any] = {
            "event": "new" if self.hours is None else "expiring",
            "deal": self.deal_id,
            "hive": self.hive_id,
            "type": self.hive_type,
            "kind": self.kind,
            "hours": self.hours,
            "lat": self.lat,
            "lon": self.lon,
        }
        return Publication(DEAL, _known(facts), None, self)


def _known(facts: Mapping[str, Any]) -> dict[str, Value | Variable]:
    return {name: value for name, value in facts.items() if value is not None}
