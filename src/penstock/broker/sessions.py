"""Sessions: what a subscriber who comes and goes has asked for, and what is on its way to it.

A session is a queue of one client's. Its subscriptions are bindings of an exchange, whose
arguments say at which quality and how; the words here are what terminals and the session's driver
(`drivers/session`) speak to each other beyond the contract. A message that must arrive goes out as
a `Letter` with a number, and is kept until the client has answered by that number; the numbers,
and how far each letter has got, outlive the connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.broker.contract import Channel, Delivery, Message
from penstock.broker.destinations import Queue

#: How many numbers there are: 1 to this.
NUMBERS: Final = 65535


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a client wants of the topics a filter matches."""

    pattern: str  #: the filter as a binding key
    qos: int = 0
    identifier: int = 0  #: told with each message that came by this subscription, unless 0
    not_own: bool = False  #: not what the client itself has published
    as_published: bool = False  #: pass the retain flag on
    content: str = ""  #: a subscription in the content language, which then is what decides

    @property
    def arguments(self) -> dict[str, Any]:
        """As the arguments of a binding."""
        arguments: dict[str, Any] = {
            "x-qos": self.qos,
            "x-identifier": self.identifier,
            "x-not-own": self.not_own,
            "x-as-published": self.as_published,
        }
        if self.content:
            arguments["x-subscription"] = self.content
        return arguments

    @classmethod
    def of(cls, pattern: str, arguments: dict[str, Any]) -> Subscription:
        return cls(
            pattern,
            arguments.get("x-qos", 0),
            arguments.get("x-identifier", 0),
            arguments.get("x-not-own", False),
            arguments.get("x-as-published", False),
            arguments.get("x-subscription", ""),
        )


class Grant:
    """What a session's subscriptions, taken together, say of one topic."""

    __slots__ = ("as_published", "identifiers", "plain", "qos")

    def __init__(self, qos: int, identifiers: tuple[int, ...] = (), as_published: bool = False):
        self.qos = qos  #: the best of those that match; -1 when none does
        self.identifiers = identifiers
        self.as_published = as_published
        self.plain = not identifiers and not as_published  #: nothing is to be told but the message


class Letter(Delivery):
    """A message on its way to a subscriber, and how far it has got."""

    __slots__ = ("grant", "number", "qos", "released")

    def __init__(self, message: Message, position: int, grant: Grant, qos: int) -> None:
        super().__init__(message, position)
        self.grant = grant
        self.qos = qos
        self.number = 0  #: by which it is answered; 0 when it is not
        self.released = False  #: the client has it, and is to be told it may forget the number


class Session(Queue, Protocol):
    """What a terminal may ask of a session beyond the contract.

    A letter of QoS 2 is confirmed twice: when the client has it, which releases it, and when the
    client has forgotten its number.
    """

    letters: dict[int, Letter]  #: out and not answered, by number
    received: set[int]  #: the numbers of what the client sent to be taken once, not released yet
    spurns_own: bool  #: some subscription does not want what the client itself publishes
    mine: Message | None  #: what it publishes right now, to be told if it spurns its own

    @property
    def subscription_count(self) -> int: ...

    def subscription(self, pattern: str) -> Subscription | None:
        """What was asked for by a filter."""

    def attach(self, channel: Channel, window: int) -> None:
        """The client is here: no more letters may be out to it than its window."""

    def recall(self, keys: Iterable[bytes], subscription: Subscription) -> None:
        """Deliver what is kept under these keys, as the client takes it and turns have time."""

    def join(self, queue: Queue, subscription: Subscription) -> None:
        """Take a share of what comes to a queue that subscribers compete for."""

    def leave(self, queue: str) -> None: ...

    def remember(self, number: int) -> None:
        """The client has sent something to be taken once under this number."""

    def forget(self, number: int) -> None:
        """The client has released this number."""
