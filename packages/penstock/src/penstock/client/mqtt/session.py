"""One client in the eyes of the broker: a client id, its link, what it sends and receives.

A fabric is one session. A subscription with a name is another, so that it may last when the fabric
does not.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from paho.mqtt.client import MQTTMessage

from penstock.client.errors import FabricClosed
from penstock.client.message import ReceivedMessage
from penstock.client.mqtt.connection import MqttRecoveringConnection
from penstock.client.mqtt.endpoint import (
    UNSPECIFIED_ERROR,
    MqttConnectionLost,
    MqttEndpoint,
    reason_code_error,
)
from penstock.client.mqtt.message import MqttDelivery, SharedAcknowledgement, read_message
from penstock.client.mqtt.publisher import MqttPublisher
from penstock.client.mqtt.topics import matches, without_share_prefix
from penstock.client.mqtt.transport import RECEIVE_MAXIMUM
from penstock.client.receiver import DeliveryBuffer
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger


class MqttClientSession:
    """The order of its parts is the order they resume in: first receive, then send."""

    def __init__(
        self, endpoint: MqttEndpoint, tls: ssl.SSLContext | None, retry_seconds: float
    ) -> None:
        self.connection = MqttRecoveringConnection(endpoint, tls, retry_seconds)
        self.subscriptions = MqttClientSubscriptions(self.connection)
        self.publisher = MqttPublisher(self.connection)

    async def open(self) -> None:
        await self.connection.open()

    async def close(self) -> None:
        await self.connection.close()


# What one client is subscribed to, and who in the program gets which message.
#
# MQTT has one subscription for each filter and client, however many in the program asked for it, so
# each filter is subscribed to once and those who take from it are listed here. Where the broker
# says which subscription a message is for, that decides; an older one leaves it to the topic.
#
# When the broker has kept nothing of the session over a break, all filters are subscribed to again.
# A message of a kept session that nobody has asked for yet waits, unacknowledged, for whoever will;
# should too many wait, the oldest are let go, for they hold up all others.

log = get_logger(__name__)

#: A brake on what nobody has asked for: half of what the broker sends ahead.
MAX_UNCLAIMED_MESSAGES: Final = RECEIVE_MAXIMUM // 2


class MqttMessageHandler(Protocol):
    """Who takes messages: an inlet, or the one who waits for answers."""

    def take(self, packet: MQTTMessage, receipt: SharedAcknowledgement | None) -> None: ...

    def renewed(self, session_present: bool) -> None:
        """A new connection; with the session kept, what was not acknowledged comes again."""

    def failed(self, error: PenstockError) -> None: ...


@dataclass(slots=True, eq=False)
class FilterSubscription:
    pattern: str
    identifier: int
    qos: int
    takers: list[MqttMessageHandler] = field(default_factory=list)
    granted: int = 0  #: on which connection

    def wants(self, topic: str) -> bool:
        return matches(without_share_prefix(self.pattern), topic)


class MqttClientSubscriptions:
    def __init__(self, connection: MqttRecoveringConnection) -> None:
        self._connection = connection
        self._patterns: dict[str, FilterSubscription] = {}
        self._identifiers: dict[int, FilterSubscription] = {}
        self._unclaimed: deque[MQTTMessage] = deque()
        self._last = 0
        self._on_arrival = False  #: paho acknowledges what comes, as it comes
        connection.join(self)
        connection.on_arrival = self._arrived

    async def add(self, taker: MqttMessageHandler, patterns: Sequence[str], qos: int) -> None:
        """Returns when what is published from now on will be taken."""
        await self._connection.open()
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
                await self._connection.ready()
                if entry.granted == self._connection.generation:
                    break
                try:
                    await self._ask(entry)
                except MqttConnectionLost:
                    continue

    def remove(self, taker: MqttMessageHandler) -> None:
        for entry in list(self._patterns.values()):
            if taker in entry.takers:
                entry.takers.remove(taker)
            if entry.takers:
                continue
            del self._patterns[entry.pattern]
            del self._identifiers[entry.identifier]
            # A session that lasts is left as it is, to find what was kept at the next visit.
            if self._connection.connected and not self._connection.lasting:
                self._connection.wire.unsubscribe(entry.pattern)
        self._choose_acknowledging()

    def paused(self, lost: MqttConnectionLost) -> None:
        self._unclaimed.clear()

    def renewed(self, session_present: bool) -> None:
        for taker in self._takers(self._patterns.values()):
            taker.renewed(session_present)

    async def resume(self, session_present: bool) -> None:
        for entry in list(self._patterns.values()):
            if session_present:
                entry.granted = self._connection.generation
                continue
            try:
                await self._ask(entry)
            except PenstockError as error:
                for taker in list(entry.takers):
                    taker.failed(error)

    def failed(self, error: PenstockError) -> None:
        for taker in self._takers(self._patterns.values()):
            taker.failed(error)

    def _entry(self, pattern: str, qos: int) -> FilterSubscription:
        entry = self._patterns.get(pattern)
        if entry is None:
            self._last += 1
            entry = self._patterns[pattern] = FilterSubscription(pattern, self._last, qos)
            self._identifiers[entry.identifier] = entry
        return entry

    async def _ask(self, entry: FilterSubscription) -> None:
        connack = self._connection.connack
        if connack is None:
            raise MqttConnectionLost("the connection is closed")
        generation = self._connection.generation
        identifier = entry.identifier if connack.identifiers else None
        self._connection.expect()
        try:
            wire = self._connection.wire
            reason, words = await wire.subscribe(entry.pattern, entry.qos, identifier)
        finally:
            self._connection.met()
        if reason.value >= UNSPECIFIED_ERROR:
            raise reason_code_error(f"cannot subscribe to {entry.pattern!r}", reason, words)
        entry.granted = generation

    def _choose_acknowledging(self) -> None:
        """Messages of quality 2 are ours once they have arrived; others once they are done with.

        paho has one way for all of a client, and what is left of a handshake of quality 2 after a
        break it only answers by itself.
        """
        exactly_once = any(entry.qos == 2 for entry in self._patterns.values())
        self._connection.wire.acknowledge_on_arrival(exactly_once)
        self._on_arrival = exactly_once

    def _arrived(self, packet: MQTTMessage) -> None:
        takers = self._takers(self._wanting(packet))
        if takers:
            receipt = self._receipt(packet, len(takers))
            for taker in takers:
                taker.take(packet, receipt)
        elif packet.qos and not self._on_arrival:
            self._unclaimed.append(packet)
            if len(self._unclaimed) > MAX_UNCLAIMED_MESSAGES:
                unwanted = self._unclaimed.popleft()
                log.warning("a message nobody subscribed to was let go", topic=unwanted.topic)
                self._connection.wire.acknowledge(unwanted)

    def _wanting(self, packet: MQTTMessage) -> list[FilterSubscription]:
        topic = packet.topic
        told = getattr(packet.properties, "SubscriptionIdentifier", ())
        # A kept session may remember identifiers that an earlier program gave to other filters.
        named = [
            entry
            for identifier in told
            if (entry := self._identifiers.get(identifier)) is not None and entry.wants(topic)
        ]
        return named or [entry for entry in self._patterns.values() if entry.wants(topic)]

    def _takers(self, entries: Iterable[FilterSubscription]) -> list[MqttMessageHandler]:
        return list(dict.fromkeys(taker for entry in entries for taker in entry.takers))

    def _receipt(self, packet: MQTTMessage, wanted: int) -> SharedAcknowledgement | None:
        if packet.qos == 0 or self._on_arrival:
            return None
        generation = self._connection.generation

        def acknowledge() -> None:
            if self._connection.connected and self._connection.generation == generation:
                self._connection.wire.acknowledge(packet)

        return SharedAcknowledgement(acknowledge, wanted)

    def _claim(self, taker: MqttMessageHandler, patterns: Sequence[str]) -> None:
        """Take over what came before anybody asked for it."""
        waiting, self._unclaimed = self._unclaimed, deque()
        for packet in waiting:
            if any(matches(without_share_prefix(pattern), packet.topic) for pattern in patterns):
                taker.take(packet, self._receipt(packet, 1))
            else:
                self._unclaimed.append(packet)


# Receiving across reconnects.
#
# Between the socket and the program lies a buffer. When it is as long as the prefetch, the broker
# is held up until half of it is taken. Over a break, what the broker sends again because the
# session was kept is dropped from the buffer; else what is there is all there is of it, and stays.


class MqttConsumer:
    """Keeps `penstock.client.receiver.RecoveringConsumer`."""

    def __init__(
        self,
        session: MqttClientSession,
        patterns: Sequence[str],
        *,
        qos: int,
        prefetch: int,
        owns: bool = False,
    ) -> None:
        self._session = session
        self._patterns = patterns
        self._qos = qos
        self._prefetch = prefetch
        self._owns = owns  #: the session is for this inlet alone, and ends with it
        self._arrivals: DeliveryBuffer[tuple[MQTTMessage, SharedAcknowledgement | None]] = (
            DeliveryBuffer()
        )
        self._opening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._arrivals.check()
        if self._opening is None:
            adding = self._session.subscriptions.add(self, self._patterns, self._qos)
            self._opening = asyncio.create_task(adding)
        try:
            await asyncio.shield(self._opening)
        except PenstockError as error:
            self.failed(error)
            self._session.subscriptions.remove(self)
        self._arrivals.check()

    async def receive(self) -> ReceivedMessage:
        await self.open()
        packet, receipt = await self._arrivals.take()
        if len(self._arrivals) * 2 <= self._prefetch:
            self._session.connection.release(self)
        return read_message(packet, MqttDelivery(packet, receipt, self._session.publisher))

    async def close(self) -> None:
        self.failed(FabricClosed("the fabric was closed"))
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        self._session.subscriptions.remove(self)
        self._session.connection.release(self)
        self._arrivals.clear()
        if self._owns:
            await self._session.close()

    def take(self, packet: MQTTMessage, receipt: SharedAcknowledgement | None) -> None:
        self._arrivals.put((packet, receipt))
        if len(self._arrivals) >= self._prefetch:
            self._session.connection.hold(self)

    def renewed(self, session_present: bool) -> None:
        if session_present:
            self._arrivals.retain(lambda arrival: arrival[1] is None)
            self._session.connection.release(self)

    def failed(self, error: PenstockError) -> None:
        self._arrivals.fail(error)
