"""The contract between terminals and drivers (AMQ RFC005).

A *terminal* owns one socket and speaks one protocol; it stores no messages. A *driver* owns one
destination: an exchange, a queue, a stream. They meet on a *channel* and exchange *fragments*. All
methods return immediately:

    terminal → driver    channel_open  channel_post  channel_request
                         channel_confirm  channel_failure  channel_close
    driver → terminal    channel_forward  channel_confirm  channel_failure

Posting. A small message is one fragment, a `Message`. A large one is a `Message` with `more` set
and no body, then `Fragment`s, the last with `more` unset; the receiver releases their buckets. A
post with a non-zero receipt is answered once: `channel_confirm` (stored as required) or
`channel_failure` (with the reason).

Forwarding. A driver forwards while the channel has credit. `channel_request` sets the credit: how
many more messages the terminal accepts; zero pauses. A large message is forwarded one fragment at a
time: after a fragment with `more` set, the next `channel_request` draws the next one, so a slow
socket never fills memory. The terminal answers each delivery by `channel_confirm` (acknowledged) or
`channel_failure` (requeue or dead-letter), unless the channel was opened `settled`; this holds even
after `channel_close`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from penstock.broker.buckets import Bucket

if TYPE_CHECKING:
    from penstock.broker.message_run import MessageRun
    from penstock.broker.policies import EffectivePolicy
    from penstock.broker.spool import Spool

#: Unlimited credit; the terminal pauses the channel when its socket is full.
UNLIMITED_CREDIT: Final = 1 << 62

# Message flags: properties that drivers need without decoding the header.
PERSISTENT: Final = 1  #: survives a restart in a durable destination
MANDATORY: Final = 2  #: returned to the publisher if unroutable
EXPIRES: Final = 4  #: has a time to live
PRIORITY: Final = 8  #: has a priority
SENDER_SELECTED: Final = 16  #: has further routing keys in headers (CC, BCC)
EXACTLY_ONCE: Final = 32  #: MQTT's QoS 2
RETAIN: Final = 64  #: to be stored as the retained message of its topic
FROM_RETAINED: Final = 128  #: a retained message, not a new publish


class Message:
    """The first fragment of a message, and the whole of a small one.

    `route` (exchange and routing key, two short strings) and `header` (class, weight, body size,
    property flags, properties) are AMQP 0-9-1 bytes, so nothing is decoded between two sockets. The
    body of a complete large message is in its `spool`.
    """

    __slots__ = ("body", "flags", "header", "more", "route", "spool")

    def __init__(
        self, route: bytes, header: bytes, body: bytes, flags: int = 0, more: bool = False
    ) -> None:
        self.route = route
        self.header = header
        self.body = body
        self.flags = flags
        self.more = more  #: fragments follow
        self.spool: Spool | None = None

    @property
    def exchange(self) -> str:
        return self.route[1 : 1 + self.route[0]].decode("utf-8", "surrogateescape")

    @property
    def routing_key(self) -> str:
        return self.route[self.route[0] + 2 :].decode("utf-8", "surrogateescape")

    @property
    def size(self) -> int:
        """The length of the body, in memory or in a spool."""
        return int.from_bytes(self.header[4:12], "big")


class PagedMessage(Message):
    """Stands for the message of a delivery that is on disk only. It has the size and the flags."""

    __slots__ = ()


@lru_cache(maxsize=1024)  # shared: there may be very many deliveries
def paged_message(header: bytes, flags: int) -> PagedMessage:
    """`header` is the part with the size: class, weight, body size."""
    return PagedMessage(b"\0\0", header, b"", flags)


class Fragment:
    """A later slice of a large message; the receiver releases its bucket."""

    __slots__ = ("body", "bucket", "more")

    def __init__(self, bucket: Bucket, body: memoryview, more: bool) -> None:
        self.bucket = bucket
        self.body = body
        self.more = more


class Delivery:
    """A message of one destination, until a terminal confirms or fails it."""

    __slots__ = ("count", "expires", "message", "offset", "position", "released")

    def __init__(self, message: Message, position: int, offset: int = -1) -> None:
        self.message = message
        self.position = position  #: order within the destination
        self.offset = offset  #: in the log, or -1
        self.count = 0  #: previous deliveries
        self.released = False  #: a client released it, which does not count as a delivery
        self.expires = 0.0  #: loop time at which it expires, or 0


class Channel:
    """A channel between a terminal and a driver. Each side keeps its own state on it."""

    __slots__ = (
        "busy",
        "check_topic",
        "confirm_run",
        "credit",
        "driver",
        "forward_run",
        "pages",
        "selects",
        "settled",
        "state",
        "terminal",
    )

    def __init__(self, terminal: Terminal, driver: Driver, settled: bool = False) -> None:
        self.terminal = terminal
        self.driver = driver
        self.settled = settled  #: deliveries are not acknowledged
        self.credit = 0
        self.busy = False  #: the driver has more to forward
        self.selects: Callable[[Message], bool] | None = None  #: the filter of a stream consumer
        self.state: Any = None  #: the driver's
        self.pages: MessagePages | None = None  #: where its unacknowledged messages can be
        #: Raises unless the publisher may use a topic that is not in the route.
        self.check_topic: Callable[[str], None] | None = None
        # Set by a terminal that takes runs (`message_run.py`).
        #: Sends a run; at QoS 1 with packet ids from the given one. Returns whether the messages
        #: can be sent together; if not, nothing was sent.
        self.forward_run: Callable[[Channel, MessageRun, list[Delivery] | None, int], bool] | None
        self.forward_run = None
        #: Confirms these receipts, in order.
        self.confirm_run: Callable[[Channel, Sequence[int]], None] | None = None


class MessagePages(Protocol):
    """Messages of unacknowledged deliveries that are on disk only (`inflight_pager.py`)."""

    def page_out(self, delivery: Delivery) -> None:
        """Replace the message by a `PagedMessage`, unless it is in a spool in any case."""

    def load(self, delivery: Delivery) -> bool:
        """Read the message again, if it was paged out. False if it is damaged: the delivery is then
        settled. Raises OSError if it cannot be read now."""


class Terminal(Protocol):
    """The driver's view of a terminal."""

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        """Send a fragment to the client. `delivery` is None if it needs no answer."""

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        """The post with this receipt is stored."""

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        """The post failed; with receipt 0, the channel has ended."""


class Driver(Protocol):
    """The terminal's view of a driver."""

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        """Open a channel; raises if the destination refuses it.

        A queue takes a channel as a consumer unless the arguments have `pull` (gets single
        messages) or `post` (only posts); other arguments are the protocol's, such as `x-priority`,
        `exclusive`, `prefetch` or `x-stream-offset`.
        """

    def channel_post(
        self, channel: Channel, fragment: Message | Fragment, receipt: int = 0
    ) -> None: ...

    def channel_request(self, channel: Channel, credit: int) -> None:
        """Set the credit."""

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        """The client acknowledged a delivery."""

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        """The client rejected a delivery, or closed without an answer."""

    def channel_close(self, channel: Channel) -> None:
        """Close the channel. An incomplete post is discarded."""


# Results of `Sink.push`; those of several sinks are or-ed.
ACCEPTED: Final = 0  #: in memory, or delivered
LOGGED: Final = 1  #: in the log: stored after the next commit
REJECTED: Final = 2  #: the queue is full, or too few members of a cluster are in sync
IN_SYNC: Final = 4  #: besides LOGGED: stored when all in-sync members of the cluster have it


class Sink(Protocol):
    """Target of an exchange: a queue, a stream, or the reply channel of a client."""

    name: str

    def push(self, message: Message) -> int:
        """Returns ACCEPTED, LOGGED or REJECTED."""


@dataclass(slots=True, eq=False)
class Binding:
    source: str
    destination: Queue | Exchange
    key: str
    arguments: dict[str, Any] = field(default_factory=dict)
    #: The binding's name in the management API.
    properties_key: str = "~"

    @property
    def destination_kind(self) -> str:
        return self.destination.kind


class Destination(Driver, Protocol):
    """A driver that a virtual host can declare, compare and delete."""

    kind: str  #: "queue" or "exchange"
    name: str
    type: str
    durable: bool
    auto_delete: bool
    arguments: dict[str, Any]
    policy: EffectivePolicy

    def apply_policy(self, policy: EffectivePolicy) -> None:
        """Use the settings of changed policies."""

    def describe(self) -> dict[str, Any]:
        """The object of the management API, with RabbitMQ's field names."""

    def close(self) -> None:
        """Stop; durable data stays."""

    def delete(self) -> None:
        """Stop and delete all data."""


class Exchange(Destination, Protocol):
    internal: bool

    @property
    def uses_topic_permissions(self) -> bool:
        """Whether topic permissions apply to the routing key."""

    def topics_of(self, key: str, arguments: dict[str, Any]) -> Iterable[str]:
        """The topics that a binding reads, for topic permissions."""

    @property
    def bindings(self) -> Collection[Binding]: ...

    def add(self, binding: Binding) -> None: ...

    def remove(self, binding: Binding) -> None: ...

    def forget_routes(self) -> None:
        """Clear the route cache after a change of topology."""

    def channel_post_run(
        self, channel: Channel, run: MessageRun, receipts: Sequence[int] = ()
    ) -> bool:
        """As `channel_post` for each message, all with a receipt or none. Returns whether the
        messages can be posted together; if not, nothing was posted."""

    def accept(self, message: Message, avoid: frozenset[str] = frozenset()) -> int:
        """Route a message of the broker itself, but not to the queues in `avoid`."""


class RetainedMessages(Protocol):
    """The retained messages of a virtual host: the last one of each routing key."""

    def __len__(self) -> int: ...

    def retain(self, message: Message, volatile: bool = False) -> int:
        """Replace or, with an empty body, remove the message. LOGGED, or ACCEPTED if volatile."""

    def remove(self, key: bytes) -> int:
        """LOGGED, or ACCEPTED if there is nothing to wait for."""

    def get(self, key: bytes) -> Message | None:
        """The retained message of a key, unless it has expired."""

    def match(self, pattern: bytes) -> list[bytes]:
        """The keys that match a pattern."""

    def matching(self, pattern: bytes) -> Iterator[bytes]:
        """The same, lazily; the store may change meanwhile."""

    def messages(self, pattern: bytes) -> Iterator[Message | None]:
        """The messages of the keys that match, as `get` returns them, lazily."""

    def close(self) -> None: ...

    def delete(self) -> None: ...


class DelayedStore(Sink, Protocol):
    """Messages that wait until they are due, and are then published to their exchange."""

    def __len__(self) -> int: ...

    def close(self) -> None: ...

    def delete(self) -> None: ...


class Queue(Destination, Sink, Protocol):
    owner: object | None  #: the connection of an exclusive queue

    @property
    def message_count(self) -> int: ...

    @property
    def consumer_count(self) -> int: ...

    def purge(self) -> int: ...

    def used(self) -> None:
        """Restart the expiry of an unused queue (`x-expires`)."""

    def bound(self, binding: Binding) -> None:
        """Called after a binding to it was added."""

    def unbound(self, binding: Binding) -> None: ...


@runtime_checkable
class MessageHistory(Protocol):
    """A stream, from which a subscriber of MQTT requests past messages."""

    def history(self, start: Any, pattern: bytes) -> Iterator[Message | None]:
        """The messages that are in it now, from a stream offset on, whose routing keys match; None
        for each other message. Raises `PreconditionFailed` for an invalid offset."""


# Sessions. A session is the queue of one MQTT client; its subscriptions are bindings whose
# arguments hold QoS and options. QoS 1 and 2 messages are sent as `InflightMessage`s with a packet
# id and stay until the client has acknowledged them, also across connections.

#: The highest packet id; the lowest is 1.
MAX_PACKET_ID: Final = 65535


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """A client's subscription to a topic filter."""

    pattern: str  #: the filter as a binding key
    qos: int = 0
    identifier: int = 0  #: subscription identifier, sent with each message; 0 for none
    no_local: bool = False  #: without the client's own publishes
    as_published: bool = False  #: retain as published
    content: str = ""  #: a subscription in the content language, used instead of the pattern

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of its binding."""
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
    """The result of all subscriptions of a session that match a topic."""

    __slots__ = ("as_published", "identifiers", "plain", "qos")

    def __init__(self, qos: int, identifiers: tuple[int, ...] = (), as_published: bool = False):
        self.qos = qos  #: the highest of the matching ones; -1 for none
        self.identifiers = identifiers
        self.as_published = as_published
        self.plain = not identifiers and not as_published  #: only the message is sent


class InflightMessage(Delivery):
    """A message sent to a subscriber and not completely acknowledged."""

    __slots__ = ("packet_id", "qos", "subscription")

    def __init__(
        self, message: Message, position: int, subscription: EffectiveSubscription, qos: int
    ) -> None:
        # As `Delivery` does: there are many of them, and a call takes as long as the rest.
        self.message = message
        self.position = position
        self.offset = -1
        self.count = 0
        self.expires = 0.0
        self.subscription = subscription
        self.qos = qos
        self.packet_id = 0  #: 0 at QoS 0
        self.released = False  #: PUBREC was received; PUBREL is due


class SessionQueue(Queue, Protocol):
    """A session, as terminals see it.

    A QoS 2 message is confirmed twice: at PUBREC, which releases it, and at PUBCOMP.
    """

    #: By packet id. A `Message` alone was sent once at QoS 1, and is in no log: PUBACK removes it.
    inflight: dict[int, InflightMessage | Message]
    received: set[int]  #: packet ids of received QoS 2 publishes before PUBREL
    no_local: bool  #: some subscription has no local set
    own_message: Message | None  #: the publish in progress, for no local

    @property
    def subscription_count(self) -> int: ...

    def subscription(self, pattern: str) -> TopicSubscription | None: ...

    def attach(self, channel: Channel, window: int) -> None:
        """The client has connected; `window` is its receive maximum."""

    def deliver_past(
        self, messages: Iterator[Message | None], subscription: TopicSubscription
    ) -> None:
        """Deliver these messages as the client accepts them, and what is published now after them.
        None is a message to skip."""

    def join(self, queue: Queue, subscription: TopicSubscription) -> None:
        """Take part in a shared subscription, whose messages are in the queue."""

    def leave(self, queue: str) -> None: ...

    def add_received(self, packet_id: int) -> None:
        """A QoS 2 publish with this packet id was received."""

    def release_received(self, packet_id: int) -> None:
        """PUBREL was received."""

    def when_stored(self, callback: Callable[[], None], failed: Callable[[OSError], None]) -> None:
        """Call back when the state of QoS 2 exchanges is on disk, in a cluster on the disks of all
        in-sync members, or `failed` if it cannot be. At once if the session is not durable."""
