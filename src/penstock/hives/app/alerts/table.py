"""All definitions in one matcher: which of them a publication concerns.

A definition of occupancy is in it once, as what it waits for now (`rules.py`). Matching changes
nothing: whoever has written down that a definition fired, or is armed again, says so with `turn`,
and from then on it waits for the other thing. So what is in memory never runs ahead of the
database.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from penstock.content.matching import Matcher
from penstock.hives.app.alerts import rules
from penstock.hives.app.alerts.definitions import Definition
from penstock.hives.app.alerts.publications import DealNews, Figure
from penstock.hives.app.domain.geography import Point


class _Key(NamedTuple):
    definition: int
    part: int  #: of several subscriptions that a definition is


@dataclass(frozen=True, slots=True)
class Crossing:
    """A definition has met what it waited for."""

    definition: Definition
    figure: Figure
    fired: bool  #: else it is armed again


class AlertTable:
    __slots__ = ("_armed", "_definitions", "_matcher", "_parts")

    def __init__(self) -> None:
        self._matcher: Matcher[_Key] = Matcher()
        self._definitions: dict[int, Definition] = {}
        self._armed: dict[int, bool] = {}
        self._parts: dict[int, int] = {}  #: how many subscriptions a definition is, if not one

    def __len__(self) -> int:
        return len(self._definitions)

    def __iter__(self) -> Iterator[int]:
        return iter(self._definitions)

    def put(self, definition: Definition, armed: bool = True) -> None:
        """Have a definition, as it is now."""
        self.remove(definition.id)
        self._definitions[definition.id] = definition
        if definition.kind.of_occupancy:
            self._armed[definition.id] = armed
            self._matcher.insert(_Key(definition.id, 0), rules.threshold(definition, armed))
            return
        wanted = rules.deals(definition)
        self._parts[definition.id] = len(wanted)
        for part, subscription in enumerate(wanted):
            self._matcher.insert(_Key(definition.id, part), subscription)

    def remove(self, definition: int) -> None:
        """Nothing happens if it is not there."""
        if self._definitions.pop(definition, None) is None:
            return
        if self._armed.pop(definition, None) is not None:
            self._matcher.remove(_Key(definition, 0))
            return
        for part in range(self._parts.pop(definition)):
            self._matcher.remove(_Key(definition, part))

    def crossings(self, figure: Figure) -> list[Crossing]:
        """Which thresholds a figure crosses, either way."""
        if figure.stale:
            return []
        return [
            Crossing(self._definitions[key.definition], figure, self._armed[key.definition])
            for key in self._matcher.match(figure.publication())
        ]

    def interested(self, news: DealNews) -> list[Definition]:
        """Whose definitions news of a deal meet."""
        found = {key.definition for key in self._matcher.match(news.publication())}
        wanted = (self._definitions[each] for each in sorted(found))
        return [each for each in wanted if near(each, news)]

    def turn(self, crossing: Crossing) -> None:
        """The crossing is written down: wait for the way back. A definition that has changed or
        gone meanwhile is left as it is."""
        definition = crossing.definition
        if self._definitions.get(definition.id) is definition:
            self.put(definition, armed=not crossing.fired)


def near(definition: Definition, news: DealNews) -> bool:
    if definition.near is None:
        return True
    if news.lat is None or news.lon is None:
        return False
    return definition.near.holds(Point(news.lat, news.lon))
