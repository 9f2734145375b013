"""The poll loop that moves messages: one publisher, some consumers, one thread.

It keeps the publisher as far ahead as the scenario allows, reads whatever arrives in large pieces,
and has all of it checked. Its own cost is a fraction of any broker's, so that on two cores the
broker is what is measured; the harness reports the generator's CPU time beside the broker's.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.broker.endpoints import Consumer, Publisher
from benchmarks.broker.latency import BATCH
from benchmarks.errors import PeerFailed

Progress = Callable[[int], None]

#: How far the publisher may be ahead of the slowest consumer.
AHEAD: Final = 20_000
#: Writes between two looks at what has arrived: few enough that no consumer's socket fills.
_BURST: Final = 10
#: A broker that moves nothing for so long has lost something.
_STALL_SECONDS: Final = 30.0
#: Drawing a progress bar costs a millisecond; so seldom it does not show in a figure.
_PROGRESS_SECONDS: Final = 0.5


class Pump:
    """Runs a load of `total` messages to its end."""

    __slots__ = ("_consumers", "_outstanding", "_poll", "_publisher", "_total", "_watched")

    def __init__(
        self, publisher: Publisher, consumers: Sequence[Consumer], total: int, outstanding: int
    ) -> None:
        self._publisher = publisher
        self._consumers = {consumer.socket.fileno(): consumer for consumer in consumers}
        self._total = total
        self._outstanding = outstanding
        self._poll = select.epoll()
        self._watched: dict[int, int] = {}

    def run(self, progress: Progress) -> float:
        """Returns the seconds from the first write to the last message checked and confirmed."""
        publisher = self._publisher.socket
        for sock in (publisher, *(consumer.socket for consumer in self._consumers.values())):
            sock.setblocking(False)
        started = time.perf_counter()
        shown = started
        with self._poll:
            while True:
                stuck = not self._publish()
                settled = self._acknowledge()
                self._watch(publisher.fileno(), writable=stuck)
                received = self._received()
                if self._done(received) and settled and not stuck:
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
        sent, confirms = self._publisher.sent, self._publisher.confirms
        limit = received + AHEAD
        if confirms is not None:
            limit = min(limit, confirms.confirmed + self._outstanding)
        count = min(BATCH, self._total - sent)
        return count if sent + count <= limit else 0

    def _publish(self) -> bool:
        """False when the socket is full."""
        received = self._received()
        for _ in range(_BURST):
            count = self._allowed(received)
            if not self._publisher.push(count):
                return False
            if not count:
                break
        return True

    def _acknowledge(self) -> bool:
        """False when a socket is full."""
        settled = True
        for descriptor, consumer in self._consumers.items():
            gone = consumer.push()
            settled = settled and gone
            self._watch(descriptor, writable=not gone)
        return settled

    def _take(self, events: Sequence[tuple[int, int]]) -> None:
        for descriptor, event in events:
            if not event & ~select.EPOLLOUT:
                continue
            consumer = self._consumers.get(descriptor)
            if consumer is not None:
                consumer.took(_read(consumer.socket, consumer.checker.room()))
            elif (confirms := self._publisher.confirms) is not None:
                octets = _read(self._publisher.socket, confirms.room())
                confirms.took(octets, self._publisher.sent)
            else:
                said = self._publisher.socket.recv(4096)
                raise PeerFailed(f"the broker said to a publisher: {said!r}")

    def _watch(self, descriptor: int, *, writable: bool) -> None:
        wanted = select.EPOLLIN | (select.EPOLLOUT if writable else 0)
        watched = self._watched.get(descriptor)
        if watched is None:
            self._poll.register(descriptor, wanted)
        elif watched != wanted:
            self._poll.modify(descriptor, wanted)
        self._watched[descriptor] = wanted

    def _done(self, received: int) -> bool:
        confirms = self._publisher.confirms
        return received == self._total and (confirms is None or confirms.confirmed == self._total)

    def _state(self, received: int) -> str:
        confirms = self._publisher.confirms
        confirmed = "" if confirms is None else f", {confirms.confirmed} confirmed"
        rest = b"".join(consumer.checker.check() for consumer in self._consumers.values())
        unread = f"; unfinished octets {rest[:200]!r}" if rest else ""
        return f"{self._publisher.sent} published, {received} received{confirmed}{unread}"


def _read(sock: socket.socket, room: memoryview) -> int:
    octets = sock.recv_into(room)
    if not octets:
        raise PeerFailed("the broker closed the connection under load")
    return octets
