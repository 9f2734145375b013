"""A poset of filters by covering: which of them say all that the others say.

Its roots are covered by nobody, and together cover all. A node may lie under several others; equal
filters share a node. Classes do not meet.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from penstock.content.errors import DuplicateId, UnknownId
from penstock.content.extents import Extent
from penstock.content.relations import covers_advertised, covers_extent

K = TypeVar("K", bound=Hashable)

#: Whether the first extent covers the second.
Relation = Callable[[Extent, Extent], bool]

SUBSCRIPTIONS: Relation = covers_extent
ADVERTISEMENTS: Relation = covers_advertised


class Node(Generic[K]):
    """Filters that are equal, those right above them and right below."""

    __slots__ = ("children", "extent", "keys", "parents")

    def __init__(self, extent: Extent, key: K) -> None:
        self.extent = extent
        self.keys: dict[K, None] = {key: None}
        # In order, so that whoever goes through them finds them as they came.
        self.parents: dict[Node[K], None] = {}
        self.children: dict[Node[K], None] = {}


class Poset(Generic[K]):
    def __init__(self, covers: Relation) -> None:
        self._covers = covers
        self._nodes: dict[K, Node[K]] = {}
        self._roots: dict[str, dict[Node[K], None]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, key: object) -> bool:
        return key in self._nodes

    def __getitem__(self, key: K) -> Node[K]:
        return self._nodes[key]

    def roots(self) -> Iterator[Node[K]]:
        for roots in self._roots.values():
            yield from roots

    def insert(self, key: K, extent: Extent) -> Node[K]:
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
        node = Node(extent, key)
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

    def remove(self, key: K) -> Node[K]:
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

    def _lowest_above(self, roots: dict[Node[K], None], extent: Extent) -> dict[Node[K], None]:
        """The nodes that cover an extent and have no child that does."""
        found: dict[Node[K], None] = {}
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
        self, parents: dict[Node[K], None], roots: dict[Node[K], None], extent: Extent
    ) -> list[Node[K]]:
        """The nodes that an extent covers and no other node that it covers does."""
        found: dict[Node[K], None] = {}
        seen: set[Node[K]] = set()
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


def _link(parent: Node[K], child: Node[K]) -> None:
    parent.children[child] = None
    child.parents[parent] = None


def _unlink(parent: Node[K], child: Node[K]) -> None:
    del parent.children[child]
    del child.parents[parent]


def _is_above(high: Node[K], low: Node[K]) -> bool:
    """Whether a node lies anywhere above another."""
    seen: set[Node[K]] = set()
    waiting = list(low.parents)
    while waiting:
        node = waiting.pop()
        if node is high:
            return True
        if node not in seen:
            seen.add(node)
            waiting += node.parents
    return False
