"""Sends messages to the hops of a router.

A message to a neighbour decrements its TTL. Traced messages are reported.

A stopped broker sends nothing until it is resumed, except status and discovery of other brokers.
Publications for neighbours wait in their queues; messages for local hops wait here and are rejected
meanwhile, so that nobody counts them as stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from penstock.broker.content_router import Hop
from penstock.broker.contract import ACCEPTED, REJECTED
from penstock.overlay.neighbours import Clock, Neighbour
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope

#: Classes that a stopped broker relays.
RELAYED_WHILE_STOPPED: Final = (
    "[class,NETWORK_DISCOVERY]",
    "[class,BROKER_INFO]",
    "[class,TRACEROUTE_MESSAGE]",
    "[class,HEARTBEAT_MANAGER]",
)

#: Called with a traced message and the name of its next hop.
Tracer = Callable[[PadresEnvelope, str], None]


class NextHops:
    def __init__(self, broker_id: str, clock: Clock) -> None:
        self.broker_id = broker_id
        self.clock = clock
        self.hops: dict[str, Hop[PadresEnvelope]] = {}
        self.neighbours: dict[str, Neighbour] = {}
        self.subscription_observers: dict[
            str, dict[str, set[str]]
        ] = {}  #: by hop: notified subscriptions and their hops
        self.stopped = False
        self.tracer: Tracer | None = None
        self.status_publisher: Callable[[str], None] | None = None  #: before a stop
        self.self_name = f"{broker_id}-broker"  #: the broker's own hop
        self.watchers: list[Callable[[], None]] = []  #: called after stop and resume
        self._leaving = False  # publishing the final status
        self._held: list[tuple[str, PadresEnvelope]] = []

    def emit(self, name: str, envelope: PadresEnvelope) -> int:
        """Send a message to a hop, if its TTL allows it."""
        neighbour = self.neighbours.get(name)
        if neighbour is not None:
            if envelope.ttl == 0:
                return ACCEPTED
            if envelope.ttl > 0:
                envelope = replace(envelope, ttl=envelope.ttl - 1)
        if self._leaving:
            return self._send_past_held(name, envelope, neighbour)
        if self.stopped and name != self.self_name:
            return self._hold(name, envelope, neighbour)
        return self._deliver(name, envelope)

    def _send_past_held(
        self, name: str, envelope: PadresEnvelope, neighbour: Neighbour | None
    ) -> int:
        """Bypass held messages."""
        if neighbour is None:
            return self._deliver(name, envelope)
        neighbour.line.put(envelope)
        return ACCEPTED

    def _hold(self, name: str, envelope: PadresEnvelope, neighbour: Neighbour | None) -> int:
        if envelope.text.startswith(RELAYED_WHILE_STOPPED) and envelope.source != self.self_name:
            return self._send_past_held(name, envelope, neighbour)
        if neighbour is not None and envelope.kind is EnvelopeKind.PUBLISH:
            return self._deliver(name, envelope)
        self._held.append((name, envelope))
        return REJECTED if envelope.kind is EnvelopeKind.PUBLISH else ACCEPTED

    def put(self, name: str, envelope: PadresEnvelope) -> None:
        """To a neighbour only, not forwarded by it; dropped while stopped."""
        if not self.stopped and name in self.neighbours:
            self.neighbours[name].line.put(envelope)

    def _deliver(self, name: str, envelope: PadresEnvelope) -> int:
        hop = self.hops.get(name)
        if hop is None:
            return ACCEPTED
        neighbour = self.neighbours.get(name)
        if neighbour is not None:
            neighbour.traffic.count(self.clock())
        if envelope.trace and self.tracer is not None:
            self.tracer(envelope, name)
        return hop.deliver(envelope)

    def stop(self) -> None:
        if not self.stopped:
            self.publish_final_status("STOPPED")
        self.stopped = True
        for watcher in self.watchers:
            watcher()

    def resume(self) -> None:
        self.stopped = False
        held, self._held = self._held, []
        for name, envelope in held:
            self._deliver(name, envelope)
        for watcher in self.watchers:
            watcher()

    def publish_final_status(self, status: str) -> None:
        """Publish a status before the broker stops sending."""
        if self.status_publisher is not None:
            self._leaving = True
            try:
                self.status_publisher(status)
            finally:
                self._leaving = False

    @property
    def waiting(self) -> int:
        return len(self._held)
