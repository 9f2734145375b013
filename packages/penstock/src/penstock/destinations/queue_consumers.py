"""The consumers of a queue: the order in which they are served, and their timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from penstock.broker.contract import Channel, Delivery
from penstock.broker.kernel import Kernel
from penstock.core.errors import AccessRefused, PreconditionFailed


class QueueConsumers:
    """The consumers of one queue, in the order they are served: round robin among those with
    credit, higher priorities first. With single active consumer only the first one is served."""

    __slots__ = ("_levels", "_order", "exclusive", "single_active", "waiting")

    def __init__(self, single_active: bool) -> None:
        self.single_active = single_active
        self.exclusive = False
        #: Consumers with credit of the highest priority that has any, the next first.
        self.waiting: list[Channel] = []  # smaller than a deque: most queues have few consumers
        self._levels: dict[int, list[Channel]] = {0: self.waiting}
        self._order: dict[Channel, int] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Channel]:
        return iter(list(self._order))

    @property
    def active(self) -> Channel | None:
        return next(iter(self._order), None)

    def add(self, channel: Channel, priority: int, exclusive: bool, where: str) -> None:
        if self.exclusive or (exclusive and (self._order or self.single_active)):
            raise AccessRefused(f"{where} in exclusive use")
        self.exclusive = exclusive
        self._order[channel] = priority
        self._levels.setdefault(priority, [])

    def remove(self, channel: Channel) -> Channel | None:
        """Remove a consumer; returns the new active one, if it changed."""
        was_active = self.active is channel
        self.pause(channel)
        del self._order[channel]
        self.exclusive = False
        return self.active if self.single_active and was_active else None

    def ready(self, channel: Channel) -> None:
        """The consumer has credit."""
        if self.single_active and self.active is not channel:
            return
        level = self._levels[self._order[channel]]
        if channel not in level:
            level.append(channel)
            self._choose()

    def pause(self, channel: Channel) -> None:
        level = self._levels[self._order[channel]]
        if channel in level:
            level.remove(channel)
            self._choose()

    def take(self) -> Channel | None:
        """The next consumer, whose credit is decremented; None if there is none."""
        waiting = self.waiting
        if not waiting:
            return None
        channel = waiting[0]
        credit = channel.credit - 1
        channel.credit = credit
        if credit <= 0:
            del waiting[0]
            if not waiting:
                self._choose()
        elif len(waiting) > 1:
            waiting.append(waiting.pop(0))
        return channel

    def sole(self) -> Channel | None:
        """The next consumer, if all messages go to it as far as it has credit."""
        waiting = self.waiting
        return waiting[0] if len(waiting) == 1 else None

    def _choose(self) -> None:
        if len(self._levels) == 1:
            return
        for priority in sorted(self._levels, reverse=True):
            if self._levels[priority]:
                self.waiting = self._levels[priority]
                return
        self.waiting = self._levels[0]


class ConsumerTimeout:
    """Closes channels that leave a delivery unacknowledged too long (`x-consumer-timeout`)."""

    __slots__ = ("_due", "_kernel", "_timer", "milliseconds")

    def __init__(self, kernel: Kernel, milliseconds: int) -> None:
        self._kernel = kernel
        self.milliseconds = milliseconds
        self._due: dict[Delivery, tuple[float, Channel]] = {}  # the earliest first
        self._timer: asyncio.TimerHandle | None = None

    def on_delivered(self, channel: Channel, delivery: Delivery) -> None:
        self._due[delivery] = (
            self._kernel.loop.time() + self.milliseconds / 1000,
            channel,
        )
        self._arm()

    def on_settled(self, delivery: Delivery) -> None:
        self._due.pop(delivery, None)

    def _arm(self) -> None:
        if self._timer is None and self._due:
            due, _ = next(iter(self._due.values()))
            self._timer = self._kernel.write_batch.call_at(due, self._check)

    def _check(self) -> None:
        """Fail the channels with overdue deliveries; their deliveries are requeued."""
        self._timer = None
        now = self._kernel.loop.time()
        for delivery, (due, channel) in list(self._due.items()):
            if due > now:
                break
            if delivery in self._due:  # closing its channel may have settled others
                del self._due[delivery]
                why = PreconditionFailed(
                    "delivery acknowledgement on channel timed out. "
                    f"Timeout value used: {self.milliseconds} ms"
                )
                channel.terminal.channel_failure(channel, 0, why)
        self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
