"""A channel of an AMQP 0-9-1 connection: what is being published, consumed and answered on it.

One AMQP channel meets many drivers: a `Producer` is its conversation with an exchange, a
`Consumer` the one with a queue. Publishing and acknowledging are here, on the short way; the
methods that come more rarely are in `handlers/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.contract import (
    EXPIRES,
    MANDATORY,
    UNLIMITED,
    Channel,
    Delivery,
    Driver,
    Message,
)
from penstock.broker.properties import decode_header, decode_route, encode_header, flags_of
from penstock.core.errors import (
    AccessRefused,
    NotFound,
    PreconditionFailed,
    Unsupported,
)
from penstock.terminals.amqp091 import methods
from penstock.terminals.amqp091.frames import DeliverWriter, ack_frame
from penstock.terminals.amqp091.methods import method_frame

if TYPE_CHECKING:
    from penstock.terminals.amqp091.content import Content
    from penstock.terminals.amqp091.terminal import Amqp091Terminal
    from penstock.terminals.amqp091.transaction import Transaction

#: Routes a channel remembers the producer of.
ROUTES: Final = 1024

#: A client consumes from this and names it as its reply-to (direct reply-to).
REPLY_TO: Final = "amq.rabbitmq.reply-to"

#: A flag of this terminal's own, beyond the contract's: the reply-to must be made out.
REPLIES: Final = 1 << 16

#: A delivery that waits for an answer.
Unanswered = tuple["Consumer", Delivery]


class Producer(Channel):
    """The conversation of an AMQP channel with an exchange."""

    __slots__ = ("amqp", "exchange", "post", "topical")

    def __init__(self, amqp: AmqpChannel, driver: Driver, exchange: str, topical: bool) -> None:
        super().__init__(amqp.connection, driver)
        self.amqp = amqp
        self.exchange = exchange
        self.topical = topical  #: topic permissions apply
        self.post: Callable[[Channel, Any, int], None] = driver.channel_post


class Consumer(Channel):
    """The conversation of an AMQP channel with a queue: a consumer, or a `basic.get`."""

    __slots__ = (
        "amqp",
        "arguments",
        "cancelled",
        "exclusive",
        "got",
        "prefetch",
        "queue",
        "tag",
        "unanswered",
        "writer",
    )

    def __init__(
        self, amqp: AmqpChannel, driver: Driver, queue: str, tag: str, settled: bool, prefetch: int
    ) -> None:
        super().__init__(amqp.connection, driver, settled)
        self.amqp = amqp
        self.queue = queue
        self.tag = tag
        self.prefetch = prefetch
        self.unanswered = 0
        self.exclusive = False
        self.cancelled = False  #: to end when the large message it is sending has left
        self.arguments: dict[str, Any] = {}
        self.got: bool | None = None  #: for a `basic.get`: whether it got something
        self.writer = DeliverWriter(amqp.number, tag.encode(), amqp.connection.frame_max)

    def request(self) -> None:
        """Ask the driver for as much as prefetch leaves room for."""
        self.driver.channel_request(self, self.amqp.credit(self))


class AmqpChannel:
    __slots__ = (
        "_ahead",
        "_by_exchange",
        "_confirmed",
        "_first",
        "_flags",
        "_header",
        "at_rest",
        "closing",
        "confirm",
        "connection",
        "consumers",
        "content",
        "global_prefetch",
        "held",
        "last_queue",
        "number",
        "prefetch",
        "producers",
        "published",
        "receipts",
        "reply_consumer",
        "sending",
        "tag",
        "transaction",
        "unanswered",
    )

    def __init__(self, connection: Amqp091Terminal, number: int) -> None:
        self.connection = connection
        self.number = number
        self.at_rest = True
        self.closing = False
        self.content: Content | None = None
        self.producers: dict[bytes, Producer] = {}
        self._by_exchange: dict[str, Producer] = {}
        self._header = b""
        self._flags = 0
        self.confirm = False
        self.published = 0
        self.receipts: list[int] = []
        self._confirmed = 0
        self._first = 0
        self._ahead: set[int] = set()
        self.transaction: Transaction | None = None
        self.consumers: dict[str, Consumer] = {}
        self.reply_consumer: Consumer | None = None
        self.unanswered: dict[int, Unanswered] = {}
        self.tag = 0
        self.prefetch = 0
        self.global_prefetch = 0
        self.last_queue = ""
        self.sending: Consumer | None = None  #: a large message is on its way out
        self.held: list[bytes] = []  #: frames that wait until it is

    # Publishing.

    def publish(self, route: bytes, bits: int, header: bytes, body: bytes) -> None:
        producer = self.producers.get(route)
        if producer is None:
            producer = self.producer(route)
        flags = self._flags if header == self._header else self.read_header(header)
        if bits:
            flags |= self.publish_flags(bits)
        if flags >= REPLIES:
            header = self._make_out_reply(header)
            flags &= REPLIES - 1
        message = Message(route, header, body, flags)
        if self.transaction is not None:
            self.transaction.publish(producer, message)
            return
        self.connection.published += 1
        if self.confirm:
            self.published = receipt = self.published + 1
            producer.post(producer, message, receipt)
        else:
            producer.post(producer, message, 0)

    def publish_flags(self, bits: int) -> int:
        if bits & 2:
            raise Unsupported("immediate=true")
        return MANDATORY if bits & 1 else 0

    def producer(self, route: bytes) -> Producer:
        """The conversation a route belongs to, begun if need be."""
        exchange, key = decode_route(route)
        producer = self._by_exchange.get(exchange)
        if producer is None:
            connection = self.connection
            connection.access.check("write", "exchange", exchange)
            driver = connection.vhost.exchange(exchange)
            if driver.internal:
                raise AccessRefused(
                    f"cannot publish to internal exchange '{exchange}' in vhost "
                    f"'{connection.vhost.name}'"
                )
            producer = Producer(self, driver, exchange, driver.type == "topic")
            driver.channel_open(producer, {})
            self._by_exchange[exchange] = producer
        if producer.topical:
            self.connection.access.check_topic("write", exchange, key)
        if len(self.producers) >= ROUTES:
            self.producers.clear()
        self.producers[route] = producer
        return producer

    def forget_producer(self, producer: Producer) -> None:
        """Its exchange is gone: the next publish there will be told so."""
        self._by_exchange.pop(producer.exchange, None)
        self.producers = {
            route: other for route, other in self.producers.items() if other is not producer
        }

    def read_header(self, header: bytes) -> int:
        flags = flags_of(header)
        if flags & EXPIRES or header[13] & 0x10:
            self._check_properties(header)
        if header[12] & 0x02 and b"amq.rabbitmq.reply-to" in header:
            flags |= REPLIES if decode_header(header).reply_to == REPLY_TO else 0
        self._header = header
        self._flags = flags
        return flags

    def _make_out_reply(self, header: bytes) -> bytes:
        """Direct reply-to: the name that leads back to this channel takes the place of ours."""
        if self.reply_consumer is None:
            raise PreconditionFailed("fast reply consumer does not exist")
        properties = decode_header(header)
        properties.reply_to = self.reply_consumer.queue
        return encode_header(properties, int.from_bytes(header[4:12], "big"))

    def _check_properties(self, header: bytes) -> None:
        properties = decode_header(header)
        expiration = properties.expiration
        if expiration is not None and not (expiration.isascii() and expiration.isdigit()):
            raise PreconditionFailed(f"invalid expiration '{expiration}': not a whole number")
        user = self.connection.access.user
        if properties.user_id not in (None, user.name) and "impersonator" not in user.tags:
            raise PreconditionFailed(
                f"user_id property set to '{properties.user_id}' but authenticated user was "
                f"'{user.name}'"
            )

    # Confirms.

    def write_confirms(self) -> None:
        """Tell the publisher what is safe, in as few words as possible."""
        receipts, self.receipts = self.receipts, []
        upto = self._confirmed
        ahead = self._ahead
        single: list[int] = []
        for receipt in receipts:
            if receipt == upto + 1:
                upto = receipt
            else:
                single.append(receipt)
        ahead.update(single)
        while ahead and upto + 1 in ahead:
            upto += 1
            ahead.discard(upto)
        if upto > self._confirmed:
            self.send(ack_frame(self.number, upto, upto - self._confirmed > 1))
            self._confirmed = upto
        for receipt in single:
            if receipt > upto:
                self.send(ack_frame(self.number, receipt, False))
        self.connection.host.kernel.metrics.confirmed += len(receipts)

    @property
    def unconfirmed(self) -> int:
        return max(0, self.published - self._confirmed - len(self._ahead))

    def refuse(self, receipt: int) -> None:
        """What was published with this receipt was not taken."""
        self._ahead.add(receipt)
        self.send(
            method_frame(self.number, methods.BASIC_NACK, delivery_tag=receipt, multiple=False)
        )

    # Answering.

    def ack(self, tag: int, multiple: bool) -> None:
        if multiple:
            for answered in self.take_unanswered(tag, True):
                self.settle(*answered)
            return
        unanswered = self.unanswered.pop(tag, None)
        if unanswered is None:
            raise PreconditionFailed(f"unknown delivery tag {tag}")
        if self.transaction is not None:
            self.transaction.answer(tag, unanswered, None)
            return
        consumer, delivery = unanswered
        consumer.unanswered -= 1
        consumer.driver.channel_confirm(consumer, delivery)
        connection = self.connection
        connection.acknowledged += 1
        connection.thirsty[consumer] = None

    def take_unanswered(self, tag: int, multiple: bool) -> list[tuple[int, Unanswered]]:
        """The deliveries an answer is about, no longer waiting for one."""
        unanswered = self.unanswered
        if multiple and tag == 0:
            tags = list(unanswered)
        elif multiple:
            if tag not in unanswered:
                raise PreconditionFailed(f"unknown delivery tag {tag}")
            tags = []
            for known in unanswered:
                if known > tag:
                    break
                tags.append(known)
        else:
            if tag not in unanswered:
                raise PreconditionFailed(f"unknown delivery tag {tag}")
            tags = [tag]
        return [(known, unanswered.pop(known)) for known in tags]

    def settle(self, tag: int, unanswered: Unanswered, requeue: bool | None = None) -> None:
        """Confirm a delivery (`requeue` None), or fail it."""
        if self.transaction is not None and not self.transaction.committing:
            self.transaction.answer(tag, unanswered, requeue)
            return
        consumer, delivery = unanswered
        consumer.unanswered -= 1
        if requeue is None:
            consumer.driver.channel_confirm(consumer, delivery)
            self.connection.acknowledged += 1
        else:
            consumer.driver.channel_failure(consumer, delivery, requeue)
        self.connection.thirsty[consumer] = None

    # Flow.

    def credit(self, consumer: Consumer) -> int:
        """How many more deliveries a consumer may have now."""
        if self.closing or self.connection.choked:
            return 0
        if self.sending is not None:
            return 1 if self.sending is consumer else 0
        if consumer.settled:
            return UNLIMITED
        credit = consumer.prefetch - consumer.unanswered if consumer.prefetch else UNLIMITED
        if self.global_prefetch:
            credit = min(credit, self.global_prefetch - len(self.unanswered))
        return max(credit, 0)

    def request_all(self) -> None:
        """Ask for every consumer, a different one first each time."""
        consumers = list(self.consumers.values())
        if not self.connection.choked:
            self._first = (self._first + 1) % max(1, len(consumers))
        for consumer in consumers[self._first :] + consumers[: self._first]:
            consumer.request()

    # Sending.

    def send(self, frame: bytes) -> None:
        """A method frame; it waits while a large message is on its way on this channel."""
        if self.sending is not None:
            self.held.append(frame)
        else:
            self.connection.send(frame)

    def reply(self, number: int, **values: Any) -> None:
        self.send(method_frame(self.number, number, **values))

    def queue_name(self, name: str) -> str:
        """The queue a method means: an empty name is the last one declared on this channel."""
        if name:
            return name
        if not self.last_queue:
            raise NotFound("no previously declared queue")
        return self.last_queue

    # The end.

    def end(self) -> None:
        """Give everything back: conversations end, what was not answered is requeued."""
        self.at_rest = False
        self.closing = True
        if self.content is not None:
            self.content.abandon()
            self.content = None
        for producer in self._by_exchange.values():
            producer.driver.channel_close(producer)
        if self.reply_consumer is not None:
            self.connection.vhost.replies.pop(self.reply_consumer.queue, None)
        if self.sending is not None and self.sending.cancelled:
            self.sending.driver.channel_close(self.sending)
        self.sending = None
        for consumer in self.consumers.values():
            consumer.driver.channel_close(consumer)
        if self.transaction is not None:
            self.transaction.rollback()
            self.transaction = None
        unanswered, self.unanswered = self.unanswered, {}
        for consumer, delivery in unanswered.values():
            consumer.driver.channel_failure(consumer, delivery, True)
        self.consumers.clear()
        self._by_exchange.clear()
        self.producers.clear()
