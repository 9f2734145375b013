"""A poset of filters by covering: which of them say all that the others say.

Its roots are covered by nobody, and together cover all. A node may lie under several others; equal
filters share a node. Classes do not meet.
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

#: Whether the first extent covers the second.
Relation = Callable[[FilterExtent, FilterExtent], bool]

SUBSCRIPTIONS: Relation = covers_extent
ADVERTISEMENTS: Relation = covers_advertised_extent


class PosetNode(Generic[K]):
    """Filters that are equal, those right above them and right below."""

    __slots__ = ("children", "extent", "keys", "parents")

    def __init__(self, extent: FilterExtent, key: K) -> None:
        self.extent = extent
        self.keys: dict[K, None] = {key: None}
        # In order, so that whoever goes through them finds them as they came.
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
        """Put a filter where it belongs, over what it covers."""
        if key in self._nodes:
            raise DuplicateId(f"there is a filter {key} already")
        roots = self._roots.setdefault(extent.class_name, {})
        parents = self._lowest_above(roots, extent)
        for parent in parents:
            if self._covers(extent, parent.extent):  # each covers the other
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
        """Take a filter out; what it covered goes under what covered it, or becomes a root."""
        node = self._nodes.pop(key, None)
        if node is None:
            raise UnknownId(f"there is no filter {key}")
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
        """The nodes that cover an extent and have no child that does."""
        found: dict[PosetNode[K], None] = {}
        above = {root: None for root in roots if self._covers(root.extent, extent)}
        seen = set(above)
        waiting = list(above)
        while waiting:
            node = waiting.pop()
            lower = [child for child in node.children if self._covers(child.extent, extent)]
            if not lower:
                found[node] = None
            for child in lower:
                if child not in seen:
                    seen.add(child)
                    waiting.append(child)
        return found

    def _highest_below(
        self,
        parents: dict[PosetNode[K], None],
        roots: dict[PosetNode[K], None],
        extent: FilterExtent,
    ) -> list[PosetNode[K]]:
        """The nodes that an extent covers and no other node that it covers does."""
        found: dict[PosetNode[K], None] = {}
        seen: set[PosetNode[K]] = set()
        waiting = [child for parent in parents for child in parent.children]
        if not parents:
            waiting = list(roots)
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            if self._covers(extent, node.extent):
                found[node] = None
            else:
                waiting += node.children
        # One may lie under another that was found by another way.
        return [node for node in found if not any(_is_above(other, node) for other in found)]


def _link(parent: PosetNode[K], child: PosetNode[K]) -> None:
    parent.children[child] = None
    child.parents[parent] = None


def _unlink(parent: PosetNode[K], child: PosetNode[K]) -> None:
    del parent.children[child]
    del child.parents[parent]


def _is_above(high: PosetNode[K], low: PosetNode[K]) -> bool:
    """Whether a node lies anywhere above another."""
    seen: set[PosetNode[K]] = set()
    waiting = list(low.parents)
    while waiting:
        node = waiting.pop()
        if node is high:
            return True
        if node not in seen:
            seen.add(node)
            waiting += node.parents
    return False


# What a router tells a neighbour of the filters it has, when some cover others.
#
# One `FilterForwarding` stands for one neighbour and decides what is sent to it and what is
# withdrawn: filters that others cover need not be sent. When one that covered them goes, they are.
#
# - `OFF`: everything is sent.
# - `LAZY`: what is covered when it comes is not sent; what was sent stays.
# - `ACTIVE`: in addition, what a newly sent filter covers is withdrawn.
#
# Subscriptions may be lazy or active, advertisements lazy.


class CoveringMode(Enum):
    OFF = "OFF"
    LAZY = "LAZY"
    ACTIVE = "ACTIVE"


@dataclass(frozen=True, slots=True)
class ForwardFilter(Generic[K]):
    key: K


@dataclass(frozen=True, slots=True)
class WithdrawFilter(Generic[K]):
    key: K


ForwardingStep = ForwardFilter[K] | WithdrawFilter[K]


class FilterForwarding(Generic[K]):
    """Filters by a key of the caller's. Steps are to be taken in their order: what takes another's
    place is sent before that is withdrawn."""

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
            raise ValueError("advertisements are covered lazily, or not at all")
        return cls(ADVERTISEMENTS, covering, strict)

    def sent(self) -> frozenset[K]:
        """What the neighbour has."""
        return frozenset(self._sent)

    def insert(self, key: K, message: Subscription | Advertisement) -> list[ForwardingStep[K]]:
        node = self._poset.insert(key, FilterExtent.of(message, self._strict))
        if self._covering is CoveringMode.OFF:
            self._sent.add(key)
            return [ForwardFilter(key)]
        if node.parents or self._sender(node) is not None:
            return []
        self._sent.add(key)
        steps: list[ForwardingStep[K]] = [ForwardFilter(key)]
        if self._covering is CoveringMode.ACTIVE:
            steps += self._withdrawn(node)
        return steps

    def _withdrawn(self, node: PosetNode[K]) -> Iterator[WithdrawFilter[K]]:
        """What lay right under a filter and has been sent, goes."""
        for child in node.children:
            sender = self._sender(child)
            if sender is not None:
                self._sent.remove(sender)
                yield WithdrawFilter(sender)

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
                if not one.parents and self._sender(one) is None:
                    chosen = next(iter(one.keys))
                    self._sent.add(chosen)
                    steps.append(ForwardFilter(chosen))
        return [*steps, WithdrawFilter(key)]

    def _sender(self, node: PosetNode[K]) -> K | None:
        """The one of equal filters that was sent."""
        return next((key for key in node.keys if key in self._sent), None)
