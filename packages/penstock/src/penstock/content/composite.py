"""Composite subscriptions: matches of several publications.

Parts of all composites are in one matcher; only composites with a satisfied part are evaluated, by
a Rete network of their joins. Partial matches are limited per composite.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from time import monotonic
from typing import Final, Generic, TypeVar

from penstock.content.bindings import Bindings, bind
from penstock.content.errors import DuplicateId, UnknownId
from penstock.content.matching.matcher import Matcher
from penstock.content.messages import (
    BINDING,
    CompositeSubscription,
    Expression,
    Join,
    JoinOperator,
    Publication,
    Value,
    Variable,
)

__all__ = ["CompositeMatcher", "ConsumptionPolicy", "RetentionLimit"]


class ConsumptionPolicy(Enum):
    """The use of publications after a match."""

    REMAIN = "consume-and-remain"  #: they match again with every new partner
    ONCE = "consume-once"  #: each matches once, with the oldest partner
    RECENT = "recent-only"  #: only the newest matches, with every new partner


@dataclass(frozen=True, slots=True)
class RetentionLimit:
    """The limit of partial matches of a composite subscription."""

    size: int = 1000  #: partial matches on each side of each `&`; the oldest are dropped first
    seconds: float | None = None  #: the longest time between publications of a match

    def __post_init__(self) -> None:
        if self.size < 1 or (self.seconds is not None and self.seconds < 0):
            raise ValueError("the size must be at least 1, the time not negative")


DEFAULT_RETENTION: Final = RetentionLimit()


@dataclass(frozen=True, slots=True, eq=False)
class PartialMatch:
    """Publications that satisfy a part of a composite, by arrival number."""

    publications: Mapping[int, Publication]
    bindings: Bindings
    since: float  #: arrival of the oldest

    def merge(self, other: PartialMatch) -> PartialMatch | None:
        """Both; None if their variables differ."""
        bindings = self.bindings.merge(other.bindings)
        if bindings is None:
            return None
        publications = {**self.publications, **other.publications}
        return PartialMatch(publications, bindings, min(self.since, other.since))


Correlation = tuple[Value, ...]


class JoinMemory:
    """Partial matches on one side of a join, by the values of shared variables."""

    __slots__ = ("_bound", "_by", "_held", "_policy", "_variables")

    def __init__(
        self, variables: tuple[str, ...], policy: ConsumptionPolicy, bound: RetentionLimit
    ) -> None:
        self._variables = variables
        self._policy = policy
        self._bound = bound
        # By correlation, and all in order of arrival.
        self._held: OrderedDict[PartialMatch, Correlation] = OrderedDict()
        self._by: dict[Correlation, OrderedDict[PartialMatch, None]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def partners(self, new: PartialMatch, now: float) -> Iterator[PartialMatch]:
        """Partial matches with equal variables, the oldest first."""
        for partner in list(self._by.get(self._correlation(new), ())):
            if self._bound.seconds is not None and now - partner.since > self._bound.seconds:
                self.remove(partner)
            else:
                yield partner

    def add(self, new: PartialMatch) -> None:
        correlation = self._correlation(new)
        if self._policy is ConsumptionPolicy.RECENT:
            for old in list(self._by.get(correlation, ())):
                self.remove(old)
        self._held[new] = correlation
        self._by.setdefault(correlation, OrderedDict())[new] = None
        if len(self._held) > self._bound.size:
            self.remove(next(iter(self._held)))

    def remove(self, old: PartialMatch) -> None:
        correlation = self._held.pop(old)
        same = self._by[correlation]
        del same[old]
        if not same:
            del self._by[correlation]

    def expire(self, now: float) -> None:
        """Remove expired partial matches at the front."""
        if self._bound.seconds is None:
            return
        while self._held and now - (oldest := next(iter(self._held))).since > self._bound.seconds:
            self.remove(oldest)

    def _correlation(self, partial: PartialMatch) -> Correlation:
        values = partial.bindings.values
        return tuple(values[name] for name in self._variables)


class ReteNetwork:
    """The joins of one composite subscription.

    A publication that satisfies a part enters as a partial match. `||` passes it on. `&` joins it
    with every compatible partial match of the other side, passes the results on, and stores it for
    later partners, as policy and limit allow. What leaves at the top is a match.
    """

    __slots__ = ("_bound", "_entrances", "_joins", "_policy")

    def __init__(
        self, composite: CompositeSubscription, policy: ConsumptionPolicy, bound: RetentionLimit
    ) -> None:
        self._policy = policy
        self._bound = bound
        self._joins: list[_JoinNode] = []
        #: For each part, from left to right, the joins above it with their sides.
        self._entrances: list[list[tuple[_JoinNode, int]]] = []
        self._build(composite.expression, [])

    def _build(self, node: Expression, way: list[tuple[_JoinNode, int]]) -> None:
        if not isinstance(node, Join):
            self._entrances.append(way[::-1])
        elif node.joining is JoinOperator.OR:
            self._build(node.left, way)
            self._build(node.right, way)
        else:
            shared = tuple(sorted(_bound_in(node.left) & _bound_in(node.right)))
            join = _JoinNode(shared, self._policy, self._bound)
            self._joins.append(join)
            self._build(node.left, [*way, (join, 0)])
            self._build(node.right, [*way, (join, 1)])

    def remembered(self) -> int:
        """The number of stored partial matches."""
        return sum(len(memory) for join in self._joins for memory in join.sides)

    def enter(self, part: int, partial: PartialMatch, now: float) -> list[PartialMatch]:
        """The matches that a publication completes as a part."""
        found = [partial]
        for join, side in self._entrances[part]:
            found = [out for one in found for out in join.feed(side, one, now)]
            if not found:
                break
        return found


class _JoinNode:
    __slots__ = ("_policy", "sides")

    def __init__(
        self, shared: tuple[str, ...], policy: ConsumptionPolicy, bound: RetentionLimit
    ) -> None:
        self._policy = policy
        self.sides = (JoinMemory(shared, policy, bound), JoinMemory(shared, policy, bound))

    def feed(self, side: int, new: PartialMatch, now: float) -> list[PartialMatch]:
        mine, others = self.sides[side], self.sides[1 - side]
        mine.expire(now)
        others.expire(now)
        found = []
        for partner in others.partners(new, now):
            joined = new.merge(partner) if side else partner.merge(new)
            if joined is None:
                continue
            found.append(joined)
            if self._policy is ConsumptionPolicy.ONCE:
                others.remove(partner)
                return found
        mine.add(new)
        return found


def _bound_in(node: Expression) -> frozenset[str]:
    if isinstance(node, Join):
        left, right = _bound_in(node.left), _bound_in(node.right)
        return left | right if node.joining is JoinOperator.AND else left & right
    return frozenset(
        predicate.operand.name
        for predicate in node.predicates
        if predicate.operator in BINDING and isinstance(predicate.operand, Variable)
    )


K = TypeVar("K", bound=Hashable)


class CompositeMatcher(Generic[K]):
    """Composite subscriptions by a key of the caller."""

    def __init__(self, *, strict: bool = False, clock: Callable[[], float] = monotonic) -> None:
        self._strict = strict
        self._clock = clock
        self._parts: Matcher[tuple[K, int]] = Matcher(strict)
        self._composites: dict[K, tuple[CompositeSubscription, ReteNetwork]] = {}
        self._arrived = 0

    def __len__(self) -> int:
        return len(self._composites)

    def __contains__(self, key: object) -> bool:
        return key in self._composites

    def __getitem__(self, key: K) -> CompositeSubscription:
        return self._composites[key][0]

    def insert(
        self,
        key: K,
        composite: CompositeSubscription,
        policy: ConsumptionPolicy = ConsumptionPolicy.REMAIN,
        bound: RetentionLimit = DEFAULT_RETENTION,
    ) -> None:
        if key in self._composites:
            raise DuplicateId(f"duplicate composite subscription id {key}")
        self._composites[key] = (composite, ReteNetwork(composite, policy, bound))
        for number, part in enumerate(composite.parts()):
            self._parts.insert((key, number), part)

    def remove(self, key: K) -> None:
        found = self._composites.pop(key, None)
        if found is None:
            raise UnknownId(f"unknown composite subscription id {key}")
        for number, _ in enumerate(found[0].parts()):
            self._parts.remove((key, number))

    def remembered(self, key: K) -> int:
        """The number of stored partial matches."""
        return self._composites[key][1].remembered()

    def match(self, publication: Publication) -> dict[K, list[tuple[Publication, ...]]]:
        """The matches that a publication completes, by composite, each in order of arrival."""
        entered = sorted(self._parts.match(publication), key=lambda found: found[1])
        if not entered:
            return {}
        self._arrived += 1
        now = self._clock()
        matches: dict[K, dict[frozenset[int], tuple[Publication, ...]]] = {}
        for key, number in entered:
            bindings = bind(
                self._parts[key, number].predicates, publication.attributes, self._strict
            )
            assert bindings is not None, "the matcher says that it is satisfied"
            new = PartialMatch({self._arrived: publication}, bindings, now)
            for found in self._composites[key][1].enter(number, new, now):
                arrived = sorted(found.publications)
                same = matches.setdefault(key, {})
                same[frozenset(arrived)] = tuple(found.publications[at] for at in arrived)
        return {key: list(found.values()) for key, found in matches.items()}
