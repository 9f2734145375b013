"""The table of subscriptions: which of them a publication meets.

Subscriptions lie by class, and in a class by the value of one attribute that they ask to be equal
to something: of several, the one that takes most different values, so that few others share it.
Those that ask for no equality lie together. What lies together is a cluster.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

from penstock.content.errors import DuplicateId, UnknownId
from penstock.content.extents import Extent
from penstock.content.matching.cluster import Cluster
from penstock.content.matching.entries import Entry
from penstock.content.matching.event import Event
from penstock.content.matching.lines import Lines
from penstock.content.matching.occurrences import Bits
from penstock.content.messages import Advertisement, Predicate, Publication, Subscription
from penstock.content.operators import BINDING
from penstock.content.relations import meet
from penstock.content.values import Value, Variable

K = TypeVar("K", bound=Hashable)


class Matcher(Generic[K]):
    """Subscriptions by a key of the caller's; strict is how types are compared."""

    def __init__(self, strict: bool = False) -> None:
        self._strict = strict
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
            found = self._classes[subscription.class_name] = _Class(self._strict)
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

    __slots__ = ("_equal", "_others", "_strict", "count")

    def __init__(self, strict: bool) -> None:
        self.count = 0
        self._strict = strict
        self._equal: dict[str, dict[Value, Cluster]] = {}
        self._others = Cluster()

    def insert(self, key: Hashable, subscription: Subscription) -> Entry:
        self.count += 1
        access = self._access(subscription)
        entry = Entry(key, subscription, self._strict, access)
        if access is None:
            self._others.insert(entry)
            return entry
        values = self._equal.setdefault(access.attribute, {})
        operand = access.operand
        assert not isinstance(operand, Variable)
        cluster = values.get(operand)
        if cluster is None:
            cluster = values[operand] = Cluster()
        cluster.insert(entry)
        return entry

    def _access(self, subscription: Subscription) -> Predicate | None:
        """The predicate to file a subscription by."""
        best, most = None, -1
        for predicate in subscription.predicates:
            if predicate.operator not in BINDING:
                continue
            operand = predicate.operand
            if isinstance(operand, str) or (isinstance(operand, (int, float)) and not self._strict):
                different = len(self._equal.get(predicate.attribute, ()))
                if different > most:
                    best, most = predicate, different
        return best

    def remove(self, entry: Entry) -> None:
        self.count -= 1
        assert entry.cluster is not None
        entry.cluster.remove(entry)
        access = entry.access
        if access is not None and not len(entry.cluster):
            values = self._equal[access.attribute]
            del values[access.operand]  # type: ignore[arg-type]
            if not values:
                del self._equal[access.attribute]

    def match(self, publication: Publication) -> list[K]:
        event = Event(publication)
        found: list[K] = []
        attributes = publication.attributes
        for name, values in self._equal.items():
            value = attributes.get(name)
            if value is not None:
                cluster = values.get(value)  # type: ignore[arg-type]
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

        for attribute, values in offered.allowed.items():
            for value, cluster in self._equal.get(attribute, _NOTHING).items():
                if values is not None and value in values:
                    yield from cluster.candidates(choose)
        yield from self._others.candidates(choose)


_NOTHING: Final[dict[Value, Cluster]] = {}
