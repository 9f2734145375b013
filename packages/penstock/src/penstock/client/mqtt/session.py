"""An MQTT session: a client id with its connection, subscriptions, consumers and publisher.

A fabric is one session. A subscription with a name is another one, so that it can outlive the
fabric.
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
from penstock.wire.mqtt.reason_codes import ReasonCode


class MqttClientSession:
    """The order of the parts is the order in which they resume: receive first, then send."""

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


log = get_logger(__name__)

#: Half of the receive maximum, so that unclaimed messages do not block the others.
MAX_UNCLAIMED_MESSAGES: Final = RECEIVE_MAXIMUM // 2


class MqttMessageHandler(Protocol):
    """Handles the messages of a subscription."""

    def take(self, packet: MQTTMessage, receipt: SharedAcknowledgement | None) -> None: ...

    def renewed(self, session_present: bool) -> None:
        """A new connection; if the session is present, unacknowledged messages arrive again."""

    def failed(self, error: PenstockError) -> None: ...


@dataclass(slots=True, eq=False)
class FilterSubscription:
    pattern: str
    identifier: int
    qos: int
    handlers: list[MqttMessageHandler] = field(default_factory=list)
    granted: int = 0  #: the generation of the connection that granted it

    def wants(self, topic: str) -> bool:
        return matches(without_share_prefix(self.pattern), topic)


class MqttClientSubscriptions:
    """The subscriptions of a session, and the handlers of each.

    A client has one subscription per filter, which the handlers in the program share. Messages are
    assigned by subscription identifier, or by topic if the broker has none. If the broker has lost
    the session, all filters are subscribed to again. Messages of a resumed session that no handler
    has claimed yet wait, unacknowledged; if there are too many, the oldest are acknowledged.
    """

    def __init__(self, connection: MqttRecoveringConnection) -> None:
        self._connection = connection
        self._patterns: dict[str, FilterSubscription] = {}
        self._identifiers: dict[int, FilterSubscription] = {}
        self._unclaimed: deque[MQTTMessage] = deque()
        self._last = 0
        self._on_arrival = False  #: paho acknowledges messages on arrival
        connection.join(self)
        connection.on_arrival = self._arrived

    async def add(self, handler: MqttMessageHandler, patterns: Sequence[str], qos: int) -> None:
        """Returns when messages that are published from now on are received."""
        await self._connection.open()
        for pattern in patterns:
            entry = self._entry(pattern, qos)
            entry.handlers.append(handler)
            entry.qos = max(entry.qos, qos)
            entry.granted = 0  # subscribe again: the broker then sends retained messages
        self._choose_acknowledging()
        self._claim(handler, patterns)
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

    def remove(self, handler: MqttMessageHandler) -> None:
        for entry in list(self._patterns.values()):
            if handler in entry.handlers:
                entry.handlers.remove(handler)
            if entry.handlers:
                continue
            del self._patterns[entry.pattern]
            del self._identifiers[entry.identifier]
            # A persistent session keeps its subscriptions for the next connection.
            if self._connection.connected and not self._connection.is_persistent:
                self._connection.wire.unsubscribe(entry.pattern)
        self._choose_acknowledging()

    def paused(self, lost: MqttConnectionLost) -> None:
        self._unclaimed.clear()

    def renewed(self, session_present: bool) -> None:
        for handler in self._handlers(self._patterns.values()):
            handler.renewed(session_present)

    async def resume(self, session_present: bool) -> None:
        for entry in list(self._patterns.values()):
            if session_present:
                entry.granted = self._connection.generation
                continue
            try:
                await self._ask(entry)
            except PenstockError as error:
                for handler in list(entry.handlers):
                    handler.failed(error)

    def failed(self, error: PenstockError) -> None:
        for handler in self._handlers(self._patterns.values()):
            handler.failed(error)

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
            self._connection.received()
        if reason.value >= ReasonCode.UNSPECIFIED_ERROR:
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
        handlers = self._handlers(self._wanting(packet))
        if handlers:
            receipt = self._receipt(packet, len(handlers))
            for handler in handlers:
                handler.take(packet, receipt)
        elif packet.qos and not self._on_arrival:
            self._unclaimed.append(packet)
            if len(self._unclaimed) > MAX_UNCLAIMED_MESSAGES:
                unwanted = self._unclaimed.popleft()
                log.warning("unclaimed message dropped", topic=unwanted.topic)
                self._connection.wire.acknowledge(unwanted)

    def _wanting(self, packet: MQTTMessage) -> list[FilterSubscription]:
        topic = packet.topic
        identifiers = getattr(packet.properties, "SubscriptionIdentifier", ())
        # A resumed session may have identifiers that an earlier program gave to other filters.
        named = [
            entry
            for identifier in identifiers
            if (entry := self._identifiers.get(identifier)) is not None and entry.wants(topic)
        ]
        return named or [entry for entry in self._patterns.values() if entry.wants(topic)]

    def _handlers(self, entries: Iterable[FilterSubscription]) -> list[MqttMessageHandler]:
        return list(dict.fromkeys(handler for entry in entries for handler in entry.handlers))

    def _receipt(self, packet: MQTTMessage, wanted: int) -> SharedAcknowledgement | None:
        if packet.qos == 0 or self._on_arrival:
            return None
        generation = self._connection.generation

        def acknowledge() -> None:
            if self._connection.connected and self._connection.generation == generation:
                self._connection.wire.acknowledge(packet)

        return SharedAcknowledgement(acknowledge, wanted)

    def _claim(self, handler: MqttMessageHandler, patterns: Sequence[str]) -> None:
        """Hand over unclaimed messages that match."""
        waiting, self._unclaimed = self._unclaimed, deque()
        for packet in waiting:
            if any(matches(without_share_prefix(pattern), packet.topic) for pattern in patterns):
                handler.take(packet, self._receipt(packet, 1))
            else:
                self._unclaimed.append(packet)


class MqttConsumer:
    """Implements `penstock.client.receiver.RecoveringConsumer`.

    When the buffer has as many messages as the prefetch, reading pauses until half of them are
    taken. After a reconnect to a present session, messages that the broker sends again are removed
    from the buffer.
    """

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
        self._owns = owns  #: the session belongs to this consumer and is closed with it
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
