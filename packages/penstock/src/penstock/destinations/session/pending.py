"""What waits for a client: all that was promised, and of the rest what there is room for.

What was promised to one that stays away too long is dropped, the oldest first. How messages are
held, in memory and on disk, is `message_store.py`; there is none until something has to wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
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
        self.dropped = 0  #: messages there was no room for
        self.store: MessageStore | None = None

    def hold(self) -> MessageStore:
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
        """It has to arrive. What became of it."""
        store = self.hold()
        outcome = store.add(message)
        most = self._session.kernel.settings.mqtt.max_queued
        while most and store.ready > most and (oldest := store.pop()) is not None:
            self._drop()
            self.done(oldest)
        return outcome

    def best_effort(self, message: Message) -> Message | None:
        """The message if it may wait though it need not arrive; None if there is no room."""
        store = self.hold()
        settings = self._session.kernel.settings
        full = settings.mqtt.max_queued and store.ready >= settings.mqtt.max_queued
        if full or store.memory > settings.queue_memory_bytes:
            self._drop()
            return None
        if message.flags & PERSISTENT:  # but not for this subscriber
            spool = message.spool
            flags = message.flags & ~PERSISTENT
            message = Message(message.route, message.header, message.body, flags)
            message.spool = spool
        return message

    def done(self, delivery: Delivery) -> None:
        """Nothing more is wanted of it."""
        if delivery.offset >= 0:
            self.hold().done(delivery)

    def expired(self, delivery: Delivery) -> None:
        self._session.kernel.metrics.expired += 1
        self.done(delivery)

    def purge(self) -> int:
        store = self.store
        purged = 0
        while store is not None and store.ready and (found := store.pop()) is not None:
            purged += 1
            self.done(found)
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


# What is kept for those who come later: retained messages, drawn as the client takes them.


class RetainedDeliveries:
    __slots__ = ("_find", "_wanted")

    def __init__(self, find: Callable[[bytes], Message | None]) -> None:
        self._find = find
        self._wanted: deque[tuple[Iterator[bytes], EffectiveSubscription]] = deque()

    def add(self, keys: Iterable[bytes], subscription: TopicSubscription) -> None:
        self._wanted.append((iter(keys), effective_subscription([subscription])))

    def next(self) -> tuple[Message, EffectiveSubscription] | None:
        """As it is now: what was kept when it was asked for may have been replaced, or gone."""
        while self._wanted:
            keys, grant = self._wanted[0]
            for key in keys:
                message = self._find(key)
                if message is not None:
                    return message, grant
            self._wanted.popleft()
        return None
