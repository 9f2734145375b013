"""What one client is subscribed to, and who in the program gets which message.

MQTT has one subscription for each filter and client, however many in the program asked for it, so
each filter is subscribed to once and those who take from it are listed here. Where the broker says
which subscription a message is for, that decides; an older one leaves it to the topic.

When the broker has kept nothing of the session over a break, all filters are subscribed to again.
A message of a kept session that nobody has asked for yet waits, unacknowledged, for whoever will;
should too many wait, the oldest are let go, for they hold up all others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from paho.mqtt.client import MQTTMessage

from penstock.client.mqtt.delivery import Receipt
from penstock.client.mqtt.dial import RECEIVE_MAXIMUM
from penstock.client.mqtt.faults import FAILURE, Lost, declined
from penstock.client.mqtt.link import Link
from penstock.client.mqtt.topics import matches, unshared
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger

log = get_logger(__name__)

#: A brake on what nobody has asked for: half of what the broker sends ahead.
UNCLAIMED: Final = RECEIVE_MAXIMUM // 2


class Taker(Protocol):
    """Who takes messages: an inlet, or the one who waits for answers."""

    def take(self, packet: MQTTMessage, receipt: Receipt | None) -> None: ...

    def renewed(self, session_present: bool) -> None:
        """A new connection; with the session kept, what was not acknowledged comes again."""

    def failed(self, error: PenstockError) -> None: ...


@dataclass(slots=True, eq=False)
class Subscribed:
    pattern: str
    identifier: int
    qos: int
    takers: list[Taker] = field(default_factory=list)
    granted: int = 0  #: on which connection

    def wants(self, topic: str) -> bool:
        return matches(unshared(self.pattern), topic)


class Subscriptions:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._patterns: dict[str, Subscribed] = {}
        self._identifiers: dict[int, Subscribed] = {}
        self._unclaimed: deque[MQTTMessage] = deque()
        self._last = 0
        self._on_arrival = False  #: paho acknowledges what comes, as it comes
        link.join(self)
        link.on_arrival = self._arrived

    async def add(self, taker: Taker, patterns: Sequence[str], qos: int) -> None:
        """Returns when what is published from now on will be taken."""
        await self._link.open()
        for pattern in patterns:
            entry = self._entry(pattern, qos)
            entry.takers.append(taker)
            entry.qos = max(entry.qos, qos)
            entry.granted = 0  # asked for again, because retained messages come with the asking
        self._choose_acknowledging()
        self._claim(taker, patterns)
        for pattern in patterns:
            entry = self._patterns[pattern]
            while True:
                await self._link.ready()
                if entry.granted == self._link.generation:
                    break
                try:
                    await self._ask(entry)
                except Lost:
                    continue

    def remove(self, taker: Taker) -> None:
        for entry in list(self._patterns.values()):
            if taker in entry.takers:
                entry.takers.remove(taker)
            if entry.takers:
                continue
            del self._patterns[entry.pattern]
            del self._identifiers[entry.identifier]
            # A session that lasts is left as it is, to find what was kept at the next visit.
            if self._link.connected and not self._link.lasting:
                self._link.wire.unsubscribe(entry.pattern)
        self._choose_acknowledging()

    def paused(self, lost: Lost) -> None:
        self._unclaimed.clear()

    def renewed(self, session_present: bool) -> None:
        for taker in self._takers(self._patterns.values()):
            taker.renewed(session_present)

    async def resume(self, session_present: bool) -> None:
        for entry in list(self._patterns.values()):
            if session_present:
                entry.granted = self._link.generation
                continue
            try:
                await self._ask(entry)
            except PenstockError as error:
                for taker in list(entry.takers):
                    taker.failed(error)

    def failed(self, error: PenstockError) -> None:
        for taker in self._takers(self._patterns.values()):
            taker.failed(error)

    def _entry(self, pattern: str, qos: int) -> Subscribed:
        entry = self._patterns.get(pattern)
        if entry is None:
            self._last += 1
            entry = self._patterns[pattern] = Subscribed(pattern, self._last, qos)
            self._identifiers[entry.identifier] = entry
        return entry

    async def _ask(self, entry: Subscribed) -> None:
        greeting = self._link.greeting
        if greeting is None:
            raise Lost("the connection is closed")
        generation = self._link.generation
        identifier = entry.identifier if greeting.identifiers else None
        self._link.expect()
        try:
            wire = self._link.wire
            reason, words = await wire.subscribe(entry.pattern, entry.qos, identifier)
        finally:
            self._link.met()
        if reason.value >= FAILURE:
            raise declined(f"cannot subscribe to {entry.pattern!r}", reason, words)
        entry.granted = generation

    def _choose_acknowledging(self) -> None:
        """Messages of quality 2 are ours once they have arrived; others once they are done with.

        paho has one way for all of a client, and what is left of a handshake of quality 2 after a
        break it only answers by itself.
        """
        exactly_once = any(entry.qos == 2 for entry in self._patterns.values())
        self._link.wire.acknowledge_on_arrival(exactly_once)
        self._on_arrival = exactly_once

    def _arrived(self, packet: MQTTMessage) -> None:
        takers = self._takers(self._wanting(packet))
        if takers:
            receipt = self._receipt(packet, len(takers))
            for taker in takers:
                taker.take(packet, receipt)
        elif packet.qos and not self._on_arrival:
            self._unclaimed.append(packet)
            if len(self._unclaimed) > UNCLAIMED:
                unwanted = self._unclaimed.popleft()
                log.warning("a message nobody subscribed to was let go", topic=unwanted.topic)
                self._link.wire.acknowledge(unwanted)

    def _wanting(self, packet: MQTTMessage) -> list[Subscribed]:
        topic = packet.topic
        told = getattr(packet.properties, "SubscriptionIdentifier", ())
        # A kept session may remember identifiers that an earlier program gave to other filters.
        named = [
            entry
            for identifier in told
            if (entry := self._identifiers.get(identifier)) is not None and entry.wants(topic)
        ]
        return named or [entry for entry in self._patterns.values() if entry.wants(topic)]

    def _takers(self, entries: Iterable[Subscribed]) -> list[Taker]:
        return list(dict.fromkeys(taker for entry in entries for taker in entry.takers))

    def _receipt(self, packet: MQTTMessage, wanted: int) -> Receipt | None:
        if packet.qos == 0 or self._on_arrival:
            return None
        generation = self._link.generation

        def acknowledge() -> None:
            if self._link.connected and self._link.generation == generation:
                self._link.wire.acknowledge(packet)

        return Receipt(acknowledge, wanted)

    def _claim(self, taker: Taker, patterns: Sequence[str]) -> None:
        """Take over what came before anybody asked for it."""
        waiting, self._unclaimed = self._unclaimed, deque()
        for packet in waiting:
            if any(matches(unshared(pattern), packet.topic) for pattern in patterns):
                taker.take(packet, self._receipt(packet, 1))
            else:
                self._unclaimed.append(packet)
