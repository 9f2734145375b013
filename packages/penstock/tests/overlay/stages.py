"""A stage of a test: what everybody is to get in it, and that nobody gets anything else."""

from __future__ import annotations

from collections.abc import Mapping

from tests.overlay.simulation import Overlay, Person


class Stages:
    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self._people: list[Person] = []

    def person(self, broker: str, name: str) -> Person:
        person = self.overlay.person(broker, name)
        self._people.append(person)
        return person

    def people(self, *names: str) -> list[Person]:
        """Those who go by these names."""
        return [
            next(one for one in self._people if one.name.endswith(f"-{name}")) for name in names
        ]

    def stage(self, expected: Mapping[Person, list[str]] | None = None) -> None:
        """Carry all there is: these publications have come, in any order, and no others."""
        self.overlay.settle()
        for person in self._people:
            due = sorted((expected or {}).get(person, []))
            assert sorted(person.texts()) == due, person.name
