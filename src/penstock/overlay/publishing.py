"""Publications: from where they enter to everyone who wants them, once each.

A publication takes the tree of the first advertisement of its sender's that it conforms to, and
follows the subscriptions that came along that tree. A hop gets one copy, whatever it wants it for.

Where trees may be left (`Cycles.DYNAMIC`), the choice is made for each broker that a publication is
still to reach: along its tree while that link is idle, else along the least busy link by which a
subscription of that broker's came. Copies then say which brokers they are for, so that each is
reached by one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from penstock.broker.destinations import TAKEN
from penstock.content.fast import LastRead
from penstock.content.messages import Publication
from penstock.core.errors import PreconditionFailed
from penstock.overlay.classes import RESERVED
from penstock.overlay.errors import NotAdvertised
from penstock.overlay.exits import Exits
from penstock.overlay.rules import Cycles, Rules
from penstock.overlay.tables import Tables, Wanted
from penstock.overlay.together import JOINED, Together
from penstock.wire.padres.envelope import Envelope

#: How often a publication may change trees: it must not run in circles between busy links.
TURNS: Final = 8


#: The tree of a publication on its way to the broker that puts it in order.
TO_ORDER: Final = "^"


class Way(NamedTuple):
    hop: str
    tree: str


class Publishing:
    def __init__(
        self, rules: Rules, tables: Tables, exits: Exits, together: Together, read: LastRead
    ) -> None:
        self._rules = rules
        self._tables = tables
        self._exits = exits
        self._together = together
        self._read = read

    def publish(self, hop: str, envelope: Envelope, checked: bool) -> int:
        away = hop in self._exits.neighbours
        if away and envelope.tree.startswith(JOINED):
            back = self._together.pass_back(envelope)
            return TAKEN if back is None else self._exits.emit(*back)
        read = self._read(envelope.text)
        if not away:
            envelope = self._planted(hop, envelope, read, checked)
        unordered = not away or envelope.tree == TO_ORDER
        if unordered and self._rules.ordered_by and read.class_name not in RESERVED:
            if self._rules.ordered_by != self._exits.broker_id:
                return self._to_order(envelope)
            hop, envelope = "", replace(envelope, tree="")  # from here, to all alike
        publication = Publication(read.class_name, read.attributes, read.time, envelope)
        wanting = self._tables.wanting(publication)
        outcome = TAKEN
        if wanting:
            if not envelope.only or self._exits.broker_id in envelope.only:
                outcome |= self._here(publication, envelope, wanting)
            for name, copy in self._beyond(hop, envelope, wanting):
                outcome |= self._exits.emit(name, copy)
        return outcome

    def _to_order(self, envelope: Envelope) -> int:
        """To the broker that says which comes first, before anybody gets it."""
        order = self._tables.order
        if order is None:
            raise PreconditionFailed(
                f"{self._rules.ordered_by}, which puts publications in order, is not known yet"
            )
        return self._exits.emit(order.hop, replace(envelope, tree=TO_ORDER))

    def _planted(
        self, hop: str, envelope: Envelope, publication: Publication, checked: bool
    ) -> Envelope:
        """With the tree it is to follow."""
        cyclic = self._rules.cycles is not Cycles.OFF
        if not cyclic and not checked:
            return envelope
        for offer in self._tables.announcing(publication):
            if offer.hop == hop:
                return replace(envelope, tree=offer.tree) if offer.tree else envelope
        if checked:
            raise NotAdvertised(
                f"{envelope.text} conforms to no advertisement of {hop}: advertise it first"
            )
        return envelope

    def _here(self, publication: Publication, envelope: Envelope, wanting: list[Wanted]) -> int:
        """To the hops of this broker."""
        given: dict[str, None] = {}
        besides: list[tuple[str, Envelope]] = []
        joins = False
        for entry in wanting:
            if entry.composite:
                joins = True
            elif entry.best is not None:
                chosen = entry.best.take(envelope, publication.attributes)
                besides += ((entry.hop, one) for one in chosen)
            elif entry.trees is None:
                given[entry.hop] = None
        if joins:
            besides += self._together.match(publication)
        outcome = TAKEN
        for name in given:
            outcome |= self._exits.emit(name, envelope)
        for name, one in besides:
            if one is not envelope or name not in given:
                outcome |= self._exits.emit(name, one)
        return outcome

    def _beyond(
        self, hop: str, envelope: Envelope, wanting: list[Wanted]
    ) -> Iterable[tuple[str, Envelope]]:
        """To neighbours, but not back."""
        tree = envelope.tree
        ways: dict[str, list[Way]] = {}  # by the broker that is to be reached
        for entry in wanting:
            if entry.trees is None or entry.hop == hop:
                continue
            if tree in entry.trees or self._rules.cycles is Cycles.DYNAMIC:
                found = ways.setdefault(entry.origin, [])
                found += (Way(entry.hop, along) for along in entry.trees)
        if self._rules.cycles is not Cycles.DYNAMIC:
            return [
                (name, envelope)
                for name in {way.hop: 0 for found in ways.values() for way in found}
            ]
        return self._spread(envelope, ways)

    def _spread(
        self, envelope: Envelope, ways: dict[str, list[Way]]
    ) -> Iterable[tuple[str, Envelope]]:
        chosen: dict[Way, list[str]] = {}
        turned = False
        for origin, found in ways.items():
            planned = next((way for way in found if way.tree == envelope.tree), None)
            if planned is None or (envelope.only and origin not in envelope.only):
                continue  # not reached along this tree, or by another copy
            best = planned if envelope.turns >= TURNS else self._best(planned, found)
            turned = turned or best != planned
            chosen.setdefault(best, []).append(origin)
        if not turned and not envelope.only:
            return [(way.hop, envelope) for way in chosen]
        copies = []
        for way, origins in chosen.items():
            turns = envelope.turns + (way.tree != envelope.tree)
            copy = replace(envelope, tree=way.tree, only=tuple(sorted(origins)), turns=turns)
            copies.append((way.hop, copy))
        return copies

    def _best(self, planned: Way, found: list[Way]) -> Way:
        now = self._exits.clock()
        neighbours = self._exits.neighbours

        def burden(way: Way) -> tuple[bool, int]:
            neighbour = neighbours[way.hop]
            return not neighbour.usable, neighbour.traffic.rate(now)

        load = burden(planned)
        if load == (False, 0):
            return planned
        least = min(found, key=burden)
        return least if burden(least) < load else planned
