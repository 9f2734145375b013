"""What a virtual host needs of its destinations, beyond the contract with terminals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from penstock.broker.contract import Driver, Message

# What became of a message a sink was offered; several sinks' answers are or-ed together.
TAKEN: Final = 0  #: in memory, or delivered
LOGGED: Final = 1  #: in the log: safe after the next commit
REFUSED: Final = 2  #: no room


class Sink(Protocol):
    """Where an exchange puts messages: a queue, a stream, or the reply channel of a client."""

    name: str

    def push(self, message: Message) -> int:
        """Take a message: TAKEN, LOGGED or REFUSED."""


@dataclass(slots=True, eq=False)
class Binding:
    """A rule of an exchange: what matches goes to the destination."""

    source: str
    destination: Queue | Exchange
    key: str
    arguments: dict[str, Any] = field(default_factory=dict)
    #: The key as RabbitMQ's management names it.
    properties_key: str = "~"

    @property
    def destination_kind(self) -> str:
        return self.destination.kind


class Destination(Driver, Protocol):
    """A driver with a name that a virtual host can declare, compare and delete."""

    kind: str  #: "queue" or "exchange"
    name: str
    type: str
    durable: bool
    auto_delete: bool
    arguments: dict[str, Any]

    def describe(self) -> dict[str, Any]:
        """What management shows, under RabbitMQ's field names."""

    def close(self) -> None:
        """Stop, keeping what is durable."""

    def delete(self) -> None:
        """Stop, keeping nothing."""


class Exchange(Destination, Protocol):
    internal: bool

    @property
    def topical(self) -> bool:
        """Whether the routing key is a topic, to which topic permissions apply."""

    def topics_of(self, key: str, arguments: dict[str, Any]) -> Iterable[str]:
        """The topics that a binding reads, by the names that topic permissions know."""

    @property
    def bindings(self) -> Collection[Binding]: ...

    def add(self, binding: Binding) -> None: ...

    def remove(self, binding: Binding) -> None: ...

    def forget_routes(self) -> None:
        """Topology changed: whatever was remembered of where keys lead may be wrong."""

    def accept(self, message: Message, avoid: frozenset[str] = frozenset()) -> int:
        """Route a message that comes from within the broker, but not to the queues to avoid."""


class Retained(Protocol):
    """The last message of each routing key whose publisher wanted it kept."""

    def __len__(self) -> int: ...

    def keep(self, message: Message, volatile: bool = False) -> int:
        """In place of what was there; an empty body forgets. LOGGED, or TAKEN if volatile."""

    def get(self, key: bytes) -> Message | None:
        """What is kept under a key and has not expired."""

    def match(self, pattern: bytes) -> list[bytes]:
        """The keys under which something is kept that a pattern of words wants."""

    def matching(self, pattern: bytes) -> Iterator[bytes]:
        """The same, a key at a time; others may be kept and forgotten meanwhile."""

    def close(self) -> None: ...

    def delete(self) -> None: ...


class Queue(Destination, Sink, Protocol):
    owner: object | None  #: the connection an exclusive queue belongs to

    @property
    def message_count(self) -> int: ...

    @property
    def consumer_count(self) -> int: ...

    def purge(self) -> int: ...

    def used(self) -> None:
        """Somebody showed an interest: an unused queue may have a time to live."""

    def bound(self, binding: Binding) -> None:
        """An exchange will send it more."""

    def unbound(self, binding: Binding) -> None: ...
