"""The router of one broker: messages in from hops, messages out to hops.

It has no sockets, files or clock of its own, so it also runs in simulations and tests.
`advertisements.py`, `subscriptions.py`, `composite.py` and `publications.py` route each kind of
message; this module adds and removes hops, assigns message ids, and updates neighbours after a
reconnect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic, perf_counter, time
from typing import Protocol

from penstock.broker.content_router import Hop, RouterReceipt
from penstock.content.parser import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, PublicationCache
from penstock.core.errors import NotAllowed, ResourceExhausted
from penstock.overlay.advertisements import AdvertisementRouter
from penstock.overlay.composite import CompositeRouter
from penstock.overlay.messages import WITHDRAWN_KINDS, withdrawal_of
from penstock.overlay.neighbours import (
    Clock,
    Neighbour,
    NeighbourChannel,
    propagated_advertisements,
)
from penstock.overlay.next_hops import NextHops
from penstock.overlay.publications import PublicationRouter
from penstock.overlay.routing_tables import RoutingTables
from penstock.overlay.rules import RoutingRules
from penstock.overlay.subscriptions import SubscriptionRouter, copy_for_tree
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope


class RouterStore(Protocol):
    """Stores registrations of durable hops."""

    def add(self, hop: str, envelope: PadresEnvelope) -> None: ...

    def remove(self, hop: str, envelope: PadresEnvelope) -> None:
        """Remove the registration that this message withdraws."""

    def next_number(self) -> int:
        """A number that was never used."""


class OverlayRouter:
    def __init__(
        self,
        broker_id: str,
        rules: RoutingRules | None = None,
        *,
        store: RouterStore | None = None,
        clock: Clock = monotonic,
        calendar: Callable[[], float] = time,
        most: int = 0,
    ) -> None:
        """`most` limits the registrations of a client; 0 for no limit."""
        self.rules = rules or RoutingRules()
        self.tables = RoutingTables(self.rules.strict)
        self.next_hops = NextHops(broker_id, clock)
        self._calendar = calendar
        self._store = store
        self._numbers = _count()
        self._registrations = ClientRegistrations(most)
        subscription_router = SubscriptionRouter(self.rules, self.tables, self.next_hops)
        self._subscription_router = subscription_router
        self._advertisement_router = AdvertisementRouter(
            self.rules, self.tables, self.next_hops, subscription_router
        )
        self.composite_router = CompositeRouter(
            self.rules, self.tables, self.next_hops, subscription_router, clock
        )
        #: Parses publications; the last one is cached.
        self.read = PublicationCache(lambda: datetime.fromtimestamp(calendar(), UTC))
        self._publication_router = PublicationRouter(
            self.rules, self.tables, self.next_hops, self.composite_router, self.read
        )
        self.received = dict.fromkeys(EnvelopeKind, 0)  #: messages by kind
        self.match_seconds = 0.0  #: total time of routing publications
        self.trace_all = False
        self._deferred: deque[Callable[[], None]] = deque()
        self._busy = False

    @property
    def broker_id(self) -> str:
        return self.next_hops.broker_id

    @property
    def hops(self) -> dict[str, Hop[PadresEnvelope]]:
        return self.next_hops.hops

    @property
    def neighbours(self) -> dict[str, Neighbour]:
        return self.next_hops.neighbours

    def attach(self, hop: Hop[PadresEnvelope], notify_subscriptions: bool = False) -> None:
        self.next_hops.hops[hop.name] = hop
        if notify_subscriptions:
            self._subscription_router.notify_subscriptions(hop.name)

    def detach(self, name: str) -> None:
        hop = self.next_hops.hops.get(name)
        if hop is None:
            return
        for envelope in list(self.registrations_of(name)):
            self._apply(name, withdrawal_of(envelope), hop.durable)
        del self.next_hops.hops[name]
        self.next_hops.subscription_observers.pop(name, None)
        self._registrations.remove_hop(name)
        self.next_hops.neighbours.pop(name, None)

    def registrations_of(self, name: str) -> Iterator[PadresEnvelope]:
        """Registrations of a hop; a subscription once per tree."""
        for entry in self.tables.subscriptions.values():
            if entry.hop == name and not entry.composite:
                for tree in sorted(entry.trees or {""}):
                    yield copy_for_tree(entry, tree)
        for joined in self.composite_router.entries.values():
            if joined.hop == name:
                yield joined.envelope
        for offer in self.tables.advertisements.values():
            if offer.hop == name:
                yield offer.envelope

    def join(self, name: str, line: NeighbourChannel) -> Neighbour:
        """Add a neighbour; `propagate_all` sends it everything when its link is up."""
        if name == self.broker_id:
            raise NotAllowed(f"broker {name} cannot be its own neighbour")
        known = self.next_hops.neighbours.get(name)
        if known is not None:
            known.line = line
            return known
        propagated = propagated_advertisements(self.rules.advertisements, self.rules.strict)
        neighbour = self.next_hops.neighbours[name] = Neighbour(name, line, propagated)
        self.attach(neighbour)
        for offer in list(self.tables.advertisements.values()):
            self._advertisement_router.send_to_neighbour(neighbour, offer)
        return neighbour

    def receive(self, hop: Hop[PadresEnvelope], envelope: PadresEnvelope) -> RouterReceipt:
        if self._busy:
            return self._receive(hop, envelope)
        self._busy = True
        try:
            return self._receive(hop, envelope)
        finally:
            try:
                self._run_deferred()
            finally:
                self._busy = False

    def defer(self, action: Callable[[], None]) -> None:
        """Run an action after the current message is routed."""
        self._deferred.append(action)
        if not self._busy:
            self._run_deferred()

    def _run_deferred(self) -> None:
        """If an action fails, the rest runs with the next message."""
        while self._deferred:
            self._deferred.popleft()()

    def _receive(self, hop: Hop[PadresEnvelope], envelope: PadresEnvelope) -> RouterReceipt:
        name = hop.name
        neighbour = self.next_hops.neighbours.get(name)
        self.received[envelope.kind] += 1
        if neighbour is not None:
            neighbour.traffic.count(self.next_hops.clock())
        else:
            envelope = self._stamped(name, envelope)
        if envelope.kind is EnvelopeKind.PUBLISH:
            checked = hop.checked and self.rules.conformance and neighbour is None
            started = perf_counter()
            outcome = self._publication_router.publish(name, envelope, checked)
            self.match_seconds += perf_counter() - started
            return RouterReceipt(envelope.id, outcome)
        if neighbour is None and envelope.kind not in WITHDRAWN_KINDS:
            if hop.durable and (before := self._registrations.before(name, envelope)):
                return RouterReceipt(before)  # a repeated registration
            if hop.checked:
                self._registrations.check(name)
        self._apply(name, envelope, hop.durable)
        return RouterReceipt(envelope.id)

    def restore(self, name: str, envelope: PadresEnvelope) -> None:
        """Restore a registration after a restart."""
        self._apply(name, envelope, durable=False)

    def _apply(self, name: str, envelope: PadresEnvelope, durable: bool) -> None:
        kind = envelope.kind
        is_new = False
        if kind is EnvelopeKind.ADVERTISE:
            is_new = self._advertisement_router.advertise(name, envelope)
            self.composite_router.reconsider()
        elif kind is EnvelopeKind.SUBSCRIBE:
            is_new = self._subscription_router.subscribe(name, envelope)
        elif kind is EnvelopeKind.COMPOSITE:
            is_new = self.composite_router.subscribe(name, envelope)
        elif kind is EnvelopeKind.UNADVERTISE:
            self._advertisement_router.unadvertise(name, envelope)
            self.composite_router.reconsider()
        elif (
            kind is EnvelopeKind.UNSUBSCRIBE and envelope.text not in self.composite_router.entries
        ):
            self._subscription_router.unsubscribe(name, envelope)
        else:
            envelope = replace(envelope, kind=EnvelopeKind.UNCOMPOSITE)
            self.composite_router.unsubscribe(name, envelope)
        hop = self.next_hops.hops.get(name)
        if (
            hop is not None
            and (hop.checked or hop.durable)
            and name not in self.next_hops.neighbours
        ):
            if envelope.kind in WITHDRAWN_KINDS:
                self._registrations.remove(name, envelope.text)
            else:
                self._registrations.add(name, envelope)
        if self._store is not None and durable:
            if is_new:
                self._store.add(name, envelope)
            elif envelope.kind in WITHDRAWN_KINDS:
                self._store.remove(name, envelope)

    def _stamped(self, name: str, envelope: PadresEnvelope) -> PadresEnvelope:
        """A message of a local hop with its id; fields between brokers are reset."""
        number = next(self._numbers) if self._store is None else self._store.next_number()
        identity = f"{self.broker_id}-M{number}"
        return replace(
            envelope,
            id=identity,
            trace=envelope.trace
            or (identity if self.trace_all and name != self.next_hops.self_name else ""),
            time=self._time(envelope),
            source=name,
            tree="",
            target_brokers=(),
            tree_changes=0,
        )

    def _time(self, envelope: PadresEnvelope) -> float:
        """The time of a message: given, that of the publication, or now."""
        if envelope.time and EARLIEST_TIMESTAMP <= envelope.time <= LATEST_TIMESTAMP:
            return envelope.time
        if (
            envelope.kind is EnvelopeKind.PUBLISH
            and (stated := self.read(envelope.text).time) is not None
        ):
            return stated.timestamp()
        return self._calendar()

    def propagated_envelopes(self, neighbour: Neighbour) -> Iterator[PadresEnvelope]:
        """Everything that a neighbour was sent."""
        for offer in (*neighbour.bounded, *neighbour.advertisements.sent()):
            yield offer.envelope
        for tree, propagated in neighbour.propagated_filters.items():
            for entry in propagated.sent():
                yield copy_for_tree(entry, tree)
        for joined in self.composite_router.entries.values():
            if joined.passed_to == neighbour.name:
                yield joined.envelope

    def propagate_all(self, neighbour: Neighbour) -> list[PadresEnvelope]:
        """Send everything again; duplicates have no effect."""
        listed = list(self.propagated_envelopes(neighbour))
        for envelope in listed:
            self.next_hops.emit(neighbour.name, envelope)
        return listed

    def retain_only(self, name: str, listed: set[tuple[EnvelopeKind, str, str]]) -> None:
        """Withdraw registrations of a neighbour that are not in its complete list, by kind, id and
        tree."""
        for envelope in list(self.registrations_of(name)):
            if (envelope.kind, envelope.id, envelope.tree) not in listed:
                self._apply(name, withdrawal_of(envelope), durable=True)


def _count() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number


_RegistrationKey = tuple[EnvelopeKind, str, tuple[tuple[str, str], ...]]


class ClientRegistrations:
    """Registrations of local clients: their number, and duplicates."""

    def __init__(self, most: int) -> None:
        """`most` limits the registrations of a hop; 0 for no limit."""
        self._most = most
        self._ids: dict[str, dict[str, _RegistrationKey]] = {}
        self._ids_by_key: dict[str, dict[_RegistrationKey, str]] = {}

    def before(self, hop: str, envelope: PadresEnvelope) -> str:
        """The id of an equal registration of the hop, if any."""
        return self._ids_by_key.get(hop, {}).get(_registration_key(envelope), "")

    def check(self, hop: str) -> None:
        if self._most and len(self._ids.get(hop, ())) >= self._most:
            raise ResourceExhausted(
                f"{hop} has reached the limit of {self._most} registrations: withdraw some"
            )

    def add(self, hop: str, envelope: PadresEnvelope) -> None:
        key = _registration_key(envelope)
        self._ids.setdefault(hop, {})[envelope.id] = key
        self._ids_by_key.setdefault(hop, {})[key] = envelope.id

    def remove(self, hop: str, identity: str) -> None:
        key = self._ids.get(hop, {}).pop(identity, None)
        if key is not None and self._ids_by_key[hop].get(key) == identity:
            del self._ids_by_key[hop][key]

    def remove_hop(self, hop: str) -> None:
        self._ids.pop(hop, None)
        self._ids_by_key.pop(hop, None)


def _registration_key(envelope: PadresEnvelope) -> _RegistrationKey:
    return envelope.kind, envelope.text, envelope.options
