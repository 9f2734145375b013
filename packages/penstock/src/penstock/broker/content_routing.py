"""Where messages of the content language meet: hops around a router.

A *hop* is where such a message comes from and goes to: a client's terminal, an exchange of the
broker, a link to a neighbour, or the broker itself. The *router* of a virtual host knows what each
hop has advertised and subscribed to, and gives every publication to the hops that want it. It knows
no sockets, and hops know no tables: terminals, drivers and the overlay are rooms side by side, and
this is all they see of one another.

What they exchange is `E`: the envelope of `wire/padres`, which this room need not know. Everything
here returns at once, within the turn of whoever calls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

#: What a broker calls hops of its own, behind its id: a client of that name would take their place.
RESERVED_HOP_NAMES: Final = re.compile(r"broker|console|monitor|exchange-.*")

E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)


class Hop(Protocol[E_contra]):
    """Somebody around a router."""

    @property
    def name(self) -> str:
        """One of a kind at its router: `B1-ada` for a client, `B2` for a neighbour."""

    @property
    def durable(self) -> bool:
        """Whether what it asked for is remembered when the broker starts again."""

    @property
    def checked(self) -> bool:
        """Whether what it publishes has to conform to what it advertised."""

    def deliver(self, envelope: E_contra) -> int:
        """Take a publication it wants: TAKEN, LOGGED or REFUSED, as a sink says."""


@dataclass(frozen=True, slots=True)
class RouterReceipt:
    """What a router answers."""

    id: str  #: the message's, given by this broker if it had none
    outcome: int = 0  #: of a publication, TAKEN, LOGGED or REFUSED or-ed over all who took it


class ContentRouter(Protocol[E]):
    """The router of a virtual host, as hops see it."""

    @property
    def broker_id(self) -> str: ...

    def attach(self, hop: Hop[E], notify_subscriptions: bool = False) -> None:
        """Add a hop, or replace the one with its name, whose registrations it then has.

        With `notify_subscriptions`, subscriptions that intersect the hop's advertisements, and
        their withdrawals, are delivered to it as to a neighbour.
        """

    def detach(self, name: str) -> None:
        """A hop is gone for good, with everything it asked for."""

    def receive(self, hop: Hop[E], envelope: E) -> RouterReceipt:
        """Take a message from a hop.

        Raises `LanguageError`, `PreconditionFailed` (a publication that conforms to nothing its
        sender advertised), `NotFound` (an id to undo that the hop does not have), `NotAllowed`.
        """
