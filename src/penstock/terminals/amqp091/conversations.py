"""The two kinds of conversation an AMQP channel has with drivers.

One AMQP channel meets many drivers: a `Producer` is its conversation with an exchange, a
`Consumer` the one with a queue. Drivers know them as channels of the contract and talk to the
connection's writing side (`outflow.py`) on them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.contract import Channel, Driver, Message
from penstock.terminals.amqp091.frames import DeliverWriter

if TYPE_CHECKING:
    from penstock.broker.destinations import Exchange
    from penstock.terminals.amqp091.channel import AmqpChannel

#: Makes the method a delivery begins with: of its tag, whether it came before, and the message.
Opening = Callable[[int, bool, Message], bytes]


class Producer(Channel):
    """The conversation of an AMQP channel with an exchange."""

    __slots__ = ("amqp", "confirms", "exchange", "post", "topical")

    def __init__(self, amqp: AmqpChannel, driver: Exchange, exchange: str) -> None:
        super().__init__(amqp.outflow, driver)
        self.amqp = amqp
        self.confirms = amqp.confirms
        self.exchange = exchange
        self.topical = driver.topical  #: topic permissions apply to routing keys
        self.check_topic = partial(amqp.connection.access.check_topic, "write", exchange)
        self.post: Callable[[Channel, Any, int], None] = driver.channel_post


class Consumer(Channel):
    """The conversation of an AMQP channel with a queue: a consumer, or a `basic.get`."""

    __slots__ = (
        "amqp",
        "arguments",
        "cancelled",
        "exclusive",
        "opening",
        "prefetch",
        "queue",
        "tag",
        "unanswered",
        "writer",
    )

    def __init__(
        self, amqp: AmqpChannel, driver: Driver, queue: str, tag: str, settled: bool, prefetch: int
    ) -> None:
        super().__init__(amqp.outflow, driver, settled)
        self.amqp = amqp
        self.queue = queue
        self.tag = tag
        self.prefetch = prefetch
        self.unanswered = 0
        self.exclusive = False
        self.cancelled = False  #: to end when the large message it is sending has left
        self.arguments: dict[str, Any] = {}
        self.opening: Opening | None = None  #: what it gets begins with no `basic.deliver`
        self.writer = DeliverWriter(amqp.number, tag.encode(), amqp.connection.frame_max)

    def request(self) -> None:
        """Ask the driver for as much as prefetch leaves room for."""
        self.driver.channel_request(self, self.amqp.credit(self))
