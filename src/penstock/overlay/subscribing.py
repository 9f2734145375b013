"""Subscriptions: how they go to where publications come from.

One goes to the neighbours that advertisements came from which it intersects, along the tree of
each, and never back to where it came from. What others cover need not go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.content.forwarding import Send, Step
from penstock.content.messages import Subscription
from penstock.content.reading import parse_subscription
from penstock.core.errors import NotFound
from penstock.overlay.attention import Attention
from penstock.overlay.best import Best
from penstock.overlay.exits import Exits
from penstock.overlay.outlet import subscriptions_outlet
from penstock.overlay.rules import Cycles, Rules
from penstock.overlay.tables import ORDER, Advertised, Tables, Wanted
from penstock.overlay.undoing import undoing
from penstock.wire.padres.envelope import Envelope

_SEVERAL: Final = ("several", "true")


def several(envelope: Envelope) -> bool:
    """Whether an attribute may have more than one predicate."""
    return _SEVERAL in envelope.options


class Subscribing:
    def __init__(self, rules: Rules, tables: Tables, exits: Exits) -> None:
        self._rules = rules
        self._tables = tables
        self._exits = exits
        self._attention = Attention(tables, exits)

    def attend(self, name: str) -> None:
        """A hop of this broker wants to be told who subscribes to what it advertises."""
        self._exits.attentive.setdefault(name, {})
        for offer in list(self._tables.advertised.values()):
            if offer.hop == name:
                self.follow(offer)

    # Come and go.

    def subscribe(self, hop: str, envelope: Envelope) -> bool:
        """Whether it is news."""
        known = self._tables.wanted.get((envelope.id, hop))
        if known is not None:
            return self._also(known, envelope.tree)
        message = parse_subscription(envelope.text, several=several(envelope))
        trees = {envelope.tree} if hop in self._exits.neighbours else None
        entry = Wanted(envelope, message, hop, trees)
        if trees is None:
            entry.best = Best.of(envelope)
        self.add(entry)
        return True

    def _also(self, entry: Wanted, tree: str) -> bool:
        """A subscription that counts along one tree more."""
        if entry.trees is None or tree in entry.trees:
            return False
        entry.trees.add(tree)
        self._along(entry, tree)
        return True

    def add(self, entry: Wanted) -> None:
        self._tables.add_subscription(entry)
        if entry.trees is not None and self._rules.cycles is not Cycles.OFF:
            for tree in list(entry.trees):
                self._along(entry, tree)
            return
        for offer in self._tables.offering(entry.message):
            self._toward(entry, offer)

    def _along(self, entry: Wanted, tree: str) -> None:
        """On towards the root of a tree."""
        offer = self._tables.advertised.get(tree)
        if offer is not None:
            self._toward(entry, offer)

    def unsubscribe(self, hop: str, envelope: Envelope) -> None:
        entry = self._tables.wanted.get((envelope.text, hop))
        if hop in self._exits.neighbours:
            if entry is not None:
                self.leave(entry, envelope.tree)
        elif entry is None or entry.composite:
            raise NotFound(f"there is no subscription {envelope.text} of {hop}")
        else:
            self.remove(entry)

    def leave(self, entry: Wanted, tree: str) -> None:
        """A neighbour's subscription counts along one tree less."""
        assert entry.trees is not None, "it is a neighbour's"
        entry.trees.discard(tree)
        if not entry.trees:
            self.remove(entry)
            return
        for name, along in list(entry.outlets):
            if along == tree:
                self._withdraw(entry, name, tree)

    def remove(self, entry: Wanted) -> None:
        self._tables.remove_subscription(entry)
        for name, tree in list(entry.outlets):
            self._withdraw(entry, name, tree)
        self._attention.ended(entry)

    # As advertisements come and go.

    def follow(self, offer: Advertised) -> None:
        """What an advertisement intersects goes to where it came from."""
        if offer.hop not in self._exits.neighbours and offer.hop not in self._exits.attentive:
            return
        for entry in self._met(offer):
            if entry.trees is None or offer.tree in entry.trees:
                self._toward(entry, offer)

    def unfollow(self, offer: Advertised) -> None:
        """What went to a neighbour for an advertisement that has gone, and for no other there."""
        neighbour = self._exits.neighbours.get(offer.hop)
        if neighbour is None:
            self._attention.no_longer_offered(offer)
            return
        outlet = neighbour.outlets.get(offer.tree)
        if outlet is None:
            return
        told = set(outlet.told())
        if offer.tree:  # a tree of its own: all that went along it
            gone = list(outlet)
        else:
            gone = [
                one
                for one in self._met(offer)
                if one in outlet and not self._needed(one.message, offer)
            ]
        # What was not told first: else it would be uncovered, told and undone.
        for entry in sorted(gone, key=told.__contains__):
            self._withdraw(entry, offer.hop, offer.tree)

    def _met(self, offer: Advertised) -> list[Wanted]:
        """What goes where an advertisement came from."""
        if offer.message.class_name == ORDER:
            return list(self._tables.wanted.values())
        return self._tables.asking(offer.message)

    def _needed(self, message: Subscription, gone: Advertised) -> bool:
        return any(offer.hop == gone.hop for offer in self._tables.offering(message))

    # Telling neighbours.

    def _toward(self, entry: Wanted, offer: Advertised) -> None:
        neighbour = self._exits.neighbours.get(offer.hop)
        if neighbour is None:
            self._attention.met(entry, offer)
            return
        if offer.hop == entry.hop:
            return
        outlet = neighbour.outlets.get(offer.tree)
        if outlet is None:
            outlet = subscriptions_outlet(self._rules.subscriptions, self._rules.strict)
            neighbour.outlets[offer.tree] = outlet
        if entry not in outlet:
            entry.outlets.add((offer.hop, offer.tree))
            self._take(offer.hop, offer.tree, outlet.insert(entry))

    def _withdraw(self, entry: Wanted, name: str, tree: str) -> None:
        entry.outlets.discard((name, tree))
        neighbour = self._exits.neighbours.get(name)
        if neighbour is None:
            return
        outlet = neighbour.outlets[tree]
        self._take(name, tree, outlet.remove(entry))
        if not outlet:
            del neighbour.outlets[tree]

    def _take(self, name: str, tree: str, steps: list[Step[Wanted]]) -> None:
        for step in steps:
            if isinstance(step, Send):
                self._exits.emit(name, copy_along(step.key, tree))
            else:
                self._exits.emit(name, undoing(step.key.envelope, tree))


def copy_along(entry: Wanted, tree: str) -> Envelope:
    """A subscription as a neighbour is told it."""
    envelope = entry.envelope
    return envelope if envelope.tree == tree else replace(envelope, tree=tree)
