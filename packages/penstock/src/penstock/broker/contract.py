"""The contract between terminals and drivers (AMQ RFC005).

A *terminal* owns one socket and speaks one protocol; it keeps no messages. A *driver* owns one
destination: an exchange, a queue, a stream. They meet on a *channel* and exchange *fragments*.
The verbs below are all that crosses the boundary, and every one of them returns at once:

    terminal → driver    channel_open  channel_post  channel_request
                         channel_confirm  channel_failure  channel_close
    driver → terminal    channel_forward  channel_confirm  channel_failure

Posting. A small message is one fragment, a `Message`. A large one is a `Message` with `more` set
and no body, then `Fragment`s, the last with `more` unset; the receiver releases their buckets. A
post with a non-zero receipt is answered, once, by `channel_confirm` (it is safe: stored where it
must be stored) or `channel_failure` (it is not, and why).

Forwarding. A driver forwards while the channel has credit. `channel_request` sets the credit: how
many more messages the terminal will take from now on; zero pauses. A large message is forwarded
one fragment at a time: after a fragment with `more` set, the next `channel_request` draws the next
one, so a slow socket never fills memory. The terminal answers each delivery by `channel_confirm`
(done with it) or `channel_failure` (put it back, or dead-letter it), unless the channel was opened
`settled`; it owes that answer even after `channel_close`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.buckets import Bucket
    from penstock.broker.spool import Spool


#: Credit of a channel that takes all it can get; the terminal pauses it when its socket is full.
UNLIMITED_CREDIT: Final = 1 << 62

# Message flags: what drivers ask of every message, so that few must decode a header.
PERSISTENT: Final = 1  #: survives a restart in a durable destination
MANDATORY: Final = 2  #: the publisher wants it back if no queue takes it
EXPIRES: Final = 4  #: carries its own time to live
PRIORITY: Final = 8  #: carries a priority
SENDER_SELECTED: Final = 16  #: headers name more routing keys (CC, BCC)
EXACTLY_ONCE: Final = (
    32  #: to be delivered exactly once (MQTT's QoS 2); persistent alone is at least once
)
RETAIN: Final = 64  #: its publisher wanted it kept for those who come later
FROM_RETAINED: Final = 128  #: comes from what was kept, not from a publisher


class Message:
    """The first fragment of a message, and the whole of a small one.

    `route` and `header` are kept as they travel in AMQP 0-9-1, so that the way from one socket to
    another decodes nothing: `route` is the exchange and the routing key as two short strings,
    `header` the content header (class, weight, body size, property flags, properties). The body of
    a large message that has arrived whole lies in its `spool`.
    """

    __slots__ = ("body", "flags", "header", "more", "route", "spool")

    def __init__(
        self, route: bytes, header: bytes, body: bytes, flags: int = 0, more: bool = False
    ) -> None:
        self.route = route
        self.header = header
        self.body = body
        self.flags = flags
        self.more = more  #: fragments of the body follow
        self.spool: Spool | None = None

    @property
    def exchange(self) -> str:
        return self.route[1 : 1 + self.route[0]].decode("utf-8", "surrogateescape")

    @property
    def routing_key(self) -> str:
        return self.route[self.route[0] + 2 :].decode("utf-8", "surrogateescape")

    @property
    def size(self) -> int:
        """The length of the body, wherever it lies."""
        return int.from_bytes(self.header[4:12], "big")


class Fragment:
    """A later slice of a large message, in a bucket that whoever takes it releases."""

    __slots__ = ("body", "bucket", "more")

    def __init__(self, bucket: Bucket, body: memoryview, more: bool) -> None:
        self.bucket = bucket
        self.body = body
        self.more = more


class Delivery:
    """A message as one destination holds it, until a terminal confirms or fails it."""

    __slots__ = ("count", "expires", "message", "offset", "position", "released")

    def __init__(self, message: Message, position: int, offset: int = -1) -> None:
        self.message = message
        self.position = position  #: order within the destination
        self.offset = offset  #: where it stands in the log, or -1
        self.count = 0  #: how often it has been delivered before
        self.released = False  #: it was with a client that gave it back, which does not count
        self.expires = 0.0  #: when its time to live ends (loop time), or 0


class Channel:
    """One conversation between a terminal and a driver. Each side keeps its own state on it."""

    __slots__ = (
        "busy",
        "check_topic",
        "credit",
        "driver",
        "selects",
        "settled",
        "state",
        "terminal",
    )

    def __init__(self, terminal: Terminal, driver: Driver, settled: bool = False) -> None:
        self.terminal = terminal
        self.driver = driver
        self.settled = settled  #: deliveries need no answer
        self.credit = 0
        self.busy = False  #: the driver has not looked at all there is to forward
        self.selects: Callable[[Message], bool] | None = None  #: what of a stream is forwarded
        self.state: Any = None  #: the driver's
        #: Raises unless who posts here may publish with a topic that the route does not name.
        self.check_topic: Callable[[str], None] | None = None


class Terminal(Protocol):
    """What a driver may ask of a terminal."""

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        """Take a fragment to the client. `delivery` is None when there is nothing to answer."""

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        """What was posted with this receipt is safe."""

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        """What was posted was not accepted; or, with receipt 0, the channel has ended."""


class Driver(Protocol):
    """What a terminal may ask of a driver."""

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        """Begin a conversation; raises when the destination will not have it.

        A queue takes a channel for a consumer unless the arguments say `pull` (it takes a message
        when it asks for one) or `post` (it only posts); the rest of them are the protocol's own,
        such as `x-priority`, `exclusive`, `prefetch` or `x-stream-offset`.
        """

    def channel_post(
        self, channel: Channel, fragment: Message | Fragment, receipt: int = 0
    ) -> None:
        """Hand over a fragment."""

    def channel_request(self, channel: Channel, credit: int) -> None:
        """Set how many more messages the terminal will take."""

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        """The client is done with a delivery."""

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        """The client could not use a delivery, or has gone without saying."""

    def channel_close(self, channel: Channel) -> None:
        """End the conversation. Half a posted message is forgotten."""


# What a virtual host needs of its destinations, beyond the contract with terminals.

# What became of a message a sink was offered; several sinks' answers are or-ed together.
ACCEPTED: Final = 0  #: in memory, or delivered
LOGGED: Final = 1  #: in the log: safe after the next commit
REJECTED: Final = 2  #: no room


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
    def uses_topic_permissions(self) -> bool:
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


class RetainedMessages(Protocol):
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


# Sessions: what a subscriber who comes and goes has asked for, and what is on its way to it.
#
# A session is a queue of one client's. Its subscriptions are bindings of an exchange, whose
# arguments say at which quality and how; the words here are what terminals and the session's driver
# (`drivers/session`) speak to each other beyond the contract. A message that must arrive goes out
# as a `InflightMessage` with a number, and is kept until the client has answered by that number;
# the numbers, and how far each letter has got, outlive the connection.

#: How many numbers there are: 1 to this.
MAX_PACKET_ID: Final = 65535


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """What a client wants of the topics a filter matches."""

    pattern: str  #: the filter as a binding key
    qos: int = 0
    identifier: int = 0  #: told with each message that came by this subscription, unless 0
    no_local: bool = False  #: not what the client itself has published
    as_published: bool = False  #: pass the retain flag on
    content: str = ""  #: a subscription in the content language, which then is what decides

    @property
    def arguments(self) -> dict[str, Any]:
        """As the arguments of a binding."""
        arguments: dict[str, Any] = {
            "x-qos": self.qos,
            "x-identifier": self.identifier,
            "x-not-own": self.no_local,
            "x-as-published": self.as_published,
        }
        if self.content:
            arguments["x-subscription"] = self.content
        return arguments

    @classmethod
    def of(cls, pattern: str, arguments: dict[str, Any]) -> TopicSubscription:
        return cls(
            pattern,
            arguments.get("x-qos", 0),
            arguments.get("x-identifier", 0),
            arguments.get("x-not-own", False),
            arguments.get("x-as-published", False),
            arguments.get("x-subscription", ""),
        )


class EffectiveSubscription:
    """What a session's subscriptions, taken together, say of one topic."""

    __slots__ = ("as_published", "identifiers", "plain", "qos")

    def __init__(self, qos: int, identifiers: tuple[int, ...] = (), as_published: bool = False):
        self.qos = qos  #: the best of those that match; -1 when none does
        self.identifiers = identifiers
        self.as_published = as_published
        self.plain = not identifiers and not as_published  #: nothing is to be told but the message


class InflightMessage(Delivery):
    """A message on its way to a subscriber, and how far it has got."""

    __slots__ = ("packet_id", "qos", "released", "subscription")

    def __init__(
        self, message: Message, position: int, subscription: EffectiveSubscription, qos: int
    ) -> None:
        super().__init__(message, position)
        self.subscription = subscription
        self.qos = qos
        self.packet_id = 0  #: 0 at QoS 0
        self.released = False  #: the client has it, and is to be told it may forget the number


class SessionQueue(Queue, Protocol):
    """What a terminal may ask of a session beyond the contract.

    A letter of QoS 2 is confirmed twice: when the client has it, which releases it, and when the
    client has forgotten its number.
    """

    inflight: dict[int, InflightMessage]  #: out and not answered, by number
    received: set[int]  #: the numbers of what the client sent to be taken once, not released yet
    no_local: bool  #: some subscription does not want what the client itself publishes
    own_message: Message | None  #: what it publishes right now, to be told if it spurns its own

    @property
    def subscription_count(self) -> int: ...

    def subscription(self, pattern: str) -> TopicSubscription | None:
        """What was asked for by a filter."""

    def attach(self, channel: Channel, window: int) -> None:
        """The client is here: no more letters may be out to it than its window."""

    def deliver_retained(self, keys: Iterable[bytes], subscription: TopicSubscription) -> None:
        """Deliver what is kept under these keys, as the client takes it and turns have time."""

    def join(self, queue: Queue, subscription: TopicSubscription) -> None:
        """Take a share of what comes to a queue that subscribers compete for."""

    def leave(self, queue: str) -> None: ...

    def add_received(self, packet_id: int) -> None:
        """The client has sent something to be taken once under this number."""

    def release_received(self, packet_id: int) -> None:
        """The client has released this number."""
