"""A channel of an AMQP 0-9-1 connection: publishing, consuming, acknowledgements.

Publish and ack are the fast path and called by the frame reader; other methods are in `handlers/`.
Towards drivers, an AMQP channel has one channel of the contract per exchange it publishes to
(`Amqp091Producer`) and per consumer (`Amqp091Consumer`). While a large message is being sent,
everything else on the channel waits behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
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
from penstock.broker.message_run import MAX_RUN_MESSAGES, MessageRun, RunDriver
from penstock.core.basic_properties import decode_header, decode_route, encode_header
from penstock.core.errors import AccessRefused, NotFound, PreconditionFailed, Unsupported
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.frames import (
    MAX_RUN_PUBLISHES,
    BasicDeliverWriter,
    encode_basic_ack,
)
from penstock.wire.amqp091.methods import MethodArguments, encode_method_frame

if TYPE_CHECKING:
    from penstock.broker.contract import Exchange
    from penstock.protocols.amqp091.content import ContentAssembler
    from penstock.protocols.amqp091.handlers.tx import ChannelTransaction
    from penstock.protocols.amqp091.terminal import Amqp091Terminal
    from penstock.protocols.amqp091.writer import Amqp091Writer


#: Encodes the method of a delivery: from its tag, whether it is redelivered, and the message.
DeliveryMethodEncoder = Callable[[int, bool, Message], bytes]


class Amqp091Producer(Channel):
    __slots__ = (
        "channel",
        "confirms",
        "exchange",
        "permitted",
        "post",
        "post_run",
        "restricts_topics",
        "uses_topic_permissions",
    )

    def __init__(self, channel: AmqpChannel, driver: Exchange, exchange: str) -> None:
        super().__init__(channel.writer, driver)
        self.channel = channel
        self.confirms = channel.confirms
        self.exchange = exchange
        self.permitted = False  #: the user may write to the exchange
        self.uses_topic_permissions = driver.uses_topic_permissions  #: for routing keys
        self.restricts_topics = True  #: the user has such permissions
        self.check_topic = partial(channel.connection.access.check_topic, "write", exchange)
        self.post: Callable[[Channel, Any, int], None] = driver.channel_post
        self.post_run: Callable[[Channel, MessageRun, Sequence[int]], bool]
        self.post_run = driver.channel_post_run
        self.confirm_run = channel.writer.confirm_run


class Amqp091Consumer(Channel):
    """A consumer, or a `basic.get`."""

    __slots__ = (
        "arguments",
        "cancelled",
        "channel",
        "deliver_writer",
        "exclusive",
        "method_encoder",
        "prefetch",
        "queue",
        "run_driver",
        "tag",
        "unacked",
    )

    def __init__(
        self,
        channel: AmqpChannel,
        driver: Driver,
        queue: str,
        tag: str,
        settled: bool,
        prefetch: int,
    ) -> None:
        super().__init__(channel.writer, driver, settled)
        self.channel = channel
        self.run_driver = driver if isinstance(driver, RunDriver) else None
        self.queue = queue
        self.tag = tag
        self.prefetch = prefetch
        self.unacked = 0
        self.exclusive = False
        self.cancelled = False  #: ends when its large message has been sent
        self.arguments: dict[str, Any] = {}
        self.method_encoder: DeliveryMethodEncoder | None = None  #: None for `basic.deliver`
        self.forward_run = channel.writer.forward_run
        self.deliver_writer = BasicDeliverWriter(
            channel.number, tag.encode(), channel.connection.frame_max
        )

    def request(self) -> None:
        self.driver.channel_request(self, self.channel.credit(self))


#: Routes whose producer a channel caches.
MAX_CACHED_ROUTES: Final = 1024

#: The pseudo-queue of direct reply-to: clients consume from it and name it as reply-to.
DIRECT_REPLY_TO: Final = "amq.rabbitmq.reply-to"

#: A flag beyond those of the contract: the reply-to has to be resolved.
DIRECT_REPLY_FLAG: Final = 1 << 16

UnackedDelivery = tuple[Amqp091Consumer, Delivery]

#: A write behind a large message, and how many unread bytes it counts for.
DeferredWrite = tuple[Callable[[], None], int]


class ChannelConfirms:
    """Publisher confirms of one channel.

    Receipts are the delivery tags of `basic.ack`, counted from one. They arrive in any order and
    collect until the end of the write batch; consecutive ones are acknowledged together. Each tag
    is answered exactly once, by `basic.ack` or `basic.nack`: an acknowledgement with `multiple`
    covers only tags that it confirms or that were answered before.
    """

    __slots__ = ("_ahead", "_channel", "_upto", "receipts")

    def __init__(self, channel: AmqpChannel) -> None:
        self._channel: AmqpChannel | None = channel  #: None after it has closed
        self._upto = 0  #: all receipts up to this one have been answered
        self._ahead: set[int] = set()  #: answered receipts after a gap
        self.receipts: list[int] = []  #: confirmed, not yet sent

    def outstanding(self, published: int) -> int:
        return max(0, published - self._upto - len(self._ahead))

    def write(self) -> None:
        receipts, self.receipts = self.receipts, []
        channel = self._channel
        if channel is None:
            return
        before = upto = self._upto
        single: list[int] = []
        count = len(receipts)
        if receipts == [*range(before + 1, before + 1 + count)]:  # the usual case
            upto += count
        else:
            for receipt in receipts:
                if receipt == upto + 1:
                    upto = receipt
                else:
                    single.append(receipt)
        last = upto  # confirmed now, without a gap before it
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
        channel.connection.host.kernel.metrics.confirmed += count

    def refuse(self, receipt: int) -> None:
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
        ahead = self._ahead
        while ahead and self._upto + 1 in ahead:
            self._upto += 1
            ahead.discard(self._upto)

    def close(self) -> None:
        """Send the collected confirms, and none after that."""
        if self.receipts:
            self.write()
        self._channel = None


class AmqpChannel:
    __slots__ = (
        "_by_exchange",
        "_deferred",
        "_flags",
        "_next_consumer",
        "_properties",
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
        "run_limit",
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
        self.run_limit = MAX_RUN_PUBLISHES
        self.closing = False
        self.content: ContentAssembler | None = None
        self.producers: dict[bytes, Amqp091Producer] = {}
        self._by_exchange: dict[bytes, Amqp091Producer] = {}
        self._properties: bytes | None = None  # of the last header
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
        self.sending: Amqp091Consumer | None = None  #: a large message
        self._deferred: deque[DeferredWrite] = deque()  #: until it has been sent
        self._next_consumer = 0  #: the first to request; rotates

    # Publishing.

    def publish(self, route: bytes, bits: int, header: bytes, body: bytes) -> None:
        producer = self.producers.get(route)
        if producer is None:
            producer = self.producer(route)
        flags = self._flags if header[12:] == self._properties else self.read_header(header)
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

    def publish_run(
        self, route: bytes, bits: int, headers: list[bytes], bodies: list[bytes]
    ) -> None:
        if self._post_run(route, bits, headers, bodies):
            return
        # The first message makes producer, flags and route known.
        self.publish(route, bits, headers[0], bodies[0])
        headers, bodies = headers[1:], bodies[1:]
        if not bodies or not self.is_idle or self._post_run(route, bits, headers, bodies):
            return
        if len(bodies) > MAX_RUN_MESSAGES:  # there may be many receivers: the next are shorter
            self.run_limit = MAX_RUN_MESSAGES
        for start in range(0, len(bodies), MAX_RUN_MESSAGES):
            part = slice(start, start + MAX_RUN_MESSAGES)
            if self.closing:  # after an error
                return
            if not self._post_run(route, bits, headers[part], bodies[part]):
                for header, body in zip(headers[part], bodies[part], strict=True):
                    if not self.closing:
                        self.publish(route, bits, header, body)

    def _post_run(self, route: bytes, bits: int, headers: list[bytes], bodies: list[bytes]) -> bool:
        """Returns whether the messages could be posted together: all have the same flags."""
        producer = self.producers.get(route)
        if producer is None or self.transaction is not None or bits & ~1:
            return False
        flags, count = self._flags, len(bodies)
        if headers.count(headers[0]) == count:
            if headers[0][12:] != self._properties:
                return False
        elif any(header[12:] != self._properties for header in headers):
            return False
        if flags >= DIRECT_REPLY_FLAG:
            return False
        if bits:
            flags |= MANDATORY
        before = self.published
        receipts = range(before + 1, before + count + 1) if self.confirm else ()
        if not producer.post_run(producer, MessageRun(route, flags, headers, bodies), receipts):
            return False
        self.connection.published += count
        self.published += len(receipts)
        return True

    def publish_flags(self, bits: int) -> int:
        if bits & 2:
            raise Unsupported("immediate=true")
        return MANDATORY if bits & 1 else 0

    def producer(self, route: bytes) -> Amqp091Producer:
        """The producer of a route that is not cached."""
        size = route[0] + 1 if route else 0
        producer = self._by_exchange.get(route[1:size])
        is_whole = len(route) > size and len(route) == size + 1 + route[size]
        if producer is None or not producer.permitted or not is_whole:
            producer = self._open_producer(route)
        if producer.restricts_topics:
            key = route[size + 1 :].decode("utf-8", "surrogateescape")
            self.connection.access.check_topic("write", producer.exchange, key)
        if len(self.producers) >= MAX_CACHED_ROUTES:
            self.producers.clear()
        self.producers[route] = producer
        return producer

    def _open_producer(self, route: bytes) -> Amqp091Producer:
        exchange, _ = decode_route(route)
        connection = self.connection
        connection.access.check("write", "exchange", exchange)
        producer = self._by_exchange.get(route[1 : route[0] + 1])
        if producer is None:
            driver = connection.vhost.exchange(exchange)
            if driver.internal:
                raise AccessRefused(
                    f"cannot publish to internal exchange '{exchange}' in vhost "
                    f"'{connection.vhost.name}'"
                )
            producer = Amqp091Producer(self, driver, exchange)
            driver.channel_open(producer, {})
            self._by_exchange[route[1 : route[0] + 1]] = producer
        producer.permitted = True
        producer.restricts_topics = (
            producer.uses_topic_permissions and connection.access.restricts_topics(exchange)
        )
        return producer

    def forget_permissions(self) -> None:
        """Permissions have changed: they are checked again."""
        self.producers.clear()
        for producer in self._by_exchange.values():
            producer.permitted = False

    def forget_producer(self, producer: Amqp091Producer) -> None:
        """The exchange was deleted: the next publish to it fails."""
        self._by_exchange.pop(producer.exchange.encode("utf-8", "surrogateescape"), None)
        self.producers = {
            route: other for route, other in self.producers.items() if other is not producer
        }

    def read_header(self, header: bytes) -> int:
        flags = message_flags(header)
        if flags & EXPIRES or header[13] & 0x10:
            self._check_properties(header)
        if header[12] & 0x02 and b"amq.rabbitmq.reply-to" in header:
            flags |= DIRECT_REPLY_FLAG if decode_header(header).reply_to == DIRECT_REPLY_TO else 0
        self._properties = header[12:]
        self._flags = flags
        return flags

    def resolve_reply_to(self, header: bytes) -> bytes:
        """Replace the pseudo-queue by the reply queue of this channel."""
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

    # Acknowledgements.

    def ack(self, tag: int, multiple: bool) -> None:
        if multiple:
            self._ack_multiple(tag)
            return
        unacked = self.unacked.pop(tag, None)
        if unacked is None:
            raise PreconditionFailed(f"unknown delivery tag {tag}")
        if self.transaction is not None:
            self.transaction.add_acknowledgement(tag, unacked, None)
            return
        consumer, delivery = unacked
        consumer.unacked -= 1
        consumer.driver.channel_confirm(consumer, delivery)
        writer = self.writer
        writer.acknowledged += 1
        writer.awaiting_credit[consumer] = None

    def _ack_multiple(self, tag: int) -> None:
        taken = self.take_unacked(tag, True)
        if self.transaction is None and taken:
            consumer = taken[0][1][0]
            deliveries = [one[1] for _, one in taken if one[0] is consumer]
            if consumer.run_driver is not None and len(deliveries) == len(taken):
                consumer.unacked -= len(taken)
                consumer.run_driver.channel_confirm_run(consumer, deliveries)
                self.writer.acknowledged += len(taken)
                self.writer.awaiting_credit[consumer] = None
                return
        for known, unacked in taken:
            self.settle(known, unacked)

    def take_unacked(self, tag: int, multiple: bool) -> list[tuple[int, UnackedDelivery]]:
        """Remove the deliveries that an acknowledgement covers."""
        unacked = self.unacked
        if multiple and tag == 0:
            tags = list(unacked)
        elif multiple:
            if tag not in unacked:
                raise PreconditionFailed(f"unknown delivery tag {tag}")
            tags = list(takewhile(tag.__ge__, unacked))
        else:
            if tag not in unacked:
                raise PreconditionFailed(f"unknown delivery tag {tag}")
            tags = [tag]
        return [(known, unacked.pop(known)) for known in tags]

    def settle(self, tag: int, unacked: UnackedDelivery, requeue: bool | None = None) -> None:
        """Confirm a delivery (`requeue` None), or fail it."""
        if self.transaction is not None and not self.transaction.committing:
            self.transaction.add_acknowledgement(tag, unacked, requeue)
            return
        consumer, delivery = unacked
        consumer.unacked -= 1
        if requeue is None:
            consumer.driver.channel_confirm(consumer, delivery)
            self.writer.acknowledged += 1
        else:
            consumer.driver.channel_failure(consumer, delivery, requeue)
        self.writer.awaiting_credit[consumer] = None

    # The window of its consumers, for the pager.

    @property
    def last_sent(self) -> int:
        return self.tag

    def unacknowledged(self, after: int, upto: int) -> list[tuple[int, Channel, Delivery]]:
        found: list[tuple[int, Channel, Delivery]] = []
        for tag in reversed(self.unacked):
            if tag <= after:
                break
            if tag <= upto:
                found.append((tag, *self.unacked[tag]))
        found.reverse()
        return found

    # Credit.

    def credit(self, consumer: Amqp091Consumer) -> int:
        if self.closing or self.writer.output.write_blocked:
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
        if self.sending is not None and self.sending.cancelled:
            self.sending.request()  # not among the consumers any more
        consumers = list(self.consumers.values())
        if not self.writer.output.write_blocked:
            self._next_consumer = (self._next_consumer + 1) % max(1, len(consumers))
        for consumer in consumers[self._next_consumer :] + consumers[: self._next_consumer]:
            consumer.request()

    # Output.

    def send(self, frame: bytes) -> None:
        """A method frame, behind a large message and what waits for it."""
        if self.sending is None:
            self.writer.output.send(frame)
        else:
            self.after_large(partial(self.writer.output.send, frame), len(frame))

    def after_large(self, write: Callable[[], None], weight: int) -> None:
        """Write now, or after the large message and all that waits behind it.

        The weight, in bytes, counts as unread output: a client with too much of it is not read.
        """
        if self.sending is None:
            write()
        else:
            self._deferred.append((write, weight))
            self.writer.output.deferred_bytes += weight

    def next_after_large(self, write: Callable[[], None]) -> None:
        """Write before everything that waits: it belongs to the large message."""
        self._deferred.appendleft((write, 0))

    def end_large(self) -> None:
        """The large message was sent: write what waited, up to the next large one."""
        self.sending = None
        while self._deferred and self.sending is None:
            write, weight = self._deferred.popleft()
            self.writer.output.deferred_bytes -= weight
            write()
        if self.sending is None:
            self.request_all()
        self.connection.flow_control.resume_soon()

    def respond(self, request: MethodArguments, number: int, **values: Any) -> None:
        """Reply, unless the client set no-wait."""
        if not request.no_wait:
            self.reply(number, **values)

    def reply(self, number: int, **values: Any) -> None:
        self.send(encode_method_frame(self.number, number, **values))

    def queue_name(self, name: str) -> str:
        """An empty name stands for the queue declared last on this channel."""
        if name:
            return name
        if not self.last_queue:
            raise NotFound("no previously declared queue")
        return self.last_queue

    def end(self) -> None:
        """Close all producers and consumers; requeue what was not acknowledged."""
        self.connection.host.kernel.inflight_pager.discard(self)
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
        self.writer.output.deferred_bytes -= sum(weight for _, weight in self._deferred)
        self._deferred.clear()
        if self.transaction is not None:
            self.transaction.abandon()
            self.transaction = None
        for consumer in self.consumers.values():
            consumer.request()  # no credit: what is requeued goes to others
        # Requeue before the consumers close, so that the next consumer gets the oldest message.
        unacked, self.unacked = self.unacked, {}
        for consumer, delivery in unacked.values():
            consumer.driver.channel_failure(consumer, delivery, True)
        for consumer in self.consumers.values():
            consumer.driver.channel_close(consumer)
        self.consumers.clear()
        self._by_exchange.clear()
        self.producers.clear()
