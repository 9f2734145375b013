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

from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.buckets import Bucket
    from penstock.broker.spool import Spool

#: Credit of a channel that takes all it can get; the terminal pauses it when its socket is full.
UNLIMITED: Final = 1 << 62

# Message flags: what drivers ask of every message, so that few must decode a header.
PERSISTENT: Final = 1  #: survives a restart in a durable destination
MANDATORY: Final = 2  #: the publisher wants it back if no queue takes it
EXPIRES: Final = 4  #: carries its own time to live
PRIORITY: Final = 8  #: carries a priority
SELECTS: Final = 16  #: headers name more routing keys (CC, BCC)
ONCE: Final = 32  #: to be delivered exactly once (MQTT's QoS 2); persistent alone is at least once
RETAIN: Final = 64  #: its publisher wanted it kept for those who come later
RECALLED: Final = 128  #: comes from what was kept, not from a publisher


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
