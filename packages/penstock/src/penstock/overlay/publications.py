"""Routing of publications: every matching hop gets one copy.

A publication follows the tree of the first advertisement of its sender that it conforms to, and the
subscriptions along that tree.

With `CycleMode.DYNAMIC` the route is chosen per destination broker: along the tree while that link
is idle, else along the least busy link of another subscription of that broker. Copies then name
their destination brokers, so that each is reached once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from penstock.broker.contract import ACCEPTED
from penstock.content.messages import Publication
from penstock.content.parser import PublicationCache
from penstock.core.errors import NotAdvertised, PreconditionFailed
from penstock.overlay.composite import COMPOSITE_TREE_PREFIX, CompositeRouter
from penstock.overlay.messages import RESERVED_CLASSES
from penstock.overlay.next_hops import NextHops
from penstock.overlay.routing_tables import RoutingTables, SubscriptionEntry
from penstock.overlay.rules import CycleMode, RoutingRules
from penstock.wire.padres.envelope import PadresEnvelope

#: Limit of tree changes, against loops between busy links.
MAX_TREE_CHANGES: Final = 8


#: The tree of publications that are sent to the ordering broker.
ORDERING_TREE: Final = "^"


class TreeHop(NamedTuple):
    hop: str
    tree: str


class PublicationRouter:
    def __init__(
        self,
        rules: RoutingRules,
        tables: RoutingTables,
        next_hops: NextHops,
        composite_router: CompositeRouter,
        read: PublicationCache,
    ) -> None:
        self._rules = rules
        self._tables = tables
        self._next_hops = next_hops
        self._composite_router = composite_router
        self._read = read

    def publish(self, hop: str, envelope: PadresEnvelope, checked: bool) -> int:
        is_remote = hop in self._next_hops.neighbours
        if is_remote and envelope.tree.startswith(COMPOSITE_TREE_PREFIX):
            back = self._composite_router.pass_back(envelope)
            return ACCEPTED if back is None else self._next_hops.emit(*back)
        read = self._read(envelope.text)
        if not is_remote:
            envelope = self._with_tree(hop, envelope, read, checked)
        unordered = not is_remote or envelope.tree == ORDERING_TREE
        if unordered and self._rules.ordered_by and read.class_name not in RESERVED_CLASSES:
            if self._rules.ordered_by != self._next_hops.broker_id:
                return self._to_order(envelope)
            hop, envelope = "", replace(envelope, tree="")  # from here in one order
        publication = Publication(read.class_name, read.attributes, read.time, envelope)
        subscriptions_matching = self._tables.subscriptions_matching(publication)
        outcome = ACCEPTED
        if subscriptions_matching:
            if not envelope.target_brokers or self._next_hops.broker_id in envelope.target_brokers:
                outcome |= self._deliver_locally(publication, envelope, subscriptions_matching)
            for name, copy in self._forward(hop, envelope, subscriptions_matching):
                outcome |= self._next_hops.emit(name, copy)
        return outcome

    def _to_order(self, envelope: PadresEnvelope) -> int:
        """Send to the ordering broker first."""
        order = self._tables.order
        if order is None:
            raise PreconditionFailed(
                f"the ordering broker {self._rules.ordered_by} is not known yet"
            )
        return self._next_hops.emit(order.hop, replace(envelope, tree=ORDERING_TREE))

    def _with_tree(
        self, hop: str, envelope: PadresEnvelope, publication: Publication, checked: bool
    ) -> PadresEnvelope:
        """The publication with its tree."""
        cyclic = self._rules.cycles is not CycleMode.OFF
        if not cyclic and not checked:
            return envelope
        for offer in self._tables.advertisements_matching(publication):
            if offer.hop == hop:
                return replace(envelope, tree=offer.tree) if offer.tree else envelope
        if checked:
            raise NotAdvertised(
                f"{envelope.text} conforms to no advertisement of {hop}: advertise it first"
            )
        return envelope

    def _deliver_locally(
        self,
        publication: Publication,
        envelope: PadresEnvelope,
        subscriptions_matching: list[SubscriptionEntry],
    ) -> int:
        hops: dict[str, None] = {}
        besides: list[tuple[str, PadresEnvelope]] = []
        joins = False
        for entry in subscriptions_matching:
            if entry.composite:
                joins = True
            elif entry.top_k is not None:
                chosen = entry.top_k.take(envelope, publication.attributes)
                besides += ((entry.hop, one) for one in chosen)
            elif entry.trees is None:
                hops[entry.hop] = None
        if joins:
            besides += self._composite_router.match(publication)
        outcome = ACCEPTED
        for name in hops:
            outcome |= self._next_hops.emit(name, envelope)
        for name, one in besides:
            if one is not envelope or name not in hops:
                outcome |= self._next_hops.emit(name, one)
        return outcome

    def _forward(
        self, hop: str, envelope: PadresEnvelope, subscriptions_matching: list[SubscriptionEntry]
    ) -> Iterable[tuple[str, PadresEnvelope]]:
        tree = envelope.tree
        ways: dict[str, list[TreeHop]] = {}  # by destination broker
        for entry in subscriptions_matching:
            if entry.trees is None or entry.hop == hop:
                continue
            if tree in entry.trees or self._rules.cycles is CycleMode.DYNAMIC:
                found = ways.setdefault(entry.origin, [])
                found += (TreeHop(entry.hop, along) for along in entry.trees)
        if self._rules.cycles is not CycleMode.DYNAMIC:
            return [
                (name, envelope)
                for name in {way.hop: 0 for found in ways.values() for way in found}
            ]
        return self._forward_dynamically(envelope, ways)

    def _forward_dynamically(
        self, envelope: PadresEnvelope, ways: dict[str, list[TreeHop]]
    ) -> Iterable[tuple[str, PadresEnvelope]]:
        chosen: dict[TreeHop, list[str]] = {}
        changed = False
        for origin, found in ways.items():
            planned = next((way for way in found if way.tree == envelope.tree), None)
            if planned is None or (
                envelope.target_brokers and origin not in envelope.target_brokers
            ):
                continue  # not along this tree, or reached by another copy
            best = (
                planned
                if envelope.tree_changes >= MAX_TREE_CHANGES
                else self._least_loaded(planned, found)
            )
            changed = changed or best != planned
            chosen.setdefault(best, []).append(origin)
        if not changed and not envelope.target_brokers:
            return [(way.hop, envelope) for way in chosen]
        copies = []
        for way, origins in chosen.items():
            turns = envelope.tree_changes + (way.tree != envelope.tree)
            copy = replace(
                envelope, tree=way.tree, target_brokers=tuple(sorted(origins)), tree_changes=turns
            )
            copies.append((way.hop, copy))
        return copies

    def _least_loaded(self, planned: TreeHop, found: list[TreeHop]) -> TreeHop:
        now = self._next_hops.clock()
        neighbours = self._next_hops.neighbours

        def load_of(way: TreeHop) -> tuple[bool, int]:
            neighbour = neighbours[way.hop]
            return not neighbour.usable, neighbour.traffic.rate(now)

        load = load_of(planned)
        if load == (False, 0):
            return planned
        least = min(found, key=load_of)
        return least if load_of(least) < load else planned
