"""Routing of advertisements.

An advertisement is flooded to every neighbour except its source; the first copy counts, so its path
through the brokers is a tree. Matching subscriptions are sent back along it. Withdrawals are
flooded, too.
"""

from __future__ import annotations

from penstock.content.covering import ForwardFilter, ForwardingStep
from penstock.content.parser import parse_advertisement
from penstock.core.errors import NotFound, OverlayLoop
from penstock.overlay.messages import withdrawal_of
from penstock.overlay.neighbours import Neighbour
from penstock.overlay.next_hops import NextHops
from penstock.overlay.routing_tables import AdvertisementEntry, RoutingTables
from penstock.overlay.rules import CycleMode, RoutingRules
from penstock.overlay.subscriptions import SubscriptionRouter, allows_repeated_attributes
from penstock.wire.padres.envelope import UNLIMITED_TTL, PadresEnvelope


class AdvertisementRouter:
    def __init__(
        self,
        rules: RoutingRules,
        tables: RoutingTables,
        next_hops: NextHops,
        subscription_router: SubscriptionRouter,
    ):
        self._rules = rules
        self._tables = tables
        self._next_hops = next_hops
        self._subscription_router = subscription_router

    def advertise(self, hop: str, envelope: PadresEnvelope) -> bool:
        """Returns whether it is new."""
        if self._tables.was_withdrawn(envelope.id):
            return False
        known = self._tables.advertisements.get(envelope.id)
        if known is not None and not self._replaces(known, hop):
            return False
        message = parse_advertisement(envelope.text, several=allows_repeated_attributes(envelope))
        if known is not None:
            self._remove(known)
        tree = "" if self._rules.cycles is CycleMode.OFF else envelope.id
        entry = AdvertisementEntry(envelope, message, hop, tree)
        self._tables.add_advertisement(entry)
        self._subscription_router.follow(entry)
        for neighbour in list(self._next_hops.neighbours.values()):
            if neighbour.name != hop:
                self.send_to_neighbour(neighbour, entry)
        return True

    def _replaces(self, known: AdvertisementEntry, hop: str) -> bool:
        """Whether a copy replaces the known one: it came another way, and the previous link is
        down. Without cycles there is no other way while both links are up."""
        if known.hop == hop or self._rules.cycles is not CycleMode.OFF:
            return False
        before = self._next_hops.neighbours.get(known.hop)
        if before is not None and not before.up:
            return True
        raise OverlayLoop(
            f"{self._next_hops.broker_id} is reached through {known.hop} and {hop}: brokers that "
            "form a cycle need overlay.cycles FIXED or DYNAMIC"
        )

    def unadvertise(self, hop: str, envelope: PadresEnvelope) -> None:
        entry = self._tables.advertisements.get(envelope.text)
        if hop in self._next_hops.neighbours:
            if entry is None:  # already withdrawn on another way
                return
        elif entry is None or entry.hop != hop:
            raise NotFound(f"unknown advertisement {envelope.text} of {hop}")
        self.withdraw(entry, except_to=hop)

    def withdraw(self, entry: AdvertisementEntry, except_to: str = "") -> None:
        self._remove(entry)
        for neighbour in list(self._next_hops.neighbours.values()):
            if entry in neighbour.bounded:
                del neighbour.bounded[entry]
                self._withdraw_from(neighbour, entry)
            elif entry in neighbour.advertisements:
                steps = neighbour.advertisements.remove(entry)
                if neighbour.name == except_to:  # it sent the withdrawal
                    steps = [step for step in steps if isinstance(step, ForwardFilter)]
                self._apply(neighbour, steps)

    def _remove(self, entry: AdvertisementEntry) -> None:
        self._tables.remove_advertisement(entry)
        self._subscription_router.unfollow(entry)

    def send_to_neighbour(self, neighbour: Neighbour, entry: AdvertisementEntry) -> None:
        """Send an advertisement, unless one that the neighbour has covers it."""
        if entry.envelope.ttl != UNLIMITED_TTL:
            neighbour.bounded[entry] = None
            self._next_hops.emit(neighbour.name, entry.envelope)
        else:
            self._apply(neighbour, neighbour.advertisements.insert(entry))

    def _apply(self, neighbour: Neighbour, steps: list[ForwardingStep[AdvertisementEntry]]) -> None:
        for step in steps:
            if isinstance(step, ForwardFilter):
                self._next_hops.emit(neighbour.name, step.key.envelope)
            else:
                self._withdraw_from(neighbour, step.key)

    def _withdraw_from(self, neighbour: Neighbour, entry: AdvertisementEntry) -> None:
        self._next_hops.emit(neighbour.name, withdrawal_of(entry.envelope))
