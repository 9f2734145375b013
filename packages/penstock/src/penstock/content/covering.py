"""A poset of filters ordered by covering, and covering-based forwarding.

Roots are covered by no other filter and cover all. A node may have several parents; equal filters
share a node. Filters of different classes are unrelated.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from penstock.content.errors import DuplicateId, UnknownId
from penstock.content.messages import Advertisement, Subscription
from penstock.content.relations import FilterExtent, covers_advertised_extent, covers_extent

K = TypeVar("K", bound=Hashable)

Relation = Callable[[FilterExtent, FilterExtent], bool]

SUBSCRIPTIONS: Relation = covers_extent
ADVERTISEMENTS: Relation = covers_advertised_extent


class PosetNode(Generic[K]):
    """Equal filters, with direct parents and children."""

    __slots__ = ("children", "extent", "keys", "parents")

    def __init__(self, extent: FilterExtent, key: K) -> None:
        self.extent = extent
        self.keys: dict[K, None] = {key: None}
        # In insertion order.
        self.parents: dict[PosetNode[K], None] = {}
        self.children: dict[PosetNode[K], None] = {}


class Poset(Generic[K]):
    def __init__(self, covers: Relation) -> None:
        self._covers = covers
        self._nodes: dict[K, PosetNode[K]] = {}
        self._roots: dict[str, dict[PosetNode[K], None]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, key: object) -> bool:
        return key in self._nodes

    def __getitem__(self, key: K) -> PosetNode[K]:
        return self._nodes[key]

    def roots(self) -> Iterator[PosetNode[K]]:
        for roots in self._roots.values():
            yield from roots

    def insert(self, key: K, extent: FilterExtent) -> PosetNode[K]:
        if key in self._nodes:
            raise DuplicateId(f"duplicate filter id {key}")
        roots = self._roots.setdefault(extent.class_name, {})
        parents = self._lowest_above(roots, extent)
        for parent in parents:
            if self._covers(extent, parent.extent):  # they are equal
                parent.keys[key] = None
                self._nodes[key] = parent
                return parent
        node = PosetNode(extent, key)
        children = self._highest_below(parents, roots, extent)
        for child in children:
            for parent in [parent for parent in child.parents if parent in parents]:
                _unlink(parent, child)
            roots.pop(child, None)
            _link(node, child)
        for parent in parents:
            _link(parent, node)
        if not parents:
            roots[node] = None
        self._nodes[key] = node
        return node

    def remove(self, key: K) -> PosetNode[K]:
        """Remove a filter; its children move to its parents, or become roots."""
        node = self._nodes.pop(key, None)
        if node is None:
            raise UnknownId(f"unknown filter id {key}")
        del node.keys[key]
        if node.keys:
            return node
        roots = self._roots[node.extent.class_name]
        parents, children = list(node.parents), list(node.children)
        for parent in parents:
            _unlink(parent, node)
        for child in children:
            _unlink(node, child)
        for child in children:
            for parent in parents:
                if not _is_above(parent, child):
                    _link(parent, child)
            if not child.parents:
                roots[child] = None
        roots.pop(node, None)
        if not roots:
            del self._roots[node.extent.class_name]
        return node

    def _lowest_above(
        self, roots: dict[PosetNode[K], None], extent: FilterExtent
    ) -> dict[PosetNode[K], None]:
        """The lowest nodes that cover an extent."""
        found: dict[PosetNode[K], None] = {}
        above = {root: None for root in roots if self._covers(root.extent, extent)}
        seen = set(above)
        pending = list(above)
        while pending:
            node = pending.pop()
            lower = [child for child in node.children if self._covers(child.extent, extent)]
            if not lower:
                found[node] = None
            for child in lower:
                if child not in seen:
                    seen.add(child)
                    pending.append(child)
        return found

    def _highest_below(
        self,
        parents: dict[PosetNode[K], None],
        roots: dict[PosetNode[K], None],
        extent: FilterExtent,
    ) -> list[PosetNode[K]]:
        """The highest nodes that an extent covers."""
        found: dict[PosetNode[K], None] = {}
        seen: set[PosetNode[K]] = set()
        pending = [child for parent in parents for child in parent.children]
        if not parents:
            pending = list(roots)
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            if self._covers(extent, node.extent):
                found[node] = None
            else:
                pending += node.children
        # One may be below another that was found on another path.
        return [node for node in found if not any(_is_above(other, node) for other in found)]


def _link(parent: PosetNode[K], child: PosetNode[K]) -> None:
    parent.children[child] = None
    child.parents[parent] = None


def _unlink(parent: PosetNode[K], child: PosetNode[K]) -> None:
    del parent.children[child]
    del child.parents[parent]


def _is_above(high: PosetNode[K], low: PosetNode[K]) -> bool:
    seen: set[PosetNode[K]] = set()
    pending = list(low.parents)
    while pending:
        node = pending.pop()
        if node is high:
            return True
        if node not in seen:
            seen.add(node)
            pending += node.parents
    return False


class CoveringMode(Enum):
    """Which filters a neighbour is sent. Advertisements may be OFF or LAZY."""

    OFF = "OFF"  #: all
    LAZY = "LAZY"  #: none that is covered when it arrives
    ACTIVE = "ACTIVE"  #: in addition, filters that a newly sent one covers are withdrawn


@dataclass(frozen=True, slots=True)
class ForwardFilter(Generic[K]):
    key: K


@dataclass(frozen=True, slots=True)
class WithdrawFilter(Generic[K]):
    key: K


ForwardingStep = ForwardFilter[K] | WithdrawFilter[K]


class FilterForwarding(Generic[K]):
    """Decides which filters one neighbour is sent, by a key of the caller.

    When a covering filter is removed, those below it are sent. Steps must be taken in order: a
    replacement is sent before the withdrawal.
    """

    def __init__(self, covers: Relation, covering: CoveringMode, strict: bool = False) -> None:
        self._covering = covering
        self._strict = strict
        self._poset: Poset[K] = Poset(covers)
        self._sent: set[K] = set()

    @classmethod
    def of_subscriptions(cls, covering: CoveringMode, strict: bool = False) -> FilterForwarding[K]:
        return cls(SUBSCRIPTIONS, covering, strict)

    @classmethod
    def of_advertisements(cls, covering: CoveringMode, strict: bool = False) -> FilterForwarding[K]:
        if covering is CoveringMode.ACTIVE:
            raise ValueError("covering of advertisements must be LAZY or OFF")
        return cls(ADVERTISEMENTS, covering, strict)

    def sent(self) -> frozenset[K]:
        return frozenset(self._sent)

    def insert(self, key: K, message: Subscription | Advertisement) -> list[ForwardingStep[K]]:
        node = self._poset.insert(key, FilterExtent.of(message, self._strict))
        if self._covering is CoveringMode.OFF:
            self._sent.add(key)
            return [ForwardFilter(key)]
        if node.parents or self._sent_key(node) is not None:
            return []
        self._sent.add(key)
        steps: list[ForwardingStep[K]] = [ForwardFilter(key)]
        if self._covering is CoveringMode.ACTIVE:
            steps += self._withdrawn(node)
        return steps

    def _withdrawn(self, node: PosetNode[K]) -> Iterator[WithdrawFilter[K]]:
        """Withdraw sent filters directly below a filter."""
        for child in node.children:
            sent_key = self._sent_key(child)
            if sent_key is not None:
                self._sent.remove(sent_key)
                yield WithdrawFilter(sent_key)

    def remove(self, key: K) -> list[ForwardingStep[K]]:
        below = list(self._poset[key].children) if key in self._poset else []
        node = self._poset.remove(key)
        if key not in self._sent:
            return []
        self._sent.remove(key)
        steps: list[ForwardingStep[K]] = []
        if self._covering is not CoveringMode.OFF:
            bare = [node] if node.keys else below
            for one in bare:
                if not one.parents and self._sent_key(one) is None:
                    chosen = next(iter(one.keys))
                    self._sent.add(chosen)
                    steps.append(ForwardFilter(chosen))
        return [*steps, WithdrawFilter(key)]

    def _sent_key(self, node: PosetNode[K]) -> K | None:
        """The key of the equal filter that was sent."""
        return next((key for key in node.keys if key in self._sent), None)
