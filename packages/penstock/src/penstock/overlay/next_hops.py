"""Where messages leave a router: the hops around it, and what holds for all that goes out.

A message that goes to a neighbour uses up one of the links it may cross. What is traced is told of
as it goes.

A broker that was stopped lets nothing out until it is resumed, but what other brokers tell about
themselves, and that somebody looks for them. Publications for neighbours wait in their lines, which
are told to hold them; what is for hops of this broker waits here, and is refused for the time
being, so that nobody is told it is safe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from penstock.broker.content_routing import Hop
from penstock.broker.contract import ACCEPTED, REJECTED
from penstock.overlay.neighbours import Clock, Neighbour
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope

#: Classes that tell of brokers or ask for them, and pass one that is stopped.
RELAYED_WHILE_STOPPED: Final = (
    "[class,NETWORK_DISCOVERY]",
    "[class,BROKER_INFO]",
    "[class,TRACEROUTE_MESSAGE]",
    "[class,HEARTBEAT_MANAGER]",
)

#: Told of a message under way: the message, and the name of the hop it goes to.
Tracer = Callable[[PadresEnvelope, str], None]


class NextHops:
    def __init__(self, broker_id: str, clock: Clock) -> None:
        self.broker_id = broker_id
        self.clock = clock
        self.hops: dict[str, Hop[PadresEnvelope]] = {}
        self.neighbours: dict[str, Neighbour] = {}
        self.subscription_observers: dict[
            str, dict[str, set[str]]
        ] = {}  #: hops, and whose ids each was told
        self.stopped = False
        self.tracer: Tracer | None = None
        self.status_publisher: Callable[[str], None] | None = (
            None  #: before nothing goes out any more
        )
        self.self_name = f"{broker_id}-broker"  #: the hop that is the broker itself
        self.watchers: list[Callable[[], None]] = []  #: told when it is stopped or resumed
        self._leaving = False  # what is said is the last for a while
        self._kept: list[tuple[str, PadresEnvelope]] = []

    def emit(self, name: str, envelope: PadresEnvelope) -> int:
        """Send a message to a hop, if it may go there."""
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
        """Past what is held."""
        if neighbour is None:
            return self._deliver(name, envelope)
        neighbour.line.put(envelope)
        return ACCEPTED

    def _hold(self, name: str, envelope: PadresEnvelope, neighbour: Neighbour | None) -> int:
        if envelope.text.startswith(RELAYED_WHILE_STOPPED) and envelope.source != self.self_name:
            return self._send_past_held(name, envelope, neighbour)
        if neighbour is not None and envelope.kind is EnvelopeKind.PUBLISH:
            return self._deliver(name, envelope)
        self._kept.append((name, envelope))
        return REJECTED if envelope.kind is EnvelopeKind.PUBLISH else ACCEPTED

    def put(self, name: str, envelope: PadresEnvelope) -> None:
        """Straight to a neighbour, which does not pass it on. While stopped it does not go."""
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

    # Whether anything goes out.

    def stop(self) -> None:
        if not self.stopped:
            self.publish_final_status("STOPPED")
        self.stopped = True
        for told in self.watchers:
            told()

    def resume(self) -> None:
        self.stopped = False
        kept, self._kept = self._kept, []
        for name, envelope in kept:
            self._deliver(name, envelope)
        for told in self.watchers:
            told()

    def publish_final_status(self, status: str) -> None:
        """Let others know what becomes of the broker while they can still hear it."""
        if self.status_publisher is not None:
            self._leaving = True
            try:
                self.status_publisher(status)
            finally:
                self._leaving = False

    @property
    def waiting(self) -> int:
        return len(self._kept)
