"""Links that were interrupted: what was open on them is kept until their time is over.

A link that its client has taken off without closing it, or whose connection was lost, may come
back under its name. What becomes of its open deliveries meanwhile is its terminus' to say: by
default they end with the session. A terminus that is to last longer, by its expiry policy or its
timeout, has them kept here: the client is told which they are when it attaches again, and neither
side sends twice what the other already has. Nothing is kept longer than `LONGEST`, and none of it
outlives the broker.

Of a source, deliveries are kept and stay out of the queue. Of a target, it is the tags of what was
taken in, whose sender has not settled it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.wire.amqp10.termini import (
    CONNECTION_CLOSE,
    LINK_DETACH,
    NEVER,
    SESSION_END,
    Source,
    Target,
)

if TYPE_CHECKING:
    from penstock.broker.contract import Delivery
    from penstock.terminals.amqp10.outlet import Outlet

#: Seconds that deliveries are kept at most: while they are, nobody else gets them.
LONGEST: Final = 300

#: Links that are kept at most; beyond them the first to have been interrupted is let go.
MOST: Final = 4096

#: The events that end a terminus, in the order they come.
EVENTS: Final = (LINK_DETACH, SESSION_END, CONNECTION_CLOSE, NEVER)


@dataclass(frozen=True, slots=True)
class Name:
    """By which an interrupted link is found again."""

    vhost: str
    user: str
    container: str
    link: str
    role: bool


@dataclass(slots=True)
class KeptSource:
    """The open deliveries of a link that a client receives on, by their tags."""

    outlet: Outlet
    deliveries: dict[int, Delivery]

    def let_go(self) -> None:
        for delivery in self.deliveries.values():
            self.outlet.driver.channel_failure(self.outlet, delivery, True)


@dataclass(slots=True)
class KeptTarget:
    """The tags of what is safe, and was sent on a link whose client has not settled it."""

    accepted: set[bytes] = field(default_factory=set)
    waiting: dict[int, bytes] = field(default_factory=dict)  #: not safe yet, by receipt

    def confirm(self, receipt: int) -> None:
        tag = self.waiting.pop(receipt, None)
        if tag is not None:
            self.accepted.add(tag)

    def let_go(self) -> None:
        """Nobody asked."""


Kept = KeptSource | KeptTarget


def keeps(terminus: Source | Target, event: str) -> int:
    """For how many seconds a terminus is kept after an event; 0 when that is its end."""
    if EVENTS.index(event) < EVENTS.index(terminus.expiry_policy):
        return LONGEST
    return min(terminus.timeout, LONGEST)


class Recovery:
    """The interrupted links of one broker."""

    __slots__ = ("_at", "_kept", "_timers")

    def __init__(self, at: Callable[[float, Callable[[], None]], asyncio.TimerHandle]) -> None:
        self._at = at  #: have something done in so many seconds
        self._kept: dict[Name, Kept] = {}
        self._timers: dict[Name, asyncio.TimerHandle] = {}

    def keep(self, name: Name, kept: Kept, seconds: int) -> None:
        self.expire(name)
        if len(self._kept) >= MOST:
            self.expire(next(iter(self._kept)))
        self._kept[name] = kept
        self.limit(name, kept, seconds)

    def limit(self, name: Name, kept: Kept, seconds: int) -> None:
        """It is kept so much longer, from now on; unless it is back, or gone."""
        if self._kept.get(name) is not kept:
            return
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        if seconds <= 0:
            self.expire(name)
        else:
            self._timers[name] = self._at(seconds, lambda: self.expire(name))

    def take(self, name: Name) -> Kept | None:
        """It is back."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        return self._kept.pop(name, None)

    def expire(self, name: Name) -> None:
        kept = self.take(name)
        if kept is not None:
            kept.let_go()

    def close(self) -> None:
        for name in list(self._kept):
            self.expire(name)
