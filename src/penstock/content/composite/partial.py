"""Partial matches, and the memories of a join that hold them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.content.bindings import Bindings
from penstock.content.composite.policies import Bound, Policy
from penstock.content.messages import Publication
from penstock.content.values import Value


@dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """Publications that together satisfy a part of a composite, by their number of arrival."""

    publications: Mapping[int, Publication]
    bindings: Bindings
    since: float  #: when the oldest arrived

    def merge(self, other: Partial) -> Partial | None:
        """Both together; None where their variables disagree."""
        bindings = self.bindings.merge(other.bindings)
        if bindings is None:
            return None
        together = {**self.publications, **other.publications}
        return Partial(together, bindings, min(self.since, other.since))


Correlation = tuple[Value, ...]


class Memory:
    """The partial matches on one side of a join, by the values of the variables that both sides
    are sure to have."""

    __slots__ = ("_bound", "_by", "_held", "_policy", "_variables")

    def __init__(self, variables: tuple[str, ...], policy: Policy, bound: Bound) -> None:
        self._variables = variables
        self._policy = policy
        self._bound = bound
        # By correlation, each in order of arrival; and all of them in one order.
        self._held: OrderedDict[Partial, Correlation] = OrderedDict()
        self._by: dict[Correlation, OrderedDict[Partial, None]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def partners(self, new: Partial, now: float) -> Iterator[Partial]:
        """Those that agree in the variables both are sure to have, the oldest first."""
        for partner in list(self._by.get(self._correlation(new), ())):
            if self._bound.seconds is not None and now - partner.since > self._bound.seconds:
                self.remove(partner)
            else:
                yield partner

    def add(self, new: Partial) -> None:
        correlation = self._correlation(new)
        if self._policy is Policy.RECENT:
            for old in list(self._by.get(correlation, ())):
                self.remove(old)
        self._held[new] = correlation
        self._by.setdefault(correlation, OrderedDict())[new] = None
        if len(self._held) > self._bound.size:
            self.remove(next(iter(self._held)))

    def remove(self, old: Partial) -> None:
        correlation = self._held.pop(old)
        same = self._by[correlation]
        del same[old]
        if not same:
            del self._by[correlation]

    def expire(self, now: float) -> None:
        """Forget what has been here too long, as far as it is at the front."""
        if self._bound.seconds is None:
            return
        while self._held and now - (oldest := next(iter(self._held))).since > self._bound.seconds:
            self.remove(oldest)

    def _correlation(self, partial: Partial) -> Correlation:
        values = partial.bindings.values
        return tuple(values[name] for name in self._variables)
