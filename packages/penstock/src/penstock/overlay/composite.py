"""Routing of composite subscriptions.

The client's broker stores a composite; each part, `B1-M7-s0` and so on, is a subscription of its
own, and matches are joined here. With `rules.split`, a composite is forwarded whole while all its
parts lead to the same neighbour, and joined where the routes divide; matches return by the
composite's id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from penstock.content.composite import CompositeMatcher, ConsumptionPolicy, RetentionLimit
from penstock.content.formatter import format_filter
from penstock.content.messages import CompositeSubscription, Publication
from penstock.content.parser import parse_composite
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.overlay.messages import withdrawal_of
from penstock.overlay.neighbours import Clock
from penstock.overlay.next_hops import NextHops
from penstock.overlay.routing_tables import RoutingTables, SubscriptionEntry
from penstock.overlay.rules import RoutingRules
from penstock.overlay.subscriptions import SubscriptionRouter, allows_repeated_attributes
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope

#: The prefix of a composite's id as the tree of its matches.
COMPOSITE_TREE_PREFIX: Final = "&"


class CompositeEntry:
    __slots__ = ("envelope", "hop", "message", "parts", "passed_to")

    def __init__(self, envelope: PadresEnvelope, message: CompositeSubscription, hop: str) -> None:
        self.envelope = envelope
        self.message = message
        self.hop = hop
        self.parts: list[SubscriptionEntry] = []  #: if it is joined here
        self.passed_to = ""  #: the neighbour that it was forwarded to


class CompositeRouter:
    def __init__(
        self,
        rules: RoutingRules,
        tables: RoutingTables,
        next_hops: NextHops,
        subscription_router: SubscriptionRouter,
        clock: Clock,
    ) -> None:
        self._rules = rules
        self._tables = tables
        self._next_hops = next_hops
        self._subscription_router = subscription_router
        self._composites: CompositeMatcher[str] = CompositeMatcher(strict=rules.strict, clock=clock)
        self.entries: dict[str, CompositeEntry] = {}

    def subscribe(self, hop: str, envelope: PadresEnvelope) -> bool:
        """Returns whether it is new."""
        if envelope.id in self.entries:
            return False
        message = parse_composite(envelope.text, several=allows_repeated_attributes(envelope))
        policy, bound = _options(envelope)
        entry = CompositeEntry(envelope, message, hop)
        next_hop = self._next_hop(entry) if self._rules.split else ""
        self.entries[envelope.id] = entry
        if next_hop:
            self._forward(entry, next_hop)
        else:
            self._join(entry, policy, bound)
        return True

    def unsubscribe(self, hop: str, envelope: PadresEnvelope) -> None:
        entry = self.entries.get(envelope.text)
        if entry is None or entry.hop != hop:
            if hop in self._next_hops.neighbours:
                return
            raise NotFound(f"unknown composite subscription {envelope.text} of {hop}")
        self.remove(entry)

    def remove(self, entry: CompositeEntry) -> None:
        del self.entries[entry.envelope.id]
        self._undo(entry)

    def flush(self) -> None:
        """Discard partial matches."""
        for entry in self.entries.values():
            if not entry.passed_to:
                self._composites.remove(entry.envelope.id)
                self._composites.insert(entry.envelope.id, entry.message, *_options(entry.envelope))

    def _join(
        self, entry: CompositeEntry, policy: ConsumptionPolicy, bound: RetentionLimit
    ) -> None:
        identity = entry.envelope.id
        self._composites.insert(identity, entry.message, policy, bound)
        for number, part in enumerate(entry.message.parts()):
            envelope = replace(
                entry.envelope,
                kind=EnvelopeKind.SUBSCRIBE,
                id=f"{identity}-s{number}",
                text=format_filter(part),
                tree="",
            )
            wanted = SubscriptionEntry(envelope, part, entry.hop, None, identity)
            entry.parts.append(wanted)
            self._subscription_router.add(wanted)

    def _forward(self, entry: CompositeEntry, next_hop: str) -> None:
        entry.passed_to = next_hop
        self._next_hops.emit(next_hop, entry.envelope)

    def _undo(self, entry: CompositeEntry) -> None:
        """Undo joining or forwarding."""
        if entry.passed_to:
            self._next_hops.emit(entry.passed_to, withdrawal_of(entry.envelope))
            entry.passed_to = ""
        else:
            self._composites.remove(entry.envelope.id)
            for wanted in entry.parts:
                self._subscription_router.remove(wanted)
            entry.parts.clear()

    def _next_hop(self, entry: CompositeEntry) -> str:
        """The neighbour that all publications for all parts come from, if there is one."""
        hops = set()
        for part in entry.message.parts():
            offers = {offer.hop for offer in self._tables.advertisements_intersecting(part)}
            if not offers:
                return ""
            hops |= offers
        if len(hops) != 1:
            return ""
        only = hops.pop()
        return only if only in self._next_hops.neighbours and only != entry.hop else ""

    def reconsider(self) -> None:
        """Advertisements changed: routes may divide elsewhere now."""
        if not self._rules.split:
            return
        for entry in list(self.entries.values()):
            next_hop = self._next_hop(entry)
            if next_hop != entry.passed_to:
                self._undo(entry)
                if next_hop:
                    self._forward(entry, next_hop)
                else:
                    self._join(entry, *_options(entry.envelope))

    def match(self, publication: Publication) -> Iterable[tuple[str, PadresEnvelope]]:
        """The matches that a publication completes: hops and envelopes.

        A publication in several matches is sent to a hop once; the most urgent first, then the
        oldest.
        """
        found: dict[tuple[str, str, str], tuple[str, PadresEnvelope]] = {}
        for identity, matches in self._composites.match(publication).items():
            entry = self.entries[identity]
            is_remote = entry.hop in self._next_hops.neighbours
            for match in matches:
                for each in match:
                    envelope: PadresEnvelope = each.payload
                    if is_remote:
                        envelope = replace(
                            envelope, tree=COMPOSITE_TREE_PREFIX + identity, target_brokers=()
                        )
                    found.setdefault((entry.hop, envelope.id, envelope.tree), (entry.hop, envelope))
        return sorted(
            found.values(), key=lambda entry: (entry[1].priority, entry[1].time, entry[1].id)
        )

    def pass_back(self, envelope: PadresEnvelope) -> tuple[str, PadresEnvelope] | None:
        """The next hop of a match that another broker joined."""
        entry = self.entries.get(envelope.tree[len(COMPOSITE_TREE_PREFIX) :])
        if entry is None:
            return None
        if entry.hop not in self._next_hops.neighbours:
            envelope = replace(envelope, tree="")
        return entry.hop, envelope


def _options(envelope: PadresEnvelope) -> tuple[ConsumptionPolicy, RetentionLimit]:
    options = dict(envelope.options)
    try:
        policy = ConsumptionPolicy(options.get("policy", ConsumptionPolicy.REMAIN.value))
        seconds = options.get("seconds")
        bound = RetentionLimit(
            int(options.get("size", 1000)), None if seconds is None else float(seconds)
        )
    except ValueError as error:
        raise PreconditionFailed(f"invalid composite options: {error}") from None
    return policy, bound
