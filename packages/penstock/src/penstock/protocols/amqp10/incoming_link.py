"""A link on which a client sends: deliveries become messages, and outcomes are returned.

A link with a target publishes to one exchange. On the anonymous terminus each message names its
address, and the link has a producer per exchange. Receipts of the contract are delivery ids plus
one, because a receipt is not zero. An unroutable message is released, a refused one rejected.
Unsettled deliveries count against the link credit, which bounds what waits for the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from time import time
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.contract import MANDATORY, Channel, Message
from penstock.broker.message_run import MAX_RUN_MESSAGES, MessageRun
from penstock.core.basic_properties import encode_route
from penstock.core.errors import AccessRefused, PenstockError, PreconditionFailed
from penstock.protocols.amqp10.addresses import LinkAddress, parse_link_address
from penstock.protocols.amqp10.conversion.decoder import (
    ConvertedMessage,
    convert_incoming,
    convert_incoming_head,
)
from penstock.protocols.amqp10.errors import to_amqp10_error, to_link_fault
from penstock.protocols.amqp10.transactions import find_transaction
from penstock.protocols.fragment_poster import FragmentPoster
from penstock.wire.amqp10.codec import decode_whole
from penstock.wire.amqp10.errors import (
    DECODE_ERROR,
    MESSAGE_TOO_LARGE,
    NOT_FOUND,
    LinkFault,
    TruncatedValue,
)
from penstock.wire.amqp10.message import DATA, FOOTER, MessageHead, read_head, section_at
from penstock.wire.amqp10.performatives import ACCEPTED, Rejected, TransactionalState

if TYPE_CHECKING:
    from penstock.broker.contract import Exchange
    from penstock.protocols.amqp10.recovery import SuspendedTarget
    from penstock.protocols.amqp10.terminal import Amqp10Terminal
    from penstock.wire.amqp10.links import IncomingDelivery, ReceiverLink


#: Deliveries in transit and unsettled, per link.
LINK_CREDIT: Final = 1024

#: Routes and addresses that a link caches.
MAX_CACHED_ROUTES: Final = 1024


class Amqp10Producer(Channel):
    __slots__ = ("exchange", "incoming_link", "post", "post_run", "uses_topic_permissions")

    def __init__(self, incoming_link: IncomingLink, driver: Exchange, exchange: str) -> None:
        super().__init__(incoming_link.terminal.writer, driver)
        self.incoming_link = incoming_link
        self.exchange = exchange
        self.uses_topic_permissions = (
            driver.uses_topic_permissions
        )  #: topic permissions apply to routing keys
        self.check_topic = partial(incoming_link.terminal.access.check_topic, "write", exchange)
        self.confirm_run = incoming_link.terminal.writer.confirm_run
        self.post: Callable[[Channel, Any, int], None] = driver.channel_post
        self.post_run: Callable[[Channel, MessageRun, Sequence[int]], bool]
        self.post_run = driver.channel_post_run


class IncomingLink:
    __slots__ = (
        "_addresses",
        "_assembler",
        "_by_exchange",
        "_producers",
        "_route",
        "_run",
        "_run_receipts",
        "known",
        "link",
        "suspended",
        "target",
        "terminal",
        "unsettled",
    )

    def __init__(
        self, terminal: Amqp10Terminal, link: ReceiverLink, target: LinkAddress | None
    ) -> None:
        self.terminal = terminal
        self.link = link
        self.target = target  #: None on the anonymous terminus
        self.unsettled = 0  #: deliveries without an outcome
        self.known: set[bytes] = set()  #: tags of deliveries accepted before an interruption
        self.suspended: SuspendedTarget | None = None  #: collects confirms while disconnected
        self._route: bytes | None = None  #: of all messages, if the target determines it
        self._by_exchange: dict[str, Amqp10Producer] = {}
        self._producers: dict[bytes, Amqp10Producer] = {}
        self._addresses: dict[str, LinkAddress] = {}
        self._assembler: DeliveryAssembler | None = None
        self._run: list[Message] = []  #: not posted yet; all with the same route and flags
        self._run_receipts: list[int] = []  #: one for each message, or none
        if target is not None:
            self._route = self._route_to(target)
            if self._route is not None:
                self.producer(self._route)
            else:
                self._open_producer(target.name)

    # Routes.

    @staticmethod
    def _route_to(address: LinkAddress) -> bytes | None:
        """None if the routing key is the subject of each message."""
        if address.kind != "exchange":
            return encode_route("", address.name)
        return None if address.key is None else encode_route(address.name, address.key)

    def producer(self, route: bytes) -> Amqp10Producer:
        exchange = route[1 : 1 + route[0]].decode("utf-8", "surrogateescape")
        producer = self._open_producer(exchange)
        if producer.uses_topic_permissions:
            key = route[route[0] + 2 :].decode("utf-8", "surrogateescape")
            self.terminal.access.check_topic("write", exchange, key)
        if len(self._producers) >= MAX_CACHED_ROUTES:
            self._producers.clear()
        self._producers[route] = producer
        return producer

    def _open_producer(self, exchange: str) -> Amqp10Producer:
        terminal = self.terminal
        terminal.access.check("write", "exchange", exchange)
        producer = self._by_exchange.get(exchange)
        if producer is None:
            driver = terminal.vhost.exchange(exchange)
            if driver.internal:
                raise AccessRefused(
                    f"cannot publish to internal exchange '{exchange}' in vhost "
                    f"'{terminal.vhost.name}'"
                )
            producer = Amqp10Producer(self, driver, exchange)
            driver.channel_open(producer, {})
            self._by_exchange[exchange] = producer
        return producer

    def clear_producers(self) -> None:
        self._producers.clear()

    def _resolve_address(self, to: str | None) -> LinkAddress:
        if to is None:
            raise LinkFault(NOT_FOUND, "property `to` is required on the anonymous terminus")
        address = self._addresses.get(to)
        if address is None:
            address = parse_link_address(to)
            if address.kind == "exchange":
                self.terminal.vhost.exchange(address.name)
            if len(self._addresses) >= MAX_CACHED_ROUTES:
                self._addresses.clear()
            self._addresses[to] = address
        return address

    def route_of(self, message: ConvertedMessage) -> bytes:
        user = self.terminal.access.user
        if message.user_id is not None and message.user_id != user.name.encode():
            self._check_impersonation(message.user_id)
        if self._route is not None:
            return self._route
        address = self.target
        if address is None:
            address = self._resolve_address(message.to)
            route = self._route_to(address)
            if route is not None:
                return route
        return encode_route(address.name, message.subject or "")

    def _check_impersonation(self, user_id: bytes) -> None:
        user = self.terminal.access.user
        if "impersonator" not in user.tags:
            claimed = user_id.decode("utf-8", "replace")
            raise PreconditionFailed(f"user-id is '{claimed}' but the user is '{user.name}'")

    # Deliveries.

    def receive(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None:
        """A delivery, or a transfer of one."""
        if (
            delivery.state is None
            and not more
            and not delivery.resumed
            and self._assembler is None
            and len(payload) <= self.terminal.spool_threshold
        ):
            self.publish(delivery, payload)
            self.replenish_credit()
            return
        self.terminal.post_run()
        if delivery.state is not None and isinstance(delivery.state, TransactionalState):
            transaction = find_transaction(self.terminal, delivery.state)
            transaction.receive(self, delivery, payload, more)
            self.replenish_credit()
            return
        if delivery.resumed and delivery.tag in self.known:
            if not more:
                self.known.discard(delivery.tag)
                delivery.settle(ACCEPTED)
                self.replenish_credit()
            return
        if self._assembler is None:
            self._assembler = DeliveryAssembler(self, delivery)
        self._assembler.add(payload, more)
        if not more:
            self._assembler = None
        self.replenish_credit()

    def publish(self, delivery: IncomingDelivery, payload: bytes) -> None:
        """A complete, small delivery. It is posted with others like it that follow."""
        receipt = 0
        if not delivery.settled:
            receipt = delivery.id + 1
            self.unsettled += 1
        try:
            converted = convert_incoming(payload, time())
            route = self.route_of(converted)
            if route not in self._producers:
                self.terminal.post_run()
                self.producer(route)
        except PenstockError as error:
            self.refuse(receipt, error)
            return
        flags = converted.flags
        if receipt:
            flags |= MANDATORY
        run = self._run
        if run and (len(run) == MAX_RUN_MESSAGES or run[0].route != route or run[0].flags != flags):
            self.terminal.post_run()
            run = self._run
        self.terminal.run_link = self
        run.append(Message(route, converted.header, converted.body, flags))
        if receipt:
            self._run_receipts.append(receipt)

    def post_run(self) -> None:
        """Post the messages that were collected. Raises `LinkFault` if that ends the link."""
        messages, receipts = self._run, self._run_receipts
        self._run, self._run_receipts = [], []
        producer = self._producers.get(messages[0].route) or self.producer(messages[0].route)
        count = len(messages)
        if count > 1:
            run = MessageRun.of(messages)
            if producer.post_run(producer, run, receipts):
                self.terminal.published += count
                return
        for message, receipt in zip(messages, receipts or repeat(0), strict=False):
            try:
                producer.post(producer, message, receipt)
            except PenstockError as error:
                self.refuse(receipt, error)
            else:
                self.terminal.published += 1

    def receipt(self, delivery: IncomingDelivery) -> int:
        """The receipt to post with; 0 if the client expects no outcome."""
        if delivery.settled:
            return 0
        self.unsettled += 1
        return delivery.id + 1

    def post(self, message: Message, receipt: int) -> Amqp10Producer:
        producer = self._producers.get(message.route)
        if producer is None:
            producer = self.producer(message.route)
        if receipt:
            message.flags |= MANDATORY
        producer.post(producer, message, receipt)
        return producer

    def refuse(self, receipt: int, error: PenstockError) -> None:
        """Reject a message; an error of the link's own target ends the link."""
        if self.target is not None and not isinstance(error, PreconditionFailed):
            raise to_link_fault(error)
        if receipt:
            self.settle(receipt, Rejected(to_amqp10_error(error)))
        else:
            self.terminal.host.kernel.metrics.unroutable += 1

    def post_partial_bucket(self) -> None:
        if self._assembler is not None:
            self._assembler.post_partial_bucket()

    def abandon(self) -> None:
        """The rest of a delivery will not arrive."""
        if self._assembler is not None:
            assembler, self._assembler = self._assembler, None
            assembler.abandon()
        self.replenish_credit()

    def close_producer(self, producer: Amqp10Producer) -> None:
        """Part of a message was posted: closing its producer discards it."""
        producer.driver.channel_close(producer)
        self._by_exchange.pop(producer.exchange, None)
        self._producers.clear()

    # Outcomes.

    def settle(self, receipt: int, outcome: Any) -> None:
        delivery = self.link.session.incoming.get(receipt - 1)
        if delivery is not None and delivery.link is self.link:
            delivery.settle(outcome)
            if delivery.settled:
                self.settled()

    def settled(self) -> None:
        self.unsettled -= 1
        self.replenish_credit()

    def replenish_credit(self) -> None:
        """Grant credit again when the client has used up half of it."""
        link = self.link
        if link.credit + self.unsettled <= LINK_CREDIT // 2 and link.live:
            link.grant(LINK_CREDIT - self.unsettled)

    def forget_producer(self, producer: Amqp10Producer) -> bool:
        """The exchange was deleted; returns whether that ends the link."""
        self._by_exchange.pop(producer.exchange, None)
        self._producers.clear()
        self._addresses.clear()
        return self.target is not None

    def end(self) -> None:
        if self._assembler is not None:
            self._assembler.abandon()
            self._assembler = None
        for producer in self._by_exchange.values():
            producer.driver.channel_close(producer)
        self._by_exchange.clear()
        self._producers.clear()


class DeliveryAssembler:
    """A delivery that arrives in several transfers.

    A small one is collected and published whole. One that outgrows the spool threshold goes to the
    exchange as fragments; only the sections before its body are kept, and they must fit into the
    threshold. The size is known after the last transfer: the content header is completed then,
    before the last fragment is posted.
    """

    __slots__ = (
        "_body",
        "_delivery",
        "_head",
        "_link",
        "_message",
        "_parts",
        "_poster",
        "_producer",
        "_rejected",
        "_size",
    )

    def __init__(self, link: IncomingLink, delivery: IncomingDelivery) -> None:
        self._link = link
        self._delivery = delivery
        self._parts: list[bytes] = []
        self._size = 0
        self._rejected = False  #: the remaining transfers are discarded
        # Of a large message, whose head is complete:
        self._head: MessageHead
        self._message: Message
        self._body: DataSectionReader | RawSectionReader | None = None
        self._producer: Amqp10Producer
        self._poster: FragmentPoster | None = None

    def add(self, payload: bytes, more: bool) -> None:
        terminal = self._link.terminal
        self._size += len(payload)
        limit = terminal.host.kernel.settings.max_message_bytes
        if limit and self._size > limit:
            raise LinkFault(MESSAGE_TOO_LARGE, f"message is larger than {limit} bytes")
        if self._rejected:
            return
        if self._body is None:
            self._parts.append(payload)
            if self._size <= terminal.spool_threshold:
                if not more:
                    self._link.publish(self._delivery, b"".join(self._parts))
                return
        try:
            if self._body is None:
                self._open(more)
            else:
                self._stream_body(self._body, payload, more)
        except PenstockError as error:
            self._reject(error)

    def _open(self, more: bool) -> None:
        """Open a large message as soon as all sections before its body have arrived."""
        link = self._link
        threshold = link.terminal.spool_threshold
        data = b"".join(self._parts)
        head = read_head(data, whole=not more)
        if head is None or head.body_at > threshold:
            if self._size > 2 * threshold or head is not None:
                raise LinkFault(
                    MESSAGE_TOO_LARGE, f"sections before the body exceed {threshold} bytes"
                )
            self._parts = [data]
            return
        self._parts.clear()
        converted = convert_incoming_head(head, 0, time())
        if not self._delivery.settled:
            converted.flags |= MANDATORY  # as `IncomingLink.post` does for a message with a receipt
        route = link.route_of(converted)
        self._message = Message(route, converted.header, b"", converted.flags, more=True)
        self._producer = link.post(self._message, 0)
        self._poster = FragmentPoster(link.terminal, self._producer)
        self._head = head
        self._body = DataSectionReader() if head.kind == DATA else RawSectionReader()
        self._stream_body(self._body, memoryview(data)[head.body_at :], more)

    def _reject(self, error: PenstockError) -> None:
        self._rejected = True
        self._parts.clear()
        self.abandon()
        self._link.refuse(self._link.receipt(self._delivery), error)

    def _stream_body(
        self, body: DataSectionReader | RawSectionReader, payload: bytes | memoryview, more: bool
    ) -> None:
        assert self._poster is not None
        for content in body.feed(memoryview(payload)):
            self._poster.add(content)
        if more:
            return
        footer = body.finish()
        converted = convert_incoming_head(self._head, self._poster.size, time(), footer=footer)
        self._message.header = converted.header
        self._link.terminal.published += 1
        poster, self._poster = self._poster, None
        poster.finish(self._link.receipt(self._delivery))

    def post_partial_bucket(self) -> None:
        if self._poster is not None:
            self._poster.post_partial()

    def abandon(self) -> None:
        """The rest will not arrive; the exchange discards what was posted."""
        if self._poster is not None:
            self._poster.abandon()
            self._poster = None
            self._link.close_producer(self._producer)


#: The largest footer of a large message.
FOOTER_MAX_BYTES: Final = 64 * 1024


class DataSectionReader:
    """Yields the content of data sections, from pieces cut at any byte; keeps a small footer."""

    __slots__ = ("_footer", "_left", "_start")

    def __init__(self) -> None:
        self._left = 0  #: bytes left of the current section
        self._start = b""  #: an incomplete section header, or the footer
        self._footer = False  #: `_start` is the footer

    def feed(self, piece: memoryview) -> Iterator[memoryview]:
        while piece:
            if not self._left:
                piece = self._begin(piece)
                continue
            content = piece[: self._left]
            self._left -= len(content)
            piece = piece[len(content) :]
            yield content

    def _begin(self, piece: memoryview) -> memoryview:
        """Read a section header; returns what follows it."""
        start = self._start + piece[: FOOTER_MAX_BYTES + 1].tobytes()
        if self._footer:
            self._start = start
            if len(start) > FOOTER_MAX_BYTES:
                raise LinkFault(MESSAGE_TOO_LARGE, f"the footer exceeds {FOOTER_MAX_BYTES} bytes")
            return piece[:0]
        before = len(self._start)
        try:
            code, at = section_at(start, 0, len(start))
            if code == FOOTER:
                self._footer = True
                return self._begin(piece)
            if code != DATA:
                raise LinkFault(DECODE_ERROR, "the body has sections of different kinds")
            width = 1 if start[at] == 0xA0 else 4
            size = start[at + 1 : at + 1 + width]
            if len(size) < width:
                raise TruncatedValue("incomplete section size")
        except TruncatedValue:
            self._start = start
            return piece[:0]
        self._start = b""
        self._left = int.from_bytes(size, "big")
        return piece[at + 1 + width - before :]

    def finish(self) -> bytes | None:
        """Returns the footer."""
        if self._left or (self._start and not self._footer):
            raise LinkFault(DECODE_ERROR, "the message ends within a section")
        if not self._footer:
            return None
        _, at = section_at(self._start, 0, len(self._start))
        decode_whole(self._start[at:])
        return self._start[at:]


class RawSectionReader:
    """Yields the sections of any other body unchanged."""

    __slots__ = ()

    def feed(self, piece: memoryview) -> Iterator[memoryview]:
        yield piece

    def finish(self) -> bytes | None:
        return None
