"""The interface between a content router and its hops.

A *hop* is a source and target of content messages: a client's terminal, an exchange, a link to a
neighbour, or the broker itself. The *router* of a virtual host stores the advertisements and
subscriptions of each hop and delivers publications to the hops that match. Protocols, destinations
and the overlay see each other only through these interfaces.

The message type `E` is the envelope of `wire/padres`. All methods return immediately.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

#: Names of internal hops, after the broker id; clients may not use them.
RESERVED_HOP_NAMES: Final = re.compile(r"broker|console|monitor|exchange-.*")

E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)


class Hop(Protocol[E_contra]):
    """A source and target of messages."""

    @property
    def name(self) -> str:
        """Unique at its router: `B1-ada` for a client, `B2` for a neighbour."""

    @property
    def durable(self) -> bool:
        """Whether its registrations survive a restart of the broker."""

    @property
    def checked(self) -> bool:
        """Whether its publications must conform to its advertisements."""

    def deliver(self, envelope: E_contra) -> int:
        """Deliver a matching publication: ACCEPTED, LOGGED or REJECTED, as a sink returns."""


@dataclass(frozen=True, slots=True)
class RouterReceipt:
    """The result of `ContentRouter.receive`."""

    id: str  #: of the message; assigned by this broker if it had none
    outcome: int = 0  #: of a publication: ACCEPTED, LOGGED, REJECTED, or-ed over all hops


class ContentRouter(Protocol[E]):
    """The router of a virtual host."""

    @property
    def broker_id(self) -> str: ...

    def attach(self, hop: Hop[E], notify_subscriptions: bool = False) -> None:
        """Add a hop, or replace the one with its name, whose registrations it then has.

        With `notify_subscriptions`, subscriptions that intersect the hop's advertisements, and
        their withdrawals, are delivered to it as to a neighbour.
        """

    def detach(self, name: str) -> None:
        """Remove a hop and its registrations."""

    def receive(self, hop: Hop[E], envelope: E) -> RouterReceipt:
        """Route a message of a hop.

        Raises `LanguageError`, `NotAdvertised`, `NotFound` (the hop has no registration of that id)
        or `NotAllowed`.
        """
