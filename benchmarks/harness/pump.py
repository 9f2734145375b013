"""The poll loop that moves messages: who publishes, who consumes, one thread.

It keeps the publisher as far ahead as the scenario allows, reads whatever arrives in large pieces,
and has all of it checked. Its own cost is a fraction of any broker's, so that on two cores the
broker is what is measured; the harness reports the generator's CPU time beside the broker's.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.errors import PeerFailed
from benchmarks.harness.consumer import Consumer
from benchmarks.harness.publisher import Publisher

Progress = Callable[[int], None]

#: Messages a write, unless a scenario says otherwise.
BATCH: Final = 100
#: How far a publisher may be ahead of the slowest consumer, unless a scenario says otherwise.
AHEAD: Final = 20_000
#: Messages between two looks at what has arrived: few enough that no consumer's socket fills.
_STRETCH: Final = 1_000
#: A broker that moves nothing for so long has lost something.
_STALL_SECONDS: Final = 30.0
#: Drawing a progress bar costs a millisecond; so seldom it does not show in a figure.
_PROGRESS_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Window:
    """How far a publisher may go."""

    ahead: int = AHEAD  #: of the slowest consumer
    unconfirmed: int = 0  #: of the broker's answers; none: there are no answers


class Pump:
    """Runs a load of `total` messages to its end."""

    __slots__ = (
        "_blocked",
        "_consumers",
        "_full",
        "_poll",
        "_publisher",
        "_total",
        "_watched",
        "_window",
    )

    def __init__(
        self, publisher: Publisher, consumers: Sequence[Consumer], total: int, window: Window
    ) -> None:
        self._publisher = publisher
        self._consumers = {consumer.socket.fileno(): consumer for consumer in consumers}
        self._total = total
        self._window = window
        self._poll = select.epoll()
        self._watched: dict[int, int] = {}
        self._blocked: int | None = None  #: the publisher's descriptor that is full
        self._full: set[int] = set()  #: those of consumers that have acknowledgements to write

    def run(self, progress: Progress) -> float:
        """Returns the seconds from the first write to the last message received and confirmed."""
        for sock in self._publisher.sockets.values():
            sock.setblocking(False)
            self._watch(sock.fileno(), writable=False)
        for descriptor, consumer in self._consumers.items():
            consumer.socket.setblocking(False)
            self._watch(descriptor, writable=False)
        started = time.perf_counter()
        shown = started
        with self._poll:
            while True:
                received = self._received()
                stuck = not self._publish(received)
                self._block(self._publisher.descriptor if stuck else None)
                if self._done(received) and not stuck and not self._full:
                    return time.perf_counter() - started
                more = not stuck and self._allowed(received) > 0
                events = self._poll.poll(0 if more else _STALL_SECONDS)
                if not events and not more:
                    raise PeerFailed(f"nothing moves any more: {self._state(received)}")
                self._take(events)
                if (now := time.perf_counter()) - shown > _PROGRESS_SECONDS:
                    shown = now
                    progress(received)

    def _received(self) -> int:
        """By the consumer that is furthest behind."""
        return min(consumer.checker.received for consumer in self._consumers.values())

    def _allowed(self, received: int) -> int:
        """How many messages the next write may hold."""
        publisher, window = self._publisher, self._window
        limit = received + window.ahead
        if window.unconfirmed:
            limit = min(limit, publisher.confirmed + window.unconfirmed)
        count = min(publisher.batch, self._total - publisher.sent)
        return count if publisher.sent + count <= limit else 0

    def _publish(self, received: int) -> bool:
        """False when the socket is full."""
        publisher = self._publisher
        stop = publisher.sent + _STRETCH
        while True:
            count = self._allowed(received)
            if not publisher.push(count):
                return False
            if not count or publisher.sent >= stop:
                return True

    def _take(self, events: Sequence[tuple[int, int]]) -> None:
        for descriptor, event in events:
            consumer = self._consumers.get(descriptor)
            if consumer is None:
                if event & ~select.EPOLLOUT:
                    self._publisher.take(descriptor)
                continue
            if event & ~select.EPOLLOUT:
                consumer.take()
            if consumer.push():
                self._full.discard(descriptor)
            else:
                self._full.add(descriptor)
            self._watch(descriptor, writable=descriptor in self._full)

    def _block(self, descriptor: int | None) -> None:
        if descriptor != self._blocked:
            if self._blocked is not None:
                self._watch(self._blocked, writable=False)
            if descriptor is not None:
                self._watch(descriptor, writable=True)
            self._blocked = descriptor

    def _watch(self, descriptor: int, *, writable: bool) -> None:
        wanted = select.EPOLLIN | (select.EPOLLOUT if writable else 0)
        watched = self._watched.get(descriptor)
        if watched == wanted:
            return
        if watched is None:
            self._poll.register(descriptor, wanted)
        else:
            self._poll.modify(descriptor, wanted)
        self._watched[descriptor] = wanted

    def _done(self, received: int) -> bool:
        unconfirmed = self._window.unconfirmed and self._publisher.confirmed < self._total
        return received == self._total and not unconfirmed

    def _state(self, received: int) -> str:
        publisher = self._publisher
        confirmed = f", {publisher.confirmed} confirmed" if self._window.unconfirmed else ""
        rest = b"".join(consumer.checker.check() for consumer in self._consumers.values())
        unread = f"; unfinished octets {rest[:200]!r}" if rest else ""
        return f"{publisher.sent} published, {received} received{confirmed}{unread}"
