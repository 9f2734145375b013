"""What a router tells a neighbour of the filters it has, when some cover others.

One `Forwarding` stands for one neighbour and decides what is sent to it and what is withdrawn:
filters that others cover need not be sent. When one that covered them goes, they are.

- `OFF`: everything is sent.
- `LAZY`: what is covered when it comes is not sent; what was sent stays.
- `ACTIVE`: in addition, what a newly sent filter covers is withdrawn.

Subscriptions may be lazy or active, advertisements lazy.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from penstock.content.covering import ADVERTISEMENTS, SUBSCRIPTIONS, Node, Poset, Relation
from penstock.content.extents import Extent
from penstock.content.messages import Advertisement, Subscription

K = TypeVar("K", bound=Hashable)


class Covering(Enum):
    OFF = "OFF"
    LAZY = "LAZY"
    ACTIVE = "ACTIVE"


@dataclass(frozen=True, slots=True)
class Send(Generic[K]):
    key: K


@dataclass(frozen=True, slots=True)
class Withdraw(Generic[K]):
    key: K


Step = Send[K] | Withdraw[K]


class Forwarding(Generic[K]):
    """Filters by a key of the caller's. Steps are to be taken in their order: what takes another's
    place is sent before that is withdrawn."""

    def __init__(self, covers: Relation, covering: Covering, strict: bool = False) -> None:
        self._covering = covering
        self._strict = strict
        self._poset: Poset[K] = Poset(covers)
        self._sent: set[K] = set()

    @classmethod
    def of_subscriptions(cls, covering: Covering, strict: bool = False) -> Forwarding[K]:
        return cls(SUBSCRIPTIONS, covering, strict)

    @classmethod
    def of_advertisements(cls, covering: Covering, strict: bool = False) -> Forwarding[K]:
        if covering is Covering.ACTIVE:
            raise ValueError("advertisements are covered lazily, or not at all")
        return cls(ADVERTISEMENTS, covering, strict)

    def sent(self) -> frozenset[K]:
        """What the neighbour has."""
        return frozenset(self._sent)

    def insert(self, key: K, message: Subscription | Advertisement) -> list[Step[K]]:
        node = self._poset.insert(key, Extent.of(message, self._strict))
        if self._covering is Covering.OFF:
            self._sent.add(key)
            return [Send(key)]
        if node.parents or self._sender(node) is not None:
            return []
        self._sent.add(key)
        steps: list[Step[K]] = [Send(key)]
        if self._covering is Covering.ACTIVE:
            steps += self._withdrawn(node)
        return steps

    def _withdrawn(self, node: Node[K]) -> Iterator[Withdraw[K]]:
        """What lay right under a filter and has been sent, goes."""
        for child in node.children:
            sender = self._sender(child)
            if sender is not None:
                self._sent.remove(sender)
                yield Withdraw(sender)

    def remove(self, key: K) -> list[Step[K]]:
        below = list(self._poset[key].children) if key in self._poset else []
        node = self._poset.remove(key)
        if key not in self._sent:
            return []
        self._sent.remove(key)
        steps: list[Step[K]] = []
        if self._covering is not Covering.OFF:
            bare = [node] if node.keys else below
            for one in bare:
                if not one.parents and self._sender(one) is None:
                    chosen = next(iter(one.keys))
                    self._sent.add(chosen)
                    steps.append(Send(chosen))
        return [*steps, Withdraw(key)]

    def _sender(self, node: Node[K]) -> K | None:
        """The one of equal filters that was sent."""
        return next((key for key in node.keys if key in self._sent), None)
