"""A link on which a client sends: deliveries become messages, and outcomes go back.

An inlet has a conversation with each exchange its messages lead to: one, if the link has a target;
as many as there are, if each message says for itself where it goes (the anonymous relay). Receipts
of the contract are the numbers of deliveries, one higher, so that none is zero. A message that
nobody wants is released, one that is refused rejected. The client's credit covers what has not
been settled: whoever waits for the disk gets no further ahead of it than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.buckets import Bucket
from penstock.broker.contract import MANDATORY, Channel, Fragment, Message
from penstock.core.basic_properties import encode_route
from penstock.core.errors import AccessRefused, PenstockError, PreconditionFailed
from penstock.protocols.amqp10 import conversion
from penstock.protocols.amqp10.addresses import LinkAddress, parse_link_address
from penstock.protocols.amqp10.errors import to_amqp10_error, to_link_fault
from penstock.wire.amqp10.codec import decode_whole
from penstock.wire.amqp10.errors import (
    DECODE_ERROR,
    MESSAGE_TOO_LARGE,
    NOT_FOUND,
    LinkFault,
    TruncatedValue,
)
from penstock.wire.amqp10.message import DATA, FOOTER, MessageHead, read_head, section_at
from penstock.wire.amqp10.performatives import ACCEPTED, Rejected

if TYPE_CHECKING:
    from penstock.broker.contract import Exchange
    from penstock.protocols.amqp10.recovery import SuspendedTarget
    from penstock.protocols.amqp10.terminal import Amqp10Terminal
    from penstock.wire.amqp10.links import IncomingDelivery, ReceiverLink


#: Deliveries a client may have on their way to us, and unsettled.
LINK_CREDIT: Final = 1024

#: Routes an inlet remembers the conversation of, and addresses the place of.
MAX_CACHED_ROUTES: Final = 1024


class Amqp10Producer(Channel):
    """The conversation of a link with an exchange."""

    __slots__ = ("exchange", "incoming_link", "post", "uses_topic_permissions")

    def __init__(self, incoming_link: IncomingLink, driver: Exchange, exchange: str) -> None:
        super().__init__(incoming_link.terminal.writer, driver)
        self.incoming_link = incoming_link
        self.exchange = exchange
        self.uses_topic_permissions = (
            driver.uses_topic_permissions
        )  #: topic permissions apply to routing keys
        self.check_topic = partial(incoming_link.terminal.access.check_topic, "write", exchange)
        self.post: Callable[[Channel, Any, int], None] = driver.channel_post


class IncomingLink:
    __slots__ = (
        "_assembler",
        "_by_exchange",
        "_places",
        "_producers",
        "_route",
        "known",
        "link",
        "place",
        "suspended",
        "terminal",
        "unsettled",
    )

    def __init__(
        self, terminal: Amqp10Terminal, link: ReceiverLink, place: LinkAddress | None
    ) -> None:
        self.terminal = terminal
        self.link = link
        self.place = place  #: where all goes; None when each message says where
        self.unsettled = 0  #: deliveries whose outcome is not told yet
        self.known: set[bytes] = set()  #: tags of what was taken in before an interruption
        self.suspended: SuspendedTarget | None = (
            None  #: where to tell what is safe, once its client is away
        )
        self._route: bytes | None = None  #: of every message, if it is always the same
        self._by_exchange: dict[str, Amqp10Producer] = {}
        self._producers: dict[bytes, Amqp10Producer] = {}
        self._places: dict[str, LinkAddress] = {}
        self._assembler: DeliveryAssembler | None = None
        if place is not None:
            self._route = self._route_to(place)
            if self._route is not None:
                self.producer(self._route)
            else:
                self._open_producer(place.name)

    # Where to.

    @staticmethod
    def _route_to(place: LinkAddress) -> bytes | None:
        """The route of what goes to a place; None when a message's subject has a say in it."""
        if place.kind != "exchange":
            return encode_route("", place.name)
        return None if place.key is None else encode_route(place.name, place.key)

    def producer(self, route: bytes) -> Amqp10Producer:
        """The conversation a route belongs to, begun if need be."""
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

    def forget_routes(self) -> None:
        """What was allowed has to be asked for again."""
        self._producers.clear()

    def _addressed(self, destination: str | None) -> LinkAddress:
        """Where a message wants to go that says so itself."""
        if destination is None:
            raise LinkFault(NOT_FOUND, "a message to an anonymous target says where it goes (to)")
        place = self._places.get(destination)
        if place is None:
            place = parse_link_address(destination)
            if place.kind == "exchange":
                self.terminal.vhost.exchange(place.name)
            if len(self._places) >= MAX_CACHED_ROUTES:
                self._places.clear()
            self._places[destination] = place
        return place

    def route_of(self, found: conversion.ConvertedMessage) -> bytes:
        """The route of a message; raises when it leads nowhere."""
        user = self.terminal.access.user
        if found.user_id is not None and found.user_id != user.name.encode():
            self._check_impersonation(found.user_id)
        if self._route is not None:
            return self._route
        place = self.place
        if place is None:
            place = self._addressed(found.to)
            route = self._route_to(place)
            if route is not None:
                return route
        return encode_route(place.name, found.subject or "")

    def _check_impersonation(self, claimed: bytes) -> None:
        user = self.terminal.access.user
        if "impersonator" not in user.tags:
            told = claimed.decode("utf-8", "replace")
            raise PreconditionFailed(f"user-id is '{told}' but the user is '{user.name}'")

    # In.

    def take(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None:
        """A delivery, or a piece of one."""
        if delivery.resumed and delivery.tag in self.known:
            if not more:
                self.known.discard(delivery.tag)
                delivery.settle(ACCEPTED)
                self.replenish_credit()
            return
        if not more and self._assembler is None and len(payload) <= self.terminal.spool_threshold:
            self.publish(delivery, payload)
        else:
            if self._assembler is None:
                self._assembler = DeliveryAssembler(self, delivery)
            self._assembler.add(payload, more)
            if not more:
                self._assembler = None
        self.replenish_credit()

    def publish(self, delivery: IncomingDelivery, payload: bytes) -> None:
        """A delivery that is whole, and small."""
        receipt = 0
        if not delivery.settled:
            receipt = delivery.id + 1
            self.unsettled += 1
        try:
            found = conversion.incoming(payload, time())
            self.post(Message(self.route_of(found), found.header, found.body, found.flags), receipt)
        except PenstockError as error:
            self.refuse(receipt, error)
            return
        self.terminal.published += 1

    def post(self, message: Message, receipt: int) -> Amqp10Producer:
        """Hand on a message, or the opening of a large one."""
        producer = self._producers.get(message.route)
        if producer is None:
            producer = self.producer(message.route)
        if receipt:
            message.flags |= MANDATORY
        producer.post(producer, message, receipt)
        return producer

    def refuse(self, receipt: int, error: PenstockError) -> None:
        """A message that will not do. Without somebody to tell, the link itself ends."""
        if self.place is not None and not isinstance(error, PreconditionFailed):
            raise to_link_fault(error)
        if receipt:
            self.settle(receipt, Rejected(to_amqp10_error(error)))
        else:
            self.terminal.host.kernel.metrics.unroutable += 1

    def post_partial_bucket(self) -> None:
        if self._assembler is not None:
            self._assembler.post_partial_bucket()

    def abandon(self) -> None:
        """The rest of a delivery will not come."""
        if self._assembler is not None:
            assembler, self._assembler = self._assembler, None
            assembler.abandon()
        self.replenish_credit()

    def close_producer(self, producer: Amqp10Producer) -> None:
        """Half a message was posted: the next begins a new one, so that it is forgotten."""
        producer.driver.channel_close(producer)
        self._by_exchange.pop(producer.exchange, None)
        self._producers.clear()

    # Outcomes.

    def settle(self, receipt: int, outcome: Any) -> None:
        """Tell what became of a delivery, alone."""
        delivery = self.link.session.incoming.get(receipt - 1)
        if delivery is not None and delivery.link is self.link:
            delivery.settle(outcome)
            if delivery.settled:
                self.settled()

    def settled(self) -> None:
        """Nobody waits for anything more about a delivery."""
        self.unsettled -= 1
        self.replenish_credit()

    def replenish_credit(self) -> None:
        """Give the client credit again, when it has used up half of what it may have."""
        link = self.link
        if link.credit + self.unsettled <= LINK_CREDIT // 2 and link.live:
            link.grant(LINK_CREDIT - self.unsettled)

    # The end.

    def forget_producer(self, producer: Amqp10Producer) -> bool:
        """Its exchange is gone; true when that is the end of the link."""
        self._by_exchange.pop(producer.exchange, None)
        self._producers.clear()
        self._places.clear()
        return self.place is not None

    def end(self) -> None:
        if self._assembler is not None:
            self._assembler.abandon()
            self._assembler = None
        for producer in self._by_exchange.values():
            producer.driver.channel_close(producer)
        self._by_exchange.clear()
        self._producers.clear()


# A delivery that comes in several transfers.
#
# Small ones are gathered and published whole. What outgrows the threshold goes on as it comes, in
# buckets: the exchange spools it, and of it nothing stays here but the sections before its body,
# which have to fit the threshold themselves. How long a message is, its last transfer tells: its
# header is completed then, before the last fragment is posted.


class DeliveryAssembler:
    __slots__ = (
        "_body",
        "_body_bytes",
        "_bucket",
        "_delivery",
        "_head",
        "_incoming_link",
        "_message",
        "_parts",
        "_producer",
        "_rejected",
        "_size",
    )

    def __init__(self, incoming_link: IncomingLink, delivery: IncomingDelivery) -> None:
        self._incoming_link = incoming_link
        self._delivery = delivery
        self._parts: list[bytes] = []
        self._size = 0
        self._head: MessageHead | None = None  #: of a large one, once it has begun
        self._message: Message | None = None
        self._body: DataSectionReader | RawSectionReader | None = None
        self._bucket: Bucket | None = None
        self._body_bytes = 0
        self._rejected = False  #: it was refused: what still comes of it is not looked at
        self._producer: Amqp10Producer | None = None

    def add(self, payload: bytes, more: bool) -> None:
        terminal = self._incoming_link.terminal
        self._size += len(payload)
        limit = terminal.host.kernel.settings.max_message_bytes
        if limit and self._size > limit:
            raise LinkFault(
                MESSAGE_TOO_LARGE, f"a message of more than {limit} bytes, the most there may be"
            )
        if self._rejected:
            return
        if self._body is None:
            self._parts.append(payload)
            if self._size <= terminal.spool_threshold:
                if not more:
                    self._incoming_link.publish(self._delivery, b"".join(self._parts))
                return
        try:
            if self._body is None:
                self._open(more)
            else:
                self._stream_body(payload, more)
        except PenstockError as error:
            self._refuse(error)

    def _open(self, more: bool) -> None:
        """It is a large one: as soon as its head is whole, it goes on as it comes."""
        incoming_link = self._incoming_link
        data = b"".join(self._parts)
        head = read_head(data, whole=not more)
        if head is None or head.body_at > incoming_link.terminal.spool_threshold:
            if self._size > 2 * incoming_link.terminal.spool_threshold or head is not None:
                raise LinkFault(MESSAGE_TOO_LARGE, "too much is said of a message before its body")
            self._parts = [data]
            return
        self._parts.clear()
        found = conversion.incoming_head(head, 0, time())
        if not self._delivery.settled:
            found.flags |= MANDATORY  # as `Inlet.post` does for what has a receipt
        message = Message(incoming_link.route_of(found), found.header, b"", found.flags, more=True)
        self._producer = incoming_link.post(message, 0)
        self._head = head
        self._message = message
        self._body = DataSectionReader() if head.kind == DATA else RawSectionReader()
        incoming_link.terminal.flow_control.expect_bulk(True)
        self._stream_body(memoryview(data)[head.body_at :], more)

    def _refuse(self, error: PenstockError) -> None:
        """It is no message, or leads nowhere; the rest of it has to come all the same."""
        self._rejected = True
        self._parts.clear()
        self.abandon()
        receipt = 0
        if not self._delivery.settled:
            receipt = self._delivery.id + 1
            self._incoming_link.unsettled += 1
        self._incoming_link.refuse(receipt, error)

    def _stream_body(self, payload: bytes | memoryview, more: bool) -> None:
        assert self._body is not None
        for content in self._body.feed(memoryview(payload)):
            self._fill(content)
        if not more:
            self._finish()

    def _fill(self, content: memoryview) -> None:
        while content:
            if self._bucket is not None and self._bucket.full:
                self._post(self._bucket, more=True)
                self._bucket = None
            if self._bucket is None:
                self._bucket = self._incoming_link.terminal.flow_control.account.take()
            taken = self._bucket.fill(content)
            self._body_bytes += taken
            content = content[taken:]

    def _finish(self) -> None:
        incoming_link, delivery = self._incoming_link, self._delivery
        head, message, body = self._head, self._message, self._body
        assert head is not None
        assert message is not None
        assert body is not None
        footer = body.finish()
        found = conversion.incoming_head(head, self._body_bytes, time(), footer=footer)
        message.header = found.header
        bucket, self._bucket = self._bucket, None
        if bucket is None:
            bucket = incoming_link.terminal.flow_control.account.take()
        receipt = 0
        if not delivery.settled:
            receipt = delivery.id + 1
            incoming_link.unsettled += 1
        incoming_link.terminal.published += 1
        # What follows may not overtake it on its way to the disk. The connection is read again
        # when nothing of it is in buckets, so those of other links have to go there as well.
        incoming_link.terminal.post_partial_bucket()
        incoming_link.terminal.flow_control.hold()
        incoming_link.terminal.flow_control.expect_bulk(False)
        self._post(bucket, more=False, receipt=receipt)
        self._producer = None

    def _post(self, bucket: Bucket, more: bool, receipt: int = 0) -> None:
        assert self._producer is not None
        self._producer.post(self._producer, Fragment(bucket, bucket.content, more), receipt)

    def post_partial_bucket(self) -> None:
        """Let go of what is here, though it does not fill a bucket."""
        if self._bucket is not None:
            bucket, self._bucket = self._bucket, None
            self._post(bucket, more=True)

    def abandon(self) -> None:
        """The rest will not come, and what has come is to be forgotten."""
        if self._bucket is not None:
            self._bucket.release()
            self._bucket = None
        if self._producer is not None:
            self._incoming_link.terminal.flow_control.expect_bulk(False)
            self._incoming_link.close_producer(self._producer)
            self._producer = None


# The body of a large message as it comes, piece by piece: sections in, contents out.
#
# `DataSectionReader` takes data out of its sections, however many there are; `RawSectionReader`
# hands on the sections of any other body as they are. Neither holds more than the few bytes that a
# section begins with, and a footer, which must be small.

#: The most a large message may say after its body.
FOOTER_MAX_BYTES: Final = 64 * 1024


class DataSectionReader:
    __slots__ = ("_footer", "_left", "_start")

    def __init__(self) -> None:
        self._left = 0  #: of the section we are in
        self._start = b""  #: the beginning of one that is not all there
        self._footer = False  #: what has begun is the footer

    def feed(self, piece: memoryview) -> Iterator[memoryview]:
        """The contents in the next piece of the message."""
        while piece:
            if not self._left:
                piece = self._begin(piece)
                continue
            content = piece[: self._left]
            self._left -= len(content)
            piece = piece[len(content) :]
            yield content

    def _begin(self, piece: memoryview) -> memoryview:
        """The start of a section; returns what is behind it."""
        start = self._start + piece[: FOOTER_MAX_BYTES + 1].tobytes()
        if self._footer:
            self._start = start
            if len(start) > FOOTER_MAX_BYTES:
                raise LinkFault(MESSAGE_TOO_LARGE, "too much is said of a message after its body")
            return piece[:0]
        before = len(self._start)
        try:
            code, at = section_at(start, 0, len(start))
            if code == FOOTER:
                self._footer = True
                return self._begin(piece)
            if code != DATA:
                raise LinkFault(DECODE_ERROR, "sections of different kinds in one body")
            width = 1 if start[at] == 0xA0 else 4
            size = start[at + 1 : at + 1 + width]
            if len(size) < width:
                raise TruncatedValue("a section ends within its size")
        except TruncatedValue:
            self._start = start
            return piece[:0]
        self._start = b""
        self._left = int.from_bytes(size, "big")
        return piece[at + 1 + width - before :]

    def finish(self) -> bytes | None:
        """The message has ended; returns its footer."""
        if self._left or (self._start and not self._footer):
            raise LinkFault(DECODE_ERROR, "a message that ends within a section")
        if not self._footer:
            return None
        _, at = section_at(self._start, 0, len(self._start))
        decode_whole(self._start[at:])
        return self._start[at:]


class RawSectionReader:
    __slots__ = ()

    def feed(self, piece: memoryview) -> Iterator[memoryview]:
        yield piece

    def finish(self) -> bytes | None:
        return None
