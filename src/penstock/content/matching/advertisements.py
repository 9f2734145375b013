"""The table of advertisements: which of them a subscription meets, or a publication conforms to.

They lie by class, in blocks as subscriptions do. An advertisement has to name every attribute that
it is asked with, so blocks leave those that name them all with values in common; these are few, and
are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from penstock.content.errors import DuplicateId, UnknownId
from penstock.content.extents import Extent, Values
from penstock.content.matching.cluster import Cluster
from penstock.content.matching.entries import Entry
from penstock.content.matching.lines import Lines
from penstock.content.matching.occurrences import Bits
from penstock.content.messages import Advertisement, Publication, Subscription
from penstock.content.number_sets import numbers
from penstock.content.operators import Operator
from penstock.content.relations import conforms, meet
from penstock.content.string_sets import strings
from penstock.content.values import Value, Variable

K = TypeVar("K", bound=Hashable)


class Advertisements(Generic[K]):
    """Advertisements by a key of the caller's; strict is how types are compared."""

    def __init__(self, strict: bool = False) -> None:
        self._strict = strict
        self._entries: dict[K, Entry] = {}
        self._classes: dict[str, Cluster] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __getitem__(self, key: K) -> Advertisement:
        return _advertisement(self._entries[key])

    def insert(self, key: K, advertisement: Advertisement) -> None:
        if key in self._entries:
            raise DuplicateId(f"there is an advertisement {key} already")
        entry = self._entries[key] = Entry(key, advertisement, self._strict)
        self._classes.setdefault(advertisement.class_name, Cluster()).insert(entry)

    def remove(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            raise UnknownId(f"there is no advertisement {key}")
        cluster = self._classes[entry.message.class_name]
        cluster.remove(entry)
        if not len(cluster):
            del self._classes[entry.message.class_name]

    def meeting(self, subscription: Subscription) -> list[K]:
        """The keys of all advertisements that intersect the subscription."""
        wanted = Extent.of(subscription, self._strict)
        return [
            entry.key
            for entry in self._naming(wanted.class_name, lambda: wanted.allowed)
            if meet(wanted, Extent.of(entry.message, self._strict))
        ]

    def conforming(self, publication: Publication) -> list[K]:
        """The keys of all advertisements that the publication conforms to."""

        def held() -> dict[str, Values]:
            return {name: _exactly(value) for name, value in publication.attributes.items()}

        return [
            entry.key
            for entry in self._naming(publication.class_name, held)
            if conforms(publication, _advertisement(entry), self._strict)
        ]

    def _naming(
        self, class_name: str, wanted: Callable[[], Mapping[str, Values]]
    ) -> Iterator[Entry]:
        """Those that name all these attributes, and may take some of the values.

        What is wanted is worked out for blocks alone: where few advertise, nobody asks.
        """

        def choose(lines: Lines) -> Bits | None:
            left = lines.present()
            for attribute, values in wanted().items():
                silent = lines.silent(attribute, values)
                line = lines.overlapping(attribute, values)
                if silent is not None and line is not None:
                    left &= line & ~silent
                elif lines.complete:  # else somebody may ask for it without a lane
                    return None
            return left

        cluster = self._classes.get(class_name)
        return cluster.candidates(choose) if cluster is not None else iter(())


def _exactly(value: Value | Variable) -> Values:
    if isinstance(value, Variable):
        return None
    if isinstance(value, str):
        return strings(Operator.EQ, value)
    return numbers(Operator.EQUAL, value)


def _advertisement(entry: Entry) -> Advertisement:
    assert isinstance(entry.message, Advertisement)
    return entry.message
