"""What waits for a client: all that was promised, and of the rest what there is room for.

What was promised to one that stays away too long is dropped, the oldest first. How messages are
held, in memory and on disk, is `drivers/holding.py`; there is none until something has to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.broker.contract import PERSISTENT, Delivery, Message
from penstock.drivers.holding import Holding
from penstock.drivers.limits import Limits

if TYPE_CHECKING:
    from penstock.drivers.session.session import Session

_NO_LIMITS: Final = Limits()


class Waiting:
    __slots__ = ("_session", "dropped", "holding")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.dropped = 0  #: messages there was no room for
        self.holding: Holding | None = None

    def hold(self) -> Holding:
        if self.holding is None:
            session = self._session
            self.holding = Holding(
                session.kernel,
                session.directory if session.durable else None,
                _NO_LIMITS,
                expired=self.expired,
                recovered=session.drain,
                settled=session.once.released if session.durable else (),
                tracks_sent=True,
            )
        return self.holding

    @property
    def count(self) -> int:
        return self.holding.ready if self.holding is not None else 0

    @property
    def bytes(self) -> int:
        return self.holding.ready_bytes if self.holding is not None else 0

    @property
    def memory(self) -> int:
        return self.holding.memory if self.holding is not None else 0

    def add(self, message: Message) -> int:
        """It has to arrive. What became of it."""
        holding = self.hold()
        outcome = holding.add(message)
        most = self._session.kernel.settings.mqtt.max_queued
        while most and holding.ready > most and (oldest := holding.pop()) is not None:
            self._drop()
            self.done(oldest)
        return outcome

    def unpromised(self, message: Message) -> Message | None:
        """The message if it may wait though it need not arrive; None if there is no room."""
        holding = self.hold()
        settings = self._session.kernel.settings
        full = settings.mqtt.max_queued and holding.ready >= settings.mqtt.max_queued
        if full or holding.memory > settings.queue_memory_bytes:
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
        holding = self.holding
        purged = 0
        while holding is not None and holding.ready and (found := holding.pop()) is not None:
            purged += 1
            self.done(found)
        return purged

    def close(self) -> None:
        if self.holding is not None:
            self.holding.close()

    def delete(self) -> None:
        if self.holding is not None:
            self.holding.delete()

    def _drop(self) -> None:
        self.dropped += 1
        self._session.kernel.metrics.dropped += 1
