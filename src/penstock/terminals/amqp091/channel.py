"""A channel of an AMQP 0-9-1 connection: what is being published, consumed and answered on it.

Publishing and acknowledging are here, on the short way; the methods that come more rarely are in
`handlers/`. With each exchange and queue it meets, a channel has a conversation of its own
(`conversations.py`); what it may tell a publisher of its messages is `confirms.py`. It keeps the
order of what leaves on it: a large message takes a while, and the rest waits behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.contract import EXPIRES, MANDATORY, UNLIMITED, Delivery, Message
from penstock.broker.properties import flags_of
from penstock.core.errors import AccessRefused, NotFound, PreconditionFailed, Unsupported
from penstock.core.properties import decode_header, decode_route, encode_header
from penstock.terminals.amqp091.confirms import Confirms
from penstock.terminals.amqp091.conversations import Consumer, Producer
from penstock.terminals.amqp091.methods import method_frame

if TYPE_CHECKING:
    from penstock.terminals.amqp091.content import Content
    from penstock.terminals.amqp091.outflow import Outflow
    from penstock.terminals.amqp091.terminal import Amqp091Terminal
    from penstock.terminals.amqp091.transaction import Transaction

#: Routes a channel remembers the producer of.
ROUTES: Final = 1024

#: A client consumes from this and names it as its reply-to (direct reply-to).
REPLY_TO: Final = "amq.rabbitmq.reply-to"

#: A flag of this terminal's own, beyond the contract's: the reply-to must be made out.
REPLIES: Final = 1 << 16

#: A delivery that waits for an answer.
Unanswered = tuple[Consumer, Delivery]

#: What waits for a large message to leave, and how many bytes it counts for.
Behind = tuple[Callable[[], None], int]


class AmqpChannel:
    __slots__ = (
        "_behind",
        "_by_exchange",
        "_first",
        "_flags",
        "_header",
        "at_rest",
        "closing",
        "confirm",
        "confirms",
        "connection",
        "consumers",
        "content",
        "global_prefetch",
        "last_queue",
        "number",
        "outflow",
        "pouring",
        "prefetch",
        "producers",
        "published",
        "reply_consumer",
        "sending",
        "tag",
        "transaction",
        "unanswered",
    )

    def __init__(self, connection: Amqp091Terminal, number: int) -> None:
        self.connection = connection
        self.outflow: Outflow = connection.outflow
        self.number: int = number
        self.at_rest = True
        self.pouring = False
        self.closing = False
        self.content: Content | None = None
        self.producers: dict[bytes, Producer] = {}
        self._by_exchange: dict[str, Producer] = {}
        self._header = b""
        self._flags = 0
        self.confirm = False
        self.published = 0
        self.confirms: Confirms = Confirms(self)
        self.transaction: Transaction | None = None
        self.consumers: dict[str, Consumer] = {}
        self.reply_consumer: Consumer | None = None
        self.unanswered: dict[int, Unanswered] = {}
        self.tag = 0
        self.prefetch = 0
        self.global_prefetch = 0
        self.last_queue = ""
        self.sending: Consumer | None = None  #: a large message is on its way out
        self._behind: deque[Behind] = deque()  #: what waits until it has left
        self._first = 0  #: which consumer is asked for first

    # Publishing.

    def publish(self, route: bytes, bits: int, header: bytes, body: bytes) -> None:
        producer = self.producers.get(route)
        if producer is None:
            producer = self.producer(route)
        flags = self._flags if header == self._header else self.read_header(header)
        if bits:
            flags |= self.publish_flags(bits)
        if flags >= REPLIES:
            header = self.make_out_reply(header)
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
        connection = self.connection
        connection.access.check("write", "exchange", exchange)
        if producer is None:
            driver = connection.vhost.exchange(exchange)
            if driver.internal:
                raise AccessRefused(
                    f"cannot publish to internal exchange '{exchange}' in vhost "
                    f"'{connection.vhost.name}'"
                )
            producer = Producer(self, driver, exchange)
            driver.channel_open(producer, {})
            self._by_exchange[exchange] = producer
        if producer.topical:
            connection.access.check_topic("write", exchange, key)
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

    def make_out_reply(self, header: bytes) -> bytes:
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
        outflow = self.outflow
        outflow.acknowledged += 1
        outflow.thirsty[consumer] = None

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
            self.outflow.acknowledged += 1
        else:
            consumer.driver.channel_failure(consumer, delivery, requeue)
        self.outflow.thirsty[consumer] = None

    # Flow.

    def credit(self, consumer: Consumer) -> int:
        """How many more deliveries a consumer may have now."""
        if self.closing or self.outflow.choked:
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
        if self.sending is not None and self.sending.cancelled:
            self.sending.request()  # it is no longer among them, but has to finish
        consumers = list(self.consumers.values())
        if not self.outflow.choked:
            self._first = (self._first + 1) % max(1, len(consumers))
        for consumer in consumers[self._first :] + consumers[: self._first]:
            consumer.request()

    # Sending.

    def send(self, frame: bytes) -> None:
        """A method frame, in its turn."""
        if self.sending is None:
            self.outflow.send(frame)
        else:
            self.after_large(partial(self.outflow.send, frame), len(frame))

    def after_large(self, go: Callable[[], None], weight: int) -> None:
        """Do it now, or behind the large message that is on its way out and all that waits.

        The weight is in bytes: a client for whom too much waits is not read from.
        """
        if self.sending is None:
            go()
        else:
            self._behind.append((go, weight))
            self.outflow.held += weight

    def next_after_large(self, go: Callable[[], None]) -> None:
        """Do it before all that waits: it belongs to the large message."""
        self._behind.appendleft((go, 0))

    def end_large(self) -> None:
        """It has left. What waited goes on, until the next large one."""
        self.sending = None
        while self._behind and self.sending is None:
            go, weight = self._behind.popleft()
            self.outflow.held -= weight
            go()
        if self.sending is None:
            self.request_all()
        self.connection.intake.resume_soon()

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
        self.confirms.close()
        self.at_rest = False
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
        self.outflow.held -= sum(weight for _, weight in self._behind)
        self._behind.clear()
        if self.transaction is not None:
            self.transaction.rollback()
            self.transaction = None
        for consumer in self.consumers.values():
            consumer.request()  # nothing more: what is requeued shall not come back here
        # Requeued before the consumers leave: a successor begins with the oldest message.
        unanswered, self.unanswered = self.unanswered, {}
        for consumer, delivery in unanswered.values():
            consumer.driver.channel_failure(consumer, delivery, True)
        for consumer in self.consumers.values():
            consumer.driver.channel_close(consumer)
        self.consumers.clear()
        self._by_exchange.clear()
        self.producers.clear()
