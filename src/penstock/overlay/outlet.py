"""What one neighbour is told along one tree: filters, less those that others cover.

An outlet decides; whoever asks it sends and withdraws what it says, in that order. Where nothing is
covered it keeps a plain set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from penstock.content.forwarding import Covering, Forwarding, Send, Step, Withdraw
from penstock.content.messages import Advertisement, Subscription
from penstock.overlay.tables import Advertised, Wanted

T = TypeVar("T", bound=Wanted | Advertised)


class Outlet(Generic[T]):
    __slots__ = ("_forwarding", "_held")

    def __init__(self, forwarding: Forwarding[T] | None) -> None:
        self._forwarding = forwarding
        self._held: dict[T, None] = {}

    def __contains__(self, entry: T) -> bool:
        return entry in self._held

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._held))

    def __bool__(self) -> bool:
        return bool(self._held)

    def insert(self, entry: T) -> list[Step[T]]:
        self._held[entry] = None
        if self._forwarding is None:
            return [Send(entry)]
        message: Subscription | Advertisement = entry.message
        return self._forwarding.insert(entry, message)

    def remove(self, entry: T) -> list[Step[T]]:
        del self._held[entry]
        if self._forwarding is None:
            return [Withdraw(entry)]
        return self._forwarding.remove(entry)

    def told(self) -> list[T]:
        """What the neighbour has, in the order it came."""
        if self._forwarding is None:
            return list(self._held)
        sent = self._forwarding.sent()
        return [entry for entry in self._held if entry in sent]


def subscriptions_outlet(covering: Covering, strict: bool) -> Outlet[Wanted]:
    if covering is Covering.OFF:
        return Outlet(None)
    return Outlet(Forwarding.of_subscriptions(covering, strict))


def advertisements_outlet(covering: Covering, strict: bool) -> Outlet[Advertised]:
    if covering is Covering.OFF:
        return Outlet(None)
    return Outlet(Forwarding.of_advertisements(covering, strict))
