"""Routing of subscriptions: along matching advertisements, towards their publishers.

A subscription is sent to the neighbours of matching advertisements, along the tree of each, and
never back to its source. Covered ones need not be sent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.content.covering import ForwardFilter, ForwardingStep
from penstock.content.messages import Subscription
from penstock.content.parser import parse_subscription
from penstock.core.errors import NotFound
from penstock.overlay.messages import withdrawal_of
from penstock.overlay.neighbours import propagated_subscriptions
from penstock.overlay.next_hops import NextHops
from penstock.overlay.routing_tables import (
    ORDER_CLASS,
    AdvertisementEntry,
    RoutingTables,
    SubscriptionEntry,
)
from penstock.overlay.rules import CycleMode, RoutingRules
from penstock.overlay.top_k import TopK
from penstock.wire.padres.envelope import PadresEnvelope

_REPEATED_ATTRIBUTES: Final = ("several", "true")


def allows_repeated_attributes(envelope: PadresEnvelope) -> bool:
    return _REPEATED_ATTRIBUTES in envelope.options


class SubscriptionRouter:
    def __init__(self, rules: RoutingRules, tables: RoutingTables, next_hops: NextHops) -> None:
        self._rules = rules
        self._tables = tables
        self._next_hops = next_hops
        self._notifier = SubscriptionNotifier(tables, next_hops)

    def notify_subscriptions(self, name: str) -> None:
        """Notify a local hop of subscriptions that match its advertisements."""
        self._next_hops.subscription_observers.setdefault(name, {})
        for offer in list(self._tables.advertisements.values()):
            if offer.hop == name:
                self.follow(offer)

    def subscribe(self, hop: str, envelope: PadresEnvelope) -> bool:
        """Returns whether it is new."""
        known = self._tables.subscriptions.get((envelope.id, hop))
        if known is not None:
            return self._add_tree(known, envelope.tree)
        message = parse_subscription(envelope.text, several=allows_repeated_attributes(envelope))
        trees = {envelope.tree} if hop in self._next_hops.neighbours else None
        entry = SubscriptionEntry(envelope, message, hop, trees)
        if trees is None:
            entry.top_k = TopK.of(envelope)
        self.add(entry)
        return True

    def _add_tree(self, entry: SubscriptionEntry, tree: str) -> bool:
        """Add a tree to a subscription."""
        if entry.trees is None or tree in entry.trees:
            return False
        entry.trees.add(tree)
        self._forward_along(entry, tree)
        return True

    def add(self, entry: SubscriptionEntry) -> None:
        self._tables.add_subscription(entry)
        if entry.trees is not None and self._rules.cycles is not CycleMode.OFF:
            for tree in list(entry.trees):
                self._forward_along(entry, tree)
            return
        for offer in self._tables.advertisements_intersecting(entry.message):
            self._forward_toward(entry, offer)

    def _forward_along(self, entry: SubscriptionEntry, tree: str) -> None:
        """Forward towards the root of a tree."""
        offer = self._tables.advertisements.get(tree)
        if offer is not None:
            self._forward_toward(entry, offer)

    def unsubscribe(self, hop: str, envelope: PadresEnvelope) -> None:
        entry = self._tables.subscriptions.get((envelope.text, hop))
        if hop in self._next_hops.neighbours:
            if entry is not None:
                self.remove_tree(entry, envelope.tree)
        elif entry is None or entry.composite:
            raise NotFound(f"unknown subscription {envelope.text} of {hop}")
        else:
            self.remove(entry)

    def remove_tree(self, entry: SubscriptionEntry, tree: str) -> None:
        """Remove a tree from a neighbour's subscription."""
        assert entry.trees is not None, "it is of a neighbour"
        entry.trees.discard(tree)
        if not entry.trees:
            self.remove(entry)
            return
        for name, along in list(entry.propagated_filters):
            if along == tree:
                self._withdraw(entry, name, tree)

    def remove(self, entry: SubscriptionEntry) -> None:
        self._tables.remove_subscription(entry)
        for name, tree in list(entry.propagated_filters):
            self._withdraw(entry, name, tree)
        self._notifier.on_removed(entry)

    def follow(self, offer: AdvertisementEntry) -> None:
        """Send matching subscriptions to the source of a new advertisement."""
        if (
            offer.hop not in self._next_hops.neighbours
            and offer.hop not in self._next_hops.subscription_observers
        ):
            return
        for entry in self._intersecting(offer):
            if entry.trees is None or offer.tree in entry.trees:
                self._forward_toward(entry, offer)

    def unfollow(self, offer: AdvertisementEntry) -> None:
        """Withdraw subscriptions that were sent for a removed advertisement only."""
        neighbour = self._next_hops.neighbours.get(offer.hop)
        if neighbour is None:
            self._notifier.on_advertisement_removed(offer)
            return
        propagated = neighbour.propagated_filters.get(offer.tree)
        if propagated is None:
            return
        sent = set(propagated.sent())
        if offer.tree:  # its own tree: all subscriptions along it
            gone = list(propagated)
        else:
            gone = [
                one
                for one in self._intersecting(offer)
                if one in propagated and not self._needed(one.message, offer)
            ]
        # Unsent ones first: otherwise they would be uncovered, sent and withdrawn.
        for entry in sorted(gone, key=sent.__contains__):
            self._withdraw(entry, offer.hop, offer.tree)

    def _intersecting(self, offer: AdvertisementEntry) -> list[SubscriptionEntry]:
        """Subscriptions for the source of an advertisement."""
        if offer.message.class_name == ORDER_CLASS:
            return list(self._tables.subscriptions.values())
        return self._tables.subscriptions_intersecting(offer.message)

    def _needed(self, message: Subscription, gone: AdvertisementEntry) -> bool:
        return any(
            offer.hop == gone.hop for offer in self._tables.advertisements_intersecting(message)
        )

    def _forward_toward(self, entry: SubscriptionEntry, offer: AdvertisementEntry) -> None:
        neighbour = self._next_hops.neighbours.get(offer.hop)
        if neighbour is None:
            self._notifier.on_match(entry, offer)
            return
        if offer.hop == entry.hop:
            return
        propagated = neighbour.propagated_filters.get(offer.tree)
        if propagated is None:
            propagated = propagated_subscriptions(self._rules.subscriptions, self._rules.strict)
            neighbour.propagated_filters[offer.tree] = propagated
        if entry not in propagated:
            entry.propagated_filters.add((offer.hop, offer.tree))
            self._apply(offer.hop, offer.tree, propagated.insert(entry))

    def _withdraw(self, entry: SubscriptionEntry, name: str, tree: str) -> None:
        entry.propagated_filters.discard((name, tree))
        neighbour = self._next_hops.neighbours.get(name)
        if neighbour is None:
            return
        propagated = neighbour.propagated_filters[tree]
        self._apply(name, tree, propagated.remove(entry))
        if not propagated:
            del neighbour.propagated_filters[tree]

    def _apply(self, name: str, tree: str, steps: list[ForwardingStep[SubscriptionEntry]]) -> None:
        for step in steps:
            if isinstance(step, ForwardFilter):
                self._next_hops.emit(name, copy_for_tree(step.key, tree))
            else:
                self._next_hops.emit(name, withdrawal_of(step.key.envelope, tree))


def copy_for_tree(entry: SubscriptionEntry, tree: str) -> PadresEnvelope:
    """The envelope of a subscription along a tree."""
    envelope = entry.envelope
    return envelope if envelope.tree == tree else replace(envelope, tree=tree)


class SubscriptionNotifier:
    """Delivers subscriptions that match a local hop's advertisements to that hop.

    Parts of composites, too, and withdrawals. A subscription that arrives on several hops is
    delivered once.
    """

    def __init__(self, tables: RoutingTables, next_hops: NextHops) -> None:
        self._tables = tables
        self._next_hops = next_hops

    def on_match(self, entry: SubscriptionEntry, offer: AdvertisementEntry) -> None:
        sent = self._next_hops.subscription_observers.get(offer.hop)
        if sent is None or entry.hop == offer.hop:
            return
        hops = sent.setdefault(entry.id, set())
        is_new = not hops
        hops.add(entry.hop)
        if is_new:
            self._next_hops.emit(offer.hop, replace(entry.envelope, tree=""))

    def on_removed(self, entry: SubscriptionEntry) -> None:
        for name in self._next_hops.subscription_observers:
            self._forget(name, entry)

    def on_advertisement_removed(self, gone: AdvertisementEntry) -> None:
        """Another advertisement of the same hop may still match."""
        if gone.hop not in self._next_hops.subscription_observers:
            return
        for entry in self._tables.subscriptions_intersecting(gone.message):
            others = self._tables.advertisements_intersecting(entry.message)
            if not any(offer.hop == gone.hop for offer in others):
                self._forget(gone.hop, entry)

    def _forget(self, name: str, entry: SubscriptionEntry) -> None:
        sent = self._next_hops.subscription_observers[name]
        hops = sent.get(entry.id, set())
        if entry.hop not in hops:
            return
        hops.remove(entry.hop)
        if not hops:
            del sent[entry.id]
            self._next_hops.emit(name, withdrawal_of(entry.envelope, ""))
