"""The table of subscriptions: which of them a publication meets.

Subscriptions lie by class, and in a class by the value of one attribute that they ask to be equal
to something: of several, the one that takes most different values, so that few others share it.
Those that ask for no equality lie by a range, if one is narrow. All these are on a shelf, in cells.
Those that have neither, or whose cell is full, lie in clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

from penstock.content.errors import DuplicateId, UnknownId
from penstock.content.extents import Extent
from penstock.content.matching.cluster import Cluster
from penstock.content.matching.entries import Entry
from penstock.content.matching.event import Event
from penstock.content.matching.kernel import Kernel, compiled
from penstock.content.matching.lines import Lines
from penstock.content.matching.occurrences import Bits
from penstock.content.matching.shelf import Shelf
from penstock.content.messages import Advertisement, Predicate, Publication, Subscription
from penstock.content.operators import BINDING
from penstock.content.relations import meet
from penstock.content.values import Value

K = TypeVar("K", bound=Hashable)


class Matcher(Generic[K]):
    """Subscriptions by a key of the caller's; strict is how types are compared.

    Inner loops that were compiled are used, if there are any (`kernel.py`).
    """

    def __init__(
        self, strict: bool = False, *, kernel: Callable[[], Kernel | None] = compiled
    ) -> None:
        self._strict = strict
        self._kernel = kernel()
        self._entries: dict[K, Entry] = {}
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
            raise DuplicateId(f"there is a subscription {key} already")
        found = self._classes.get(subscription.class_name)
        if found is None:
            found = self._classes[subscription.class_name] = _Class(self._strict, self._kernel)
        self._entries[key] = found.insert(key, subscription)

    def remove(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            raise UnknownId(f"there is no subscription {key}")
        found = self._classes[entry.message.class_name]
        found.remove(entry)
        if not found.count:
            del self._classes[entry.message.class_name]

    def match(self, publication: Publication) -> list[K]:
        """The keys of all subscriptions that the publication satisfies, each once."""
        found = self._classes.get(publication.class_name)
        return found.match(publication) if found is not None else []

    def meeting(self, advertisement: Advertisement) -> list[K]:
        """The keys of all subscriptions that the advertisement intersects."""
        found = self._classes.get(advertisement.class_name)
        if found is None:
            return []
        offered = Extent.of(advertisement, self._strict)
        return [
            entry.key
            for entry in found.candidates(offered)
            if meet(Extent.of(entry.message, self._strict), offered)
        ]


class _Class:
    """The subscriptions of one class."""

    __slots__ = ("_crowded", "_kernel", "_others", "_shelf", "_strict", "count")

    def __init__(self, strict: bool, kernel: Kernel | None) -> None:
        self.count = 0
        self._strict = strict
        self._kernel = kernel
        self._shelf = Shelf(kernel)
        # What asks for a value that very many ask for, by that; and what has nothing to lie by.
        self._crowded: dict[str, dict[Value, Cluster]] = {}
        self._others = Cluster(kernel)

    def insert(self, key: Hashable, subscription: Subscription) -> Entry:
        self.count += 1
        entry = Entry(key, subscription, self._strict, self._access(subscription))
        if not self._shelf.takes(entry):
            self._cluster(entry).insert(entry)
        return entry

    def _access(self, subscription: Subscription) -> Predicate | None:
        """The equality to file a subscription by."""
        best, most = None, -1
        for predicate in subscription.predicates:
            attribute, operator, operand = predicate
            if operator not in BINDING:
                continue
            if isinstance(operand, str) or (isinstance(operand, (int, float)) and not self._strict):
                different = self._shelf.values(attribute)
                if different > most:
                    best, most = predicate, different
        return best

    def _cluster(self, entry: Entry) -> Cluster:
        if entry.access is None:
            return self._others
        attribute, _, value = entry.access
        return self._crowded.setdefault(attribute, {}).setdefault(value, Cluster(self._kernel))  # type: ignore[arg-type]

    def remove(self, entry: Entry) -> None:
        self.count -= 1
        if entry.cluster is None:
            self._shelf.remove(entry)
            return
        entry.cluster.remove(entry)
        if entry.access is not None and not len(entry.cluster):
            attribute, _, value = entry.access
            values = self._crowded[attribute]
            del values[value]  # type: ignore[arg-type]
            if not values:
                del self._crowded[attribute]

    def match(self, publication: Publication) -> list[K]:
        event = Event(publication)
        found: list[K] = []
        self._shelf.match(event, found)
        for name, values in self._crowded.items():
            cluster = values.get(event.attributes.get(name))  # type: ignore[arg-type]
            if cluster is not None:
                cluster.match(event, found)
        self._others.match(event, found)
        return found

    def candidates(self, offered: Extent) -> Iterator[Entry]:
        """Those that may intersect what is offered."""

        def choose(lines: Lines) -> Bits | None:
            left = lines.present()
            for attribute, kind in lines.asked():
                values = offered.allowed.get(attribute)
                line = lines.silent(attribute, kind)
                assert line is not None, "there is a lane for what is asked"
                if values is not None and type(values) is type(kind):
                    overlapping = lines.overlapping(attribute, values)
                    line = line if overlapping is None else line | overlapping
                left &= line
            return left

        yield from self._shelf.candidates(offered)
        for attribute, values in offered.allowed.items():
            for value, cluster in self._crowded.get(attribute, _NOTHING).items():
                if values is not None and value in values:
                    yield from cluster.candidates(choose)
        yield from self._others.candidates(choose)


_NOTHING: Final[dict[Value, Cluster]] = {}
