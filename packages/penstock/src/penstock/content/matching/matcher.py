"""Indexes of subscriptions and of advertisements.

Subscriptions are grouped by class, and within a class by the value of one equality predicate: of
several, that of the attribute with most different values. Those without equality are grouped by a
narrow range, if they have one. These are in cells (`CellIndex`). All others, and those whose cell
is full, are in clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from penstock.content.errors import DuplicateId, UnknownId
from penstock.content.matching.bitmap_index import BitmapIndex
from penstock.content.matching.cell_index import CellIndex
from penstock.content.matching.cluster import FilterCluster
from penstock.content.matching.entries import FilterEntry, PublicationView
from penstock.content.matching.kernel import NativeKernel, load_kernel
from penstock.content.matching.substring_index import Bits
from penstock.content.messages import (
    BINDING,
    Advertisement,
    Operator,
    Predicate,
    Publication,
    Subscription,
    Value,
    Variable,
)
from penstock.content.relations import FilterExtent, ValueSet, conforms, extents_intersect
from penstock.content.value_sets import numbers_satisfying, strings_satisfying

K = TypeVar("K", bound=Hashable)


class Matcher(Generic[K]):
    """Subscriptions by a key of the caller; `strict` is the type comparison. Uses the C kernel if
    it is compiled."""

    def __init__(
        self, strict: bool = False, *, kernel: Callable[[], NativeKernel | None] = load_kernel
    ) -> None:
        self._strict = strict
        self._kernel = kernel()
        self._entries: dict[K, FilterEntry] = {}
        self._classes: dict[str, _Class] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __getitem__(self, key: K) -> Subscription:
        message = self._entries[key].message
        assert isinstance(message, Subscription)
        return message

    def insert(self, key: K, subscription: Subscription) -> None:
        if key in self._entries:
            raise DuplicateId(f"duplicate subscription id {key}")
        found = self._classes.get(subscription.class_name)
        if found is None:
            found = self._classes[subscription.class_name] = _Class(self._strict, self._kernel)
        self._entries[key] = found.insert(key, subscription)

    def remove(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            raise UnknownId(f"unknown subscription id {key}")
        found = self._classes[entry.message.class_name]
        found.remove(entry)
        if not found.count:
            del self._classes[entry.message.class_name]

    def match(self, publication: Publication) -> list[K]:
        """The keys of all matching subscriptions, each once."""
        found = self._classes.get(publication.class_name)
        return found.match(publication) if found is not None else []

    def intersecting(self, advertisement: Advertisement) -> list[K]:
        """The keys of all subscriptions that intersect the advertisement."""
        found = self._classes.get(advertisement.class_name)
        if found is None:
            return []
        offered = FilterExtent.of(advertisement, self._strict)
        return [
            entry.key
            for entry in found.candidates(offered)
            if extents_intersect(FilterExtent.of(entry.message, self._strict), offered)
        ]


class _Class:
    __slots__ = ("_cell_index", "_kernel", "_others", "_overflow", "_strict", "count")

    def __init__(self, strict: bool, kernel: NativeKernel | None) -> None:
        self.count = 0
        self._strict = strict
        self._kernel = kernel
        self._cell_index = CellIndex(kernel)
        # Clusters of overfull values, and of subscriptions without an access path.
        self._overflow: dict[str, dict[Value, FilterCluster]] = {}
        self._others = FilterCluster(kernel)

    def insert(self, key: Hashable, subscription: Subscription) -> FilterEntry:
        self.count += 1
        entry = FilterEntry(key, subscription, self._strict, self._access(subscription))
        if not self._cell_index.try_add(entry):
            self._cluster(entry).insert(entry)
        return entry

    def _access(self, subscription: Subscription) -> Predicate | None:
        """The equality predicate that is the access path."""
        best, most = None, -1
        for predicate in subscription.predicates:
            attribute, operator, operand = predicate
            if operator not in BINDING:
                continue
            if isinstance(operand, str) or (isinstance(operand, (int, float)) and not self._strict):
                different = self._cell_index.values(attribute)
                if different > most:
                    best, most = predicate, different
        return best

    def _cluster(self, entry: FilterEntry) -> FilterCluster:
        if entry.access is None:
            return self._others
        attribute, _, value = entry.access
        clusters = self._overflow.setdefault(attribute, {})
        return clusters.setdefault(value, FilterCluster(self._kernel))  # type: ignore[arg-type]

    def remove(self, entry: FilterEntry) -> None:
        self.count -= 1
        if entry.cluster is None:
            self._cell_index.remove(entry)
            return
        entry.cluster.remove(entry)
        if entry.access is not None and not len(entry.cluster):
            attribute, _, value = entry.access
            values = self._overflow[attribute]
            del values[value]  # type: ignore[arg-type]
            if not values:
                del self._overflow[attribute]

    def match(self, publication: Publication) -> list[K]:
        event = PublicationView(publication)
        found: list[K] = []
        self._cell_index.match(event, found)
        for name, values in self._overflow.items():
            cluster = values.get(event.attributes.get(name))  # type: ignore[arg-type]
            if cluster is not None:
                cluster.match(event, found)
        self._others.match(event, found)
        return found

    def candidates(self, offered: FilterExtent) -> Iterator[FilterEntry]:
        """Subscriptions that may intersect the advertisement."""

        def choose(bitmaps: BitmapIndex) -> Bits | None:
            left = bitmaps.present()
            for attribute, kind in bitmaps.binned_attributes():
                values = offered.allowed.get(attribute)
                line = bitmaps.absent(attribute, kind)
                assert line is not None, "every listed attribute is binned"
                if values is not None and type(values) is type(kind):
                    overlapping = bitmaps.overlapping(attribute, values)
                    line = line if overlapping is None else line | overlapping
                left &= line
            return left

        yield from self._cell_index.candidates(offered)
        for attribute, values in offered.allowed.items():
            for value, cluster in self._overflow.get(attribute, _NOTHING).items():
                if values is not None and value in values:
                    yield from cluster.candidates(choose)
        yield from self._others.candidates(choose)


_NOTHING: Final[dict[Value, FilterCluster]] = {}


class AdvertisementMatcher(Generic[K]):
    """Advertisements by a key of the caller; `strict` is the type comparison.

    They are grouped by class, in clusters. Candidates have all requested attributes with common
    values; the few are tested one by one.
    """

    def __init__(self, strict: bool = False) -> None:
        self._strict = strict
        self._entries: dict[K, FilterEntry] = {}
        self._classes: dict[str, FilterCluster] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __getitem__(self, key: K) -> Advertisement:
        return _advertisement(self._entries[key])

    def insert(self, key: K, advertisement: Advertisement) -> None:
        if key in self._entries:
            raise DuplicateId(f"duplicate advertisement id {key}")
        entry = self._entries[key] = FilterEntry(key, advertisement, self._strict)
        self._classes.setdefault(advertisement.class_name, FilterCluster()).insert(entry)

    def remove(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            raise UnknownId(f"unknown advertisement id {key}")
        cluster = self._classes[entry.message.class_name]
        cluster.remove(entry)
        if not len(cluster):
            del self._classes[entry.message.class_name]

    def intersecting(self, subscription: Subscription) -> list[K]:
        """The keys of all advertisements that intersect the subscription."""
        wanted = FilterExtent.of(subscription, self._strict)
        return [
            entry.key
            for entry in self._naming(wanted.class_name, lambda: wanted.allowed)
            if extents_intersect(wanted, FilterExtent.of(entry.message, self._strict))
        ]

    def conforming(self, publication: Publication) -> list[K]:
        """The keys of all advertisements that the publication conforms to."""

        def held() -> dict[str, ValueSet]:
            return {name: _exactly(value) for name, value in publication.attributes.items()}

        return [
            entry.key
            for entry in self._naming(publication.class_name, held)
            if conforms(publication, _advertisement(entry), self._strict)
        ]

    def _naming(
        self, class_name: str, wanted: Callable[[], Mapping[str, ValueSet]]
    ) -> Iterator[FilterEntry]:
        """Advertisements that have all these attributes and may allow some of the values. `wanted`
        is evaluated only if there are blocks."""

        def choose(bitmaps: BitmapIndex) -> Bits | None:
            left = bitmaps.present()
            for attribute, values in wanted().items():
                absent = bitmaps.absent(attribute, values)
                line = bitmaps.overlapping(attribute, values)
                if absent is not None and line is not None:
                    left &= line & ~absent
                elif bitmaps.complete:  # else a filter may ask for an attribute that is not binned
                    return None
            return left

        cluster = self._classes.get(class_name)
        return cluster.candidates(choose) if cluster is not None else iter(())


def _exactly(value: Value | Variable) -> ValueSet:
    if isinstance(value, Variable):
        return None
    if isinstance(value, str):
        return strings_satisfying(Operator.EQ, value)
    return numbers_satisfying(Operator.EQUAL, value)


def _advertisement(entry: FilterEntry) -> Advertisement:
    assert isinstance(entry.message, Advertisement)
    return entry.message
