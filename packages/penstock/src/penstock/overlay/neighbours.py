"""Neighbours: brokers linked to this one, as the router sees them.

A neighbour stays one when its link is down: its subscriptions count, and publications for it are
queued. `NeighbourChannel` is the connection, or in a simulation the neighbour itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from penstock.content.covering import (
    CoveringMode,
    FilterForwarding,
    ForwardFilter,
    ForwardingStep,
    WithdrawFilter,
)
from penstock.content.messages import Advertisement, Subscription
from penstock.overlay.routing_tables import AdvertisementEntry, SubscriptionEntry
from penstock.wire.padres.envelope import PadresEnvelope

TRAFFIC_WINDOW_SECONDS: Final = 5.0


class NeighbourChannel(Protocol):
    def send(self, envelope: PadresEnvelope) -> int:
        """Queue a publication; send anything else, which is repeated over a new link."""

    def put(self, envelope: PadresEnvelope) -> None:
        """Send now or drop: messages between two neighbours."""


class Neighbour:
    durable = True
    checked = False

    def __init__(
        self,
        name: str,
        line: NeighbourChannel,
        advertisements: PropagatedFilters[AdvertisementEntry],
    ) -> None:
        self.name = name
        self.line = line
        self.up = False  #: there is a link
        self.failed = False  #: there is a link, but no heartbeat
        self.up_since = 0.0
        self.advertisements = advertisements
        #: Advertisements with a TTL, which cover no others.
        self.bounded: dict[AdvertisementEntry, None] = {}
        #: Subscriptions by tree.
        self.propagated_filters: dict[str, PropagatedFilters[SubscriptionEntry]] = {}
        self.traffic = LinkTraffic()

    def deliver(self, envelope: PadresEnvelope) -> int:
        return self.line.send(envelope)

    def mark_up(self, now: float) -> None:
        self.up = True
        self.failed = False
        self.up_since = now

    @property
    def usable(self) -> bool:
        return self.up and not self.failed


class LinkTraffic:
    """Recent messages in both directions, by tenths of a second."""

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
        tenths, oldest = self._tenths, int((now - TRAFFIC_WINDOW_SECONDS) * 10)
        while tenths and tenths[0][0] <= oldest:
            tenths.popleft()


Clock = Callable[[], float]


T = TypeVar("T", bound=SubscriptionEntry | AdvertisementEntry)


class PropagatedFilters(Generic[T]):
    """Filters of one neighbour along one tree; without covering, a plain set."""

    __slots__ = ("_forwarding", "_held")

    def __init__(self, forwarding: FilterForwarding[T] | None) -> None:
        self._forwarding = forwarding
        self._held: dict[T, None] = {}

    def __contains__(self, entry: T) -> bool:
        return entry in self._held

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._held))

    def __bool__(self) -> bool:
        return bool(self._held)

    def insert(self, entry: T) -> list[ForwardingStep[T]]:
        self._held[entry] = None
        if self._forwarding is None:
            return [ForwardFilter(entry)]
        message: Subscription | Advertisement = entry.message
        return self._forwarding.insert(entry, message)

    def remove(self, entry: T) -> list[ForwardingStep[T]]:
        del self._held[entry]
        if self._forwarding is None:
            return [WithdrawFilter(entry)]
        return self._forwarding.remove(entry)

    def sent(self) -> list[T]:
        """Filters that the neighbour has, in order."""
        if self._forwarding is None:
            return list(self._held)
        sent = self._forwarding.sent()
        return [entry for entry in self._held if entry in sent]


def propagated_subscriptions(
    covering: CoveringMode, strict: bool
) -> PropagatedFilters[SubscriptionEntry]:
    if covering is CoveringMode.OFF:
        return PropagatedFilters(None)
    return PropagatedFilters(FilterForwarding.of_subscriptions(covering, strict))


def propagated_advertisements(
    covering: CoveringMode, strict: bool
) -> PropagatedFilters[AdvertisementEntry]:
    if covering is CoveringMode.OFF:
        return PropagatedFilters(None)
    return PropagatedFilters(FilterForwarding.of_advertisements(covering, strict))
