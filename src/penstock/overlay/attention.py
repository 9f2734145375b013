"""Hops of this broker that are told who subscribes to what they advertise.

To such a hop subscriptions go as they go to a neighbour: one by one as they come, the parts of
composites too, and undone when they go. A subscription that comes several ways is told once.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.overlay.exits import Exits
from penstock.overlay.tables import Advertised, Tables, Wanted
from penstock.overlay.undoing import undoing


class Attention:
    def __init__(self, tables: Tables, exits: Exits) -> None:
        self._tables = tables
        self._exits = exits

    def met(self, entry: Wanted, offer: Advertised) -> None:
        """A subscription intersects an advertisement of somebody's here."""
        told = self._exits.attentive.get(offer.hop)
        if told is None or entry.hop == offer.hop:
            return
        ways = told.setdefault(entry.id, set())
        news = not ways
        ways.add(entry.hop)
        if news:
            self._exits.emit(offer.hop, replace(entry.envelope, tree=""))

    def ended(self, entry: Wanted) -> None:
        """A subscription is no more."""
        for name in self._exits.attentive:
            self._forget(name, entry)

    def no_longer_offered(self, gone: Advertised) -> None:
        """An advertisement is no more; another of the same hop's may still be met."""
        if gone.hop not in self._exits.attentive:
            return
        for entry in self._tables.asking(gone.message):
            others = self._tables.offering(entry.message)
            if not any(offer.hop == gone.hop for offer in others):
                self._forget(gone.hop, entry)

    def _forget(self, name: str, entry: Wanted) -> None:
        told = self._exits.attentive[name]
        ways = told.get(entry.id, set())
        if entry.hop not in ways:
            return
        ways.remove(entry.hop)
        if not ways:
            del told[entry.id]
            self._exits.emit(name, undoing(entry.envelope, ""))
