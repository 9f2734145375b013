"""A channel of an AMQP 0-9-1 connection: what is being published, consumed and answered on it.

Publishing and acknowledging are here, on the short way; the methods that come more rarely are in
`handlers/`. With each exchange and queue it meets, a channel has a conversation of its own
(`channel.py`); what it may tell a publisher of its messages is `channel.py`. It keeps the
order of what leaves on it: a large message takes a while, and the rest waits behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.content_header import message_flags
from penstock.broker.contract import (
    EXPIRES,
    MANDATORY,
    UNLIMITED_CREDIT,
    Channel,
    Delivery,
    Driver,
    Message,
)
from penstock.core.basic_properties import decode_header, decode_route, encode_header
from penstock.core.errors import AccessRefused, NotFound, PreconditionFailed, Unsupported
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.frames import BasicDeliverWriter, encode_basic_ack
from penstock.wire.amqp091.methods import encode_method_frame

if TYPE_CHECKING:
    from penstock.broker.contract import Exchange
    from penstock.protocols.amqp091.content import ContentAssembler
    from penstock.protocols.amqp091.handlers.tx import ChannelTransaction
    from penstock.protocols.amqp091.terminal import Amqp091Terminal
    from penstock.protocols.amqp091.writer import Amqp091Writer


# The two kinds of conversation an AMQP channel has with drivers.
#
# One AMQP channel meets many drivers: a `Amqp091Producer` is its conversation with an exchange, a
# `Amqp091Consumer` the one with a queue. Drivers know them as channels of the contract and talk to
# the connection's writing side (`writer.py`) on them.

#: Makes the method a delivery begins with: of its tag, whether it came before, and the message.
DeliveryMethodEncoder = Callable[[int, bool, Message], bytes]


class Amqp091Producer(Channel):
    """The conversation of an AMQP channel with an exchange."""

    __slots__ = ("amqp", "confirms", "exchange", "post", "topical")

    def __init__(self, amqp: AmqpChannel, driver: Exchange, exchange: str) -> None:
        super().__init__(amqp.writer, driver)
        self.amqp = amqp
        self.confirms = amqp.confirms
        self.exchange = exchange
        self.topical = driver.topical  #: topic permissions apply to routing keys
        self.check_topic = partial(amqp.connection.access.check_topic, "write", exchange)
        self.post: Callable[[Channel, Any, int], None] = driver.channel_post


class Amqp091Consumer(Channel):
    """The conversation of an AMQP channel with a queue: a consumer, or a `basic.get`."""

    __slots__ = (
        "amqp",
        "arguments",
        "cancelled",
        "deliver_writer",
        "exclusive",
        "opening",
        "prefetch",
        "queue",
        "tag",
        "unacked",
    )

    def __init__(
        self, amqp: AmqpChannel, driver: Driver, queue: str, tag: str, settled: bool, prefetch: int
    ) -> None:
        super().__init__(amqp.writer, driver, settled)
        self.amqp = amqp
        self.queue = queue
        self.tag = tag
        self.prefetch = prefetch
        self.unacked = 0
        self.exclusive = False
        self.cancelled = False  #: to end when the large message it is sending has left
        self.arguments: dict[str, Any] = {}
        self.opening: DeliveryMethodEncoder | None = (
            None  #: what it gets begins with no `basic.deliver`
        )
        self.deliver_writer = BasicDeliverWriter(
            amqp.number, tag.encode(), amqp.connection.frame_max
        )

    def request(self) -> None:
        """Ask the driver for as much as prefetch leaves room for."""
        self.driver.channel_request(self, self.amqp.credit(self))


#: Routes a channel remembers the producer of.
MAX_CACHED_ROUTES: Final = 1024

#: A client consumes from this and names it as its reply-to (direct reply-to).
DIRECT_REPLY_TO: Final = "amq.rabbitmq.reply-to"

#: A flag of this terminal's own, beyond the contract's: the reply-to must be made out.
DIRECT_REPLY_FLAG: Final = 1 << 16

#: A delivery that waits for an answer.
UnackedDelivery = tuple[Amqp091Consumer, Delivery]

#: What waits for a large message to leave, and how many bytes it counts for.
DeferredWrite = tuple[Callable[[], None], int]


class AmqpChannel:
    __slots__ = (
        "_by_exchange",
        "_deferred",
        "_first",
        "_flags",
        "_header",
        "closing",
        "confirm",
        "confirms",
        "connection",
        "consumers",
        "content",
        "global_prefetch",
        "is_idle",
        "last_queue",
        "number",
        "prefetch",
        "producers",
        "published",
        "reply_consumer",
        "sending",
        "streaming_body",
        "tag",
        "transaction",
        "unacked",
        "writer",
    )

    def __init__(self, connection: Amqp091Terminal, number: int) -> None:
        self.connection = connection
        self.writer: Amqp091Writer = connection.writer
        self.number: int = number
        self.is_idle = True
        self.streaming_body = False
        self.closing = False
        self.content: ContentAssembler | None = None
        self.producers: dict[bytes, Amqp091Producer] = {}
        self._by_exchange: dict[str, Amqp091Producer] = {}
        self._header = b""
        self._flags = 0
        self.confirm = False
        self.published = 0
        self.confirms: ChannelConfirms = ChannelConfirms(self)
        self.transaction: ChannelTransaction | None = None
        self.consumers: dict[str, Amqp091Consumer] = {}
        self.reply_consumer: Amqp091Consumer | None = None
        self.unacked: dict[int, UnackedDelivery] = {}
        self.tag = 0
        self.prefetch = 0
        self.global_prefetch = 0
        self.last_queue = ""
        self.sending: Amqp091Consumer | None = None  #: a large message is on its way out
        self._deferred: deque[DeferredWrite] = deque()  #: what waits until it has left
        self._first = 0  #: which consumer is asked for first

    # Publishing.

    def publish(self, route: bytes, bits: int, header: bytes, body: bytes) -> None:
        producer = self.producers.get(route)
        if producer is None:
            producer = self.producer(route)
        flags = self._flags if header == self._header else self.read_header(header)
        if bits:
            flags |= self.publish_flags(bits)
        if flags >= DIRECT_REPLY_FLAG:
            header = self.resolve_reply_to(header)
            flags &= DIRECT_REPLY_FLAG - 1
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

    def producer(self, route: bytes) -> Amqp091Producer:
        """The conversation a route belongs to, begun if need be."""
        exchange, key = decode_route(route)
        producer = self._by_exchange.get(exchange)
        connection = self.connection
        connection.access.check("write", "exchange", exchange)
        if producer is None:
            driver = connection.vhost.exchange(exchange)
            if driver.internal:
                raise AccessRefused(
                    f"cannot publish to internal exchange '{exchange}' in vhost "
                    f"'{connection.vhost.name}'"
                )
            producer = Amqp091Producer(self, driver, exchange)
            driver.channel_open(producer, {})
            self._by_exchange[exchange] = producer
        if producer.topical:
            connection.access.check_topic("write", exchange, key)
        if len(self.producers) >= MAX_CACHED_ROUTES:
            self.producers.clear()
        self.producers[route] = producer
        return producer

    def forget_producer(self, producer: Amqp091Producer) -> None:
        """Its exchange is gone: the next publish there will be told so."""
        self._by_exchange.pop(producer.exchange, None)
        self.producers = {
            route: other for route, other in self.producers.items() if other is not producer
        }

    def read_header(self, header: bytes) -> int:
        flags = message_flags(header)
        if flags & EXPIRES or header[13] & 0x10:
            self._check_properties(header)
        if header[12] & 0x02 and b"amq.rabbitmq.reply-to" in header:
            flags |= DIRECT_REPLY_FLAG if decode_header(header).reply_to == DIRECT_REPLY_TO else 0
        self._header = header
        self._flags = flags
        return flags

    def resolve_reply_to(self, header: bytes) -> bytes:
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

    # Answering.

    def ack(self, tag: int, multiple: bool) -> None:
        if multiple:
            for answered in self.take_unacked(tag, True):
                self.settle(*answered)
            return
        unacked = self.unacked.pop(tag, None)
        if unacked is None:
            raise PreconditionFailed(f"unknown delivery tag {tag}")
        if self.transaction is not None:
            self.transaction.answer(tag, unacked, None)
            return
        consumer, delivery = unacked
        consumer.unacked -= 1
        consumer.driver.channel_confirm(consumer, delivery)
        writer = self.writer
        writer.acknowledged += 1
        writer.awaiting_credit[consumer] = None

    def take_unacked(self, tag: int, multiple: bool) -> list[tuple[int, UnackedDelivery]]:
        """The deliveries an answer is about, no longer waiting for one."""
        unacked = self.unacked
        if multiple and tag == 0:
            tags = list(unacked)
        elif multiple:
            if tag not in unacked:
                raise PreconditionFailed(f"unknown delivery tag {tag}")
            tags = []
            for known in unacked:
                if known > tag:
                    break
                tags.append(known)
        else:
            if tag not in unacked:
                raise PreconditionFailed(f"unknown delivery tag {tag}")
            tags = [tag]
        return [(known, unacked.pop(known)) for known in tags]

    def settle(self, tag: int, unacked: UnackedDelivery, requeue: bool | None = None) -> None:
        """Confirm a delivery (`requeue` None), or fail it."""
        if self.transaction is not None and not self.transaction.committing:
            self.transaction.answer(tag, unacked, requeue)
            return
        consumer, delivery = unacked
        consumer.unacked -= 1
        if requeue is None:
            consumer.driver.channel_confirm(consumer, delivery)
            self.writer.acknowledged += 1
        else:
            consumer.driver.channel_failure(consumer, delivery, requeue)
        self.writer.awaiting_credit[consumer] = None

    # Flow.

    def credit(self, consumer: Amqp091Consumer) -> int:
        """How many more deliveries a consumer may have now."""
        if self.closing or self.writer.write_blocked:
            return 0
        if self.sending is not None:
            return 1 if self.sending is consumer else 0
        if consumer.settled:
            return UNLIMITED_CREDIT
        credit = consumer.prefetch - consumer.unacked if consumer.prefetch else UNLIMITED_CREDIT
        if self.global_prefetch:
            credit = min(credit, self.global_prefetch - len(self.unacked))
        return max(credit, 0)

    def request_all(self) -> None:
        """Ask for every consumer, a different one first each time."""
        if self.sending is not None and self.sending.cancelled:
            self.sending.request()  # it is no longer among them, but has to finish
        consumers = list(self.consumers.values())
        if not self.writer.write_blocked:
            self._first = (self._first + 1) % max(1, len(consumers))
        for consumer in consumers[self._first :] + consumers[: self._first]:
            consumer.request()

    # Sending.

    def send(self, frame: bytes) -> None:
        """A method frame, in its turn."""
        if self.sending is None:
            self.writer.send(frame)
        else:
            self.after_large(partial(self.writer.send, frame), len(frame))

    def after_large(self, go: Callable[[], None], weight: int) -> None:
        """Do it now, or behind the large message that is on its way out and all that waits.

        The weight is in bytes: a client for whom too much waits is not read from.
        """
        if self.sending is None:
            go()
        else:
            self._deferred.append((go, weight))
            self.writer.held += weight

    def next_after_large(self, go: Callable[[], None]) -> None:
        """Do it before all that waits: it belongs to the large message."""
        self._deferred.appendleft((go, 0))

    def end_large(self) -> None:
        """It has left. What waited goes on, until the next large one."""
        self.sending = None
        while self._deferred and self.sending is None:
            go, weight = self._deferred.popleft()
            self.writer.held -= weight
            go()
        if self.sending is None:
            self.request_all()
        self.connection.flow_control.resume_soon()

    def reply(self, number: int, **values: Any) -> None:
        self.send(encode_method_frame(self.number, number, **values))

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
        self.confirms.close()
        self.is_idle = False
        self.closing = True
        if self.content is not None:
            self.content.abandon()
            self.content = None
        for producer in self._by_exchange.values():
            producer.driver.channel_close(producer)
        if self.reply_consumer is not None:
            self.connection.vhost.replies.pop(self.reply_consumer.queue, None)
            self.reply_consumer = None
        if self.sending is not None and self.sending.cancelled:
            self.sending.driver.channel_close(self.sending)
        self.sending = None
        self.writer.held -= sum(weight for _, weight in self._deferred)
        self._deferred.clear()
        if self.transaction is not None:
            self.transaction.rollback()
            self.transaction = None
        for consumer in self.consumers.values():
            consumer.request()  # nothing more: what is requeued shall not come back here
        # Requeued before the consumers leave: a successor begins with the oldest message.
        unacked, self.unacked = self.unacked, {}
        for consumer, delivery in unacked.values():
            consumer.driver.channel_failure(consumer, delivery, True)
        for consumer in self.consumers.values():
            consumer.driver.channel_close(consumer)
        self.consumers.clear()
        self._by_exchange.clear()
        self.producers.clear()


# Publisher confirms: what is safe, told to the publisher in as few words as possible.
#
# Receipts are the delivery tags of `basic.ack` and count from one. They come as destinations see
# fit and gather until the turn ends; those that follow one another are then told by one
# acknowledgement. Each tag is answered once, by `basic.ack` or by `basic.nack`: an acknowledgement
# ends at a tag that is confirmed by it, and with `multiple` it passes only over tags that have had
# their answer.


class ChannelConfirms:
    __slots__ = ("_ahead", "_channel", "_upto", "receipts")

    def __init__(self, channel: AmqpChannel) -> None:
        self._channel: AmqpChannel | None = channel  #: None once it has closed
        self._upto = 0  #: all receipts up to this one have been answered
        self._ahead: set[int] = set()  #: and these beyond it
        self.receipts: list[int] = []  #: safe, and not told yet

    def outstanding(self, published: int) -> int:
        """How many of the receipts given out so far wait for an answer."""
        return max(0, published - self._upto - len(self._ahead))

    def write(self) -> None:
        """Tell what has gathered; nobody is told on a channel that has closed."""
        receipts, self.receipts = self.receipts, []
        channel = self._channel
        if channel is None:
            return
        before = upto = self._upto
        single: list[int] = []
        for receipt in receipts:
            if receipt == upto + 1:
                upto = receipt
            else:
                single.append(receipt)
        last = upto  # of those that are confirmed here and have no gap before them
        self._upto = upto
        if single or self._ahead:
            self._ahead.update(single)
            self._advance()
            last = max([upto, *(receipt for receipt in single if receipt <= self._upto)])
        if last > before:
            channel.send(encode_basic_ack(channel.number, last, last - before > 1))
        for receipt in single:
            if receipt > last:
                channel.send(encode_basic_ack(channel.number, receipt, False))
        channel.connection.host.kernel.metrics.confirmed += len(receipts)

    def refuse(self, receipt: int) -> None:
        """What was published with this receipt was not taken."""
        channel = self._channel
        if channel is None:
            return
        self._ahead.add(receipt)
        self._advance()
        nack = encode_method_frame(
            channel.number, methods.BASIC_NACK, delivery_tag=receipt, multiple=False
        )
        channel.send(nack)

    def _advance(self) -> None:
        """Those beyond a gap that has closed are beyond it no longer."""
        ahead = self._ahead
        while ahead and self._upto + 1 in ahead:
            self._upto += 1
            ahead.discard(self._upto)

    def close(self) -> None:
        """The channel closes: tell what has gathered, and nothing after that."""
        if self.receipts:
            self.write()
        self._channel = None
