"""Pending messages of a session, and retained messages to be delivered.

QoS 1 and 2 messages wait up to `mqtt.max_queued`; beyond it the oldest is dropped. QoS 0 messages
wait while there is space. The `MessageStore` is created when the first message waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.broker.contract import (
    PERSISTENT,
    Delivery,
    EffectiveSubscription,
    Message,
    TopicSubscription,
)
from penstock.broker.declarations import QueueLimits
from penstock.destinations.message_store import MessageStore
from penstock.destinations.session.subscriptions import effective_subscription

if TYPE_CHECKING:
    from penstock.destinations.session.session import MqttSessionQueue


_NO_LIMITS: Final = QueueLimits()


class PendingMessages:
    __slots__ = ("_session", "dropped", "store")

    def __init__(self, session: MqttSessionQueue) -> None:
        self._session = session
        self.dropped = 0  #: messages
        self.store: MessageStore | None = None

    def open_store(self) -> MessageStore:
        if self.store is None:
            session = self._session
            self.store = MessageStore(
                session.kernel,
                session.directory if session.durable else None,
                _NO_LIMITS,
                expired=self.expired,
                recovered=session.drain,
                settled=session.exactly_once.released if session.durable else (),
                tracks_sent=True,
                in_sync=session.kernel.confirms_in_sync({}),
            )
        return self.store

    @property
    def count(self) -> int:
        return self.store.ready if self.store is not None else 0

    @property
    def bytes(self) -> int:
        return self.store.ready_bytes if self.store is not None else 0

    @property
    def memory(self) -> int:
        return self.store.memory if self.store is not None else 0

    def add(self, message: Message) -> int:
        """Queue a QoS 1 or 2 message."""
        store = self.open_store()
        outcome = store.add(message)
        most = self._session.kernel.settings.mqtt.max_queued
        while most and store.ready > most and (oldest := store.pop()) is not None:
            self._drop()
            self.acknowledge(oldest)
        return outcome

    def best_effort(self, message: Message) -> Message | None:
        """The message without persistence, if a QoS 0 message may wait; else None."""
        store = self.open_store()
        settings = self._session.kernel.settings
        full = settings.mqtt.max_queued and store.ready >= settings.mqtt.max_queued
        if full or store.memory > settings.queue_memory_bytes:
            self._drop()
            return None
        if message.flags & PERSISTENT:  # persistent for others only
            spool = message.spool
            flags = message.flags & ~PERSISTENT
            message = Message(message.route, message.header, message.body, flags)
            message.spool = spool
        return message

    def acknowledge(self, delivery: Delivery) -> None:
        if delivery.offset >= 0:
            self.open_store().acknowledge(delivery)

    def expired(self, delivery: Delivery) -> None:
        self._session.kernel.metrics.expired += 1
        self.acknowledge(delivery)

    def purge(self) -> int:
        store = self.store
        purged = 0
        while store is not None and store.ready and (found := store.pop()) is not None:
            purged += 1
            self.acknowledge(found)
        return purged

    def close(self) -> None:
        if self.store is not None:
            self.store.close()

    def delete(self) -> None:
        if self.store is not None:
            self.store.delete()

    def _drop(self) -> None:
        self.dropped += 1
        self._session.kernel.metrics.dropped += 1


class PastMessages:
    """Retained messages and messages of streams, read as the client accepts them."""

    __slots__ = ("_wanted",)

    def __init__(self) -> None:
        self._wanted: deque[tuple[Iterator[Message | None], EffectiveSubscription]] = deque()

    def add(self, messages: Iterator[Message | None], subscription: TopicSubscription) -> None:
        """None is a message that was replaced, removed or not selected."""
        self._wanted.append((messages, effective_subscription([subscription])))

    @property
    def first(self) -> tuple[Iterator[Message | None], EffectiveSubscription] | None:
        """The messages that are delivered now."""
        return self._wanted[0] if self._wanted else None

    def next(self) -> tuple[Message | None, EffectiveSubscription] | None:
        """None at the end."""
        while self._wanted:
            messages, effective = self._wanted[0]
            for message in messages:
                return message, effective
            self._wanted.popleft()
        return None
