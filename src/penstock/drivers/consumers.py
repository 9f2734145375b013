"""Whose turn it is: the consumers of one queue, in the order they are served.

Those with credit wait in a round. A consumer of higher priority is served before all of lower ones
for as long as it has credit. With a single active consumer only the first to come is in the round;
the next takes over when it leaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from penstock.broker.contract import Channel
from penstock.core.errors import AccessRefused


class Consumers:
    __slots__ = ("_levels", "_order", "exclusive", "single_active", "waiting")

    def __init__(self, single_active: bool) -> None:
        self.single_active = single_active
        self.exclusive = False
        #: Who would take a message now, of the highest priority that has any; next one first.
        self.waiting: deque[Channel] = deque()
        self._levels: dict[int, deque[Channel]] = {0: self.waiting}
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
        self._levels.setdefault(priority, deque())

    def remove(self, channel: Channel) -> Channel | None:
        """Forget a consumer. Returns the one that became active by it, if any."""
        was_active = self.active is channel
        self.pause(channel)
        del self._order[channel]
        self.exclusive = False
        return self.active if self.single_active and was_active else None

    def ready(self, channel: Channel) -> None:
        """It has credit."""
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
        """The next in the round, one credit poorer; None when nobody waits."""
        waiting = self.waiting
        if not waiting:
            return None
        channel = waiting[0]
        credit = channel.credit - 1
        channel.credit = credit
        if credit <= 0:
            waiting.popleft()
            if not waiting:
                self._choose()
        elif len(waiting) > 1:
            waiting.rotate(-1)
        return channel

    def _choose(self) -> None:
        if len(self._levels) == 1:
            return
        for priority in sorted(self._levels, reverse=True):
            if self._levels[priority]:
                self.waiting = self._levels[priority]
                return
        self.waiting = self._levels[0]
