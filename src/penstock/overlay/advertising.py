"""Advertisements: how they spread, and how subscriptions follow them back.

One is flooded to every neighbour but the one it came from; of several copies the first counts, so
its way through the brokers is a tree. Subscriptions that intersect it go back to where it came
from. Undoing it is flooded as well.
"""

from __future__ import annotations

from penstock.content.forwarding import Send, Step
from penstock.content.reading import parse_advertisement
from penstock.core.errors import NotFound
from penstock.overlay.errors import OverlayLoop
from penstock.overlay.exits import Exits
from penstock.overlay.neighbours import Neighbour
from penstock.overlay.rules import Cycles, Rules
from penstock.overlay.subscribing import Subscribing, several
from penstock.overlay.tables import Advertised, Tables
from penstock.overlay.undoing import undoing
from penstock.wire.padres.envelope import UNLIMITED_TTL, Envelope


class Advertising:
    def __init__(self, rules: Rules, tables: Tables, exits: Exits, subscribing: Subscribing):
        self._rules = rules
        self._tables = tables
        self._exits = exits
        self._subscribing = subscribing

    def advertise(self, hop: str, envelope: Envelope) -> bool:
        """Whether it is news."""
        if self._tables.was_undone(envelope.id):
            return False
        known = self._tables.advertised.get(envelope.id)
        if known is not None and not self._moved(known, hop):
            return False
        message = parse_advertisement(envelope.text, several=several(envelope))
        if known is not None:
            self._remove(known)
        tree = "" if self._rules.cycles is Cycles.OFF else envelope.id
        entry = Advertised(envelope, message, hop, tree)
        self._tables.add_advertisement(entry)
        self._subscribing.follow(entry)
        for neighbour in list(self._exits.neighbours.values()):
            if neighbour.name != hop:
                self.tell(neighbour, entry)
        return True

    def _moved(self, known: Advertised, hop: str) -> bool:
        """Whether a copy takes the place of what there is: it came another way, and the way there
        was has broken. Without cycles there is no other way while both are there."""
        if known.hop == hop or self._rules.cycles is not Cycles.OFF:
            return False
        before = self._exits.neighbours.get(known.hop)
        if before is not None and not before.up:
            return True
        raise OverlayLoop(
            f"{self._exits.broker_id} is reached by {known.hop} and by {hop}: brokers that form a "
            "cycle need the setting overlay.cycles, FIXED or DYNAMIC"
        )

    def unadvertise(self, hop: str, envelope: Envelope) -> None:
        entry = self._tables.advertised.get(envelope.text)
        if hop in self._exits.neighbours:
            if entry is None:  # undone already, by another way
                return
        elif entry is None or entry.hop != hop:
            raise NotFound(f"there is no advertisement {envelope.text} of {hop}")
        self.withdraw(entry, except_to=hop)

    def withdraw(self, entry: Advertised, except_to: str = "") -> None:
        self._remove(entry)
        for neighbour in list(self._exits.neighbours.values()):
            if entry in neighbour.bounded:
                del neighbour.bounded[entry]
                self._undo(neighbour, entry)
            elif entry in neighbour.advertisements:
                steps = neighbour.advertisements.remove(entry)
                if neighbour.name == except_to:  # it knows
                    steps = [step for step in steps if isinstance(step, Send)]
                self._take(neighbour, steps)

    def _remove(self, entry: Advertised) -> None:
        self._tables.remove_advertisement(entry)
        self._subscribing.unfollow(entry)

    def tell(self, neighbour: Neighbour, entry: Advertised) -> None:
        """Let a neighbour know, unless what it knows already says as much."""
        if entry.envelope.ttl != UNLIMITED_TTL:
            neighbour.bounded[entry] = None
            self._exits.emit(neighbour.name, entry.envelope)
        else:
            self._take(neighbour, neighbour.advertisements.insert(entry))

    def _take(self, neighbour: Neighbour, steps: list[Step[Advertised]]) -> None:
        for step in steps:
            if isinstance(step, Send):
                self._exits.emit(neighbour.name, step.key.envelope)
            else:
                self._undo(neighbour, step.key)

    def _undo(self, neighbour: Neighbour, entry: Advertised) -> None:
        self._exits.emit(neighbour.name, undoing(entry.envelope))
