"""Composite subscriptions across brokers.

A composite is kept whole by the broker of its client; each part, `B1-M7-s0` and so on, travels as a
subscription of its own, and publications that satisfy parts are joined here. Where composites are
split (`rules.split`), one goes on whole while all its parts lead to the same neighbour, and is
joined where the ways divide; what it joined then travels back by the composite's name.
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

#: In front of a composite's id: the tree of what was joined for it.
COMPOSITE_TREE_PREFIX: Final = "&"


class CompositeEntry:
    """A composite subscription of a hop's."""

    __slots__ = ("envelope", "hop", "message", "parts", "passed_to")

    def __init__(self, envelope: PadresEnvelope, message: CompositeSubscription, hop: str) -> None:
        self.envelope = envelope
        self.message = message
        self.hop = hop
        self.parts: list[SubscriptionEntry] = []  #: here, if it is joined here
        self.passed_to = ""  #: the neighbour that joins it, or passes it on


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
        """Whether it is news."""
        if envelope.id in self.entries:
            return False
        message = parse_composite(envelope.text, several=allows_repeated_attributes(envelope))
        policy, bound = _options(envelope)
        one = CompositeEntry(envelope, message, hop)
        onward = self._onward(one) if self._rules.split else ""
        self.entries[envelope.id] = one
        if onward:
            self._pass(one, onward)
        else:
            self._join(one, policy, bound)
        return True

    def unsubscribe(self, hop: str, envelope: PadresEnvelope) -> None:
        one = self.entries.get(envelope.text)
        if one is None or one.hop != hop:
            if hop in self._next_hops.neighbours:
                return
            raise NotFound(f"there is no composite subscription {envelope.text} of {hop}")
        self.remove(one)

    def remove(self, one: CompositeEntry) -> None:
        del self.entries[one.envelope.id]
        self._part(one)

    def flush(self) -> None:
        """Forget what waits for partners."""
        for one in self.entries.values():
            if not one.passed_to:
                self._composites.remove(one.envelope.id)
                self._composites.insert(one.envelope.id, one.message, *_options(one.envelope))

    # Joining here, or further on.

    def _join(self, one: CompositeEntry, policy: ConsumptionPolicy, bound: RetentionLimit) -> None:
        identity = one.envelope.id
        self._composites.insert(identity, one.message, policy, bound)
        for number, part in enumerate(one.message.parts()):
            envelope = replace(
                one.envelope,
                kind=EnvelopeKind.SUBSCRIBE,
                id=f"{identity}-s{number}",
                text=format_filter(part),
                tree="",
            )
            wanted = SubscriptionEntry(envelope, part, one.hop, None, identity)
            one.parts.append(wanted)
            self._subscription_router.add(wanted)

    def _pass(self, one: CompositeEntry, onward: str) -> None:
        one.passed_to = onward
        self._next_hops.emit(onward, one.envelope)

    def _part(self, one: CompositeEntry) -> None:
        """Neither here nor further on."""
        if one.passed_to:
            self._next_hops.emit(one.passed_to, withdrawal_of(one.envelope))
            one.passed_to = ""
        else:
            self._composites.remove(one.envelope.id)
            for wanted in one.parts:
                self._subscription_router.remove(wanted)
            one.parts.clear()

    def _onward(self, one: CompositeEntry) -> str:
        """The neighbour that all publications for all parts come from, if there is one."""
        hops = set()
        for part in one.message.parts():
            offers = {offer.hop for offer in self._tables.advertisements_intersecting(part)}
            if not offers:
                return ""
            hops |= offers
        if len(hops) != 1:
            return ""
        only = hops.pop()
        return only if only in self._next_hops.neighbours and only != one.hop else ""

    def reconsider(self) -> None:
        """Advertisements have come or gone: ways may divide elsewhere now."""
        if not self._rules.split:
            return
        for one in list(self.entries.values()):
            onward = self._onward(one)
            if onward != one.passed_to:
                self._part(one)
                if onward:
                    self._pass(one, onward)
                else:
                    self._join(one, *_options(one.envelope))

    # Publications.

    def match(self, publication: Publication) -> Iterable[tuple[str, PadresEnvelope]]:
        """What a publication completes: hops, and what each is to have, in order.

        A publication that is part of several matches for a hop goes there once; the more urgent
        first, and of equals the older.
        """
        given: dict[tuple[str, str, str], tuple[str, PadresEnvelope]] = {}
        for identity, matches in self._composites.match(publication).items():
            one = self.entries[identity]
            away = one.hop in self._next_hops.neighbours
            for match in matches:
                for each in match:
                    envelope: PadresEnvelope = each.payload
                    if away:
                        envelope = replace(
                            envelope, tree=COMPOSITE_TREE_PREFIX + identity, target_brokers=()
                        )
                    given.setdefault((one.hop, envelope.id, envelope.tree), (one.hop, envelope))
        return sorted(given.values(), key=lambda one: (one[1].priority, one[1].time, one[1].id))

    def pass_back(self, envelope: PadresEnvelope) -> tuple[str, PadresEnvelope] | None:
        """Where something that was joined further on goes next."""
        one = self.entries.get(envelope.tree[len(COMPOSITE_TREE_PREFIX) :])
        if one is None:
            return None
        if one.hop not in self._next_hops.neighbours:
            envelope = replace(envelope, tree="")
        return one.hop, envelope


def _options(envelope: PadresEnvelope) -> tuple[ConsumptionPolicy, RetentionLimit]:
    options = dict(envelope.options)
    try:
        policy = ConsumptionPolicy(options.get("policy", ConsumptionPolicy.REMAIN.value))
        seconds = options.get("seconds")
        bound = RetentionLimit(
            int(options.get("size", 1000)), None if seconds is None else float(seconds)
        )
    except ValueError as error:
        raise PreconditionFailed(f"a composite cannot be kept so: {error}") from None
    return policy, bound
