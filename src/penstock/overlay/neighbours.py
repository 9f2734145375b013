"""Neighbours: the brokers this one is linked to, as its router sees them.

A neighbour stays one when its link breaks: what it subscribed to goes on counting, and what it is
sent waits. It is a hop, and its `Line` is where that leads: a connection, or in a simulation the
neighbour itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from penstock.overlay.outlet import Outlet
from penstock.overlay.tables import Advertised, Wanted
from penstock.wire.padres.envelope import Envelope

#: The stretch of time over which messages on a link are counted.
WINDOW_SECONDS: Final = 5.0


class Line(Protocol):
    """The way to a neighbour."""

    def send(self, envelope: Envelope) -> int:
        """Publications wait while nobody is there; everything else is told anew then."""

    def put(self, envelope: Envelope) -> None:
        """Now or not at all: what is between two neighbours."""


class Neighbour:
    lasting = True
    checked = False

    def __init__(self, name: str, line: Line, advertisements: Outlet[Advertised]) -> None:
        self.name = name
        self.line = line
        self.up = False  #: the link is there
        self.failed = False  #: it is there, and nobody answers
        self.up_since = 0.0
        self.advertisements = advertisements
        self.bounded: dict[Advertised, None] = {}  #: those with a TTL, which cover no others
        self.outlets: dict[str, Outlet[Wanted]] = {}  #: subscriptions by tree
        self.traffic = Traffic()

    def deliver(self, envelope: Envelope) -> int:
        return self.line.send(envelope)

    def came_up(self, now: float) -> None:
        self.up = True
        self.failed = False
        self.up_since = now

    @property
    def usable(self) -> bool:
        return self.up and not self.failed


class Traffic:
    """How many messages went either way of late, counted by tenths of a second."""

    __slots__ = ("_tenths", "total")

    def __init__(self) -> None:
        self._tenths: deque[list[int]] = deque()
        self.total = 0

    def count(self, now: float) -> None:
        self.total += 1
        tenth = int(now * 10)
        if self._tenths and self._tenths[-1][0] == tenth:
            self._tenths[-1][1] += 1
        else:
            self._forget(now)
            self._tenths.append([tenth, 1])

    def rate(self, now: float) -> int:
        self._forget(now)
        return sum(count for _, count in self._tenths)

    def _forget(self, now: float) -> None:
        tenths, oldest = self._tenths, int((now - WINDOW_SECONDS) * 10)
        while tenths and tenths[0][0] <= oldest:
            tenths.popleft()


Clock = Callable[[], float]
