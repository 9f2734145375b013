"""Watches what may run out: the disk under the data directory, and the memory for messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.core.machine import disk_free

if TYPE_CHECKING:
    from penstock.server.broker import Broker

#: Seconds between two looks.
LOOK_SECONDS: Final = 1.0


class Watch:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._timer: asyncio.TimerHandle | None = None
        self.faults: set[str] = set()  #: whose writes the disk refuses

    def start(self) -> None:
        self.look()
        loop = self._broker.kernel.loop
        self._timer = loop.call_later(LOOK_SECONDS, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        broker = self._broker
        free = disk_free(self._broker.data)
        broker.kernel.metrics.disk_free = free
        limit = broker.settings.disk_free_limit
        if free < limit:
            broker.alarms.sound("disk", f"low on disk: {free} bytes free, the limit is {limit}")
        elif not self.faults:
            broker.alarms.clear("disk")
        pool = broker.kernel.pool
        if pool.spent:
            broker.alarms.sound("memory", f"low on memory: {pool.used} of {pool.budget} bytes")
        else:
            broker.alarms.clear("memory")
        broker.users.refresh()
        broker.overlay.check_users()

    def fault(self, who: str, error: OSError) -> None:
        """A write failed. Whatever waited for it goes on waiting, and is tried again."""
        self.faults.add(who)
        self._broker.alarms.sound("disk", f"cannot write: {error.strerror or error}")

    def recovered(self, who: str) -> None:
        self.faults.discard(who)
        self.look()
