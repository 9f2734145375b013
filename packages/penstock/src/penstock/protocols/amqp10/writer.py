"""The writing side of a connection: what drivers forward, confirm and fail, on its way out.

This is the terminal that drivers know (`broker/contract.py`). What is to be written gathers in the
connection's `out` and leaves in one write when the turn ends; so do confirmations, as runs of
deliveries. A socket that does not take what it is given is *choked*: credit is withdrawn from all
links until it has caught up. A large message leaves one fragment at a time, each asked for when
the one before has left, while other links go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from penstock.broker.buckets import Bucket
from penstock.broker.contract import Channel, Delivery, Fragment, Message
from penstock.core.errors import NoRoute, NotFound
from penstock.protocols.amqp10.conversion import outgoing
from penstock.protocols.amqp10.errors import to_amqp10_error
from penstock.protocols.amqp10.incoming_link import Amqp10Producer
from penstock.protocols.amqp10.outgoing_link import OutgoingLink
from penstock.wire.amqp10.errors import DELETED
from penstock.wire.amqp10.performatives import (
    ACCEPTED,
    RECEIVER,
    RELEASED,
    Amqp10Error,
    Rejected,
    encode_delivery_state,
)
from penstock.wire.amqp10.transfers import encode_disposition

if TYPE_CHECKING:
    from penstock.protocols.amqp10.incoming_link import IncomingLink
    from penstock.protocols.amqp10.terminal import Amqp10Terminal
    from penstock.wire.amqp10.links import OutgoingDelivery, SenderLink
    from penstock.wire.amqp10.session import Amqp10Session


#: Output that may gather for one socket before its receivers are asked to wait.
WRITE_HIGH_WATER_BYTES: Final = 256 * 1024


class Amqp10Writer:
    __slots__ = (
        "_buckets",
        "_confirms",
        "_delivered",
        "_first",
        "_flush_scheduled",
        "_loop",
        "_metrics",
        "_terminal",
        "_write_batch",
        "acknowledged",
        "awaiting_credit",
        "outgoing_links",
        "paused",
        "write_blocked",
    )

    def __init__(self, terminal: Amqp10Terminal) -> None:
        kernel = terminal.host.kernel
        self._terminal = terminal
        self._write_batch = kernel.write_batch
        self._loop = kernel.loop
        self._metrics = kernel.metrics
        self.outgoing_links: dict[OutgoingLink, None] = {}
        self.awaiting_credit: dict[OutgoingLink, None] = {}  #: with new credit to ask for
        self.acknowledged = 0
        self.write_blocked = False  #: nothing is sent until the socket has caught up
        self.paused = False  #: the transport's buffer is full
        self._delivered = 0
        self._flush_scheduled = False
        self._first = 0  #: which outlet is asked for first
        self._confirms = DispositionBatch()
        self._buckets: list[Bucket] = []

    # What drivers ask for.

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        outgoing_link = cast(OutgoingLink, channel)
        if type(fragment) is not Message or fragment.more:
            self._forward_large(outgoing_link, fragment, delivery)
            return
        link = outgoing_link.link
        outgoing = link.new(outgoing_link.presettled, delivery)
        count = 0
        released = False
        if delivery is not None:
            released = delivery.released
            if delivery.count or released:
                count = delivery.count
                self._metrics.redelivered += 1
            if not outgoing.settled:
                outgoing_link.open[outgoing] = None
            elif not channel.settled:
                channel.driver.channel_confirm(channel, delivery)
        link.send(outgoing, self._terminal.service.message_cache.payload(fragment, count, released))
        self._delivered += 1
        if link.session.waits:
            self.withdraw(link.session)
        if self._terminal.connection.out_bytes > WRITE_HIGH_WATER_BYTES and not self.write_blocked:
            self._block_writes()

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        incoming_link = cast(Amqp10Producer, channel).incoming_link
        if incoming_link.suspended is not None:  # its client is away
            incoming_link.suspended.confirm(receipt)
            return
        self._confirms.add(incoming_link.link.session, receipt - 1)
        self.schedule_flush()

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        if isinstance(channel, OutgoingLink):
            self._outgoing_link_ended(channel, error)
            return
        producer = cast(Amqp10Producer, channel)
        incoming_link = producer.incoming_link
        if isinstance(error, NoRoute):
            self._metrics.returned += 1
            incoming_link.settle(receipt, RELEASED)
        elif receipt:
            incoming_link.settle(receipt, Rejected(to_amqp10_error(error)))
        elif incoming_link.forget_producer(producer):
            self._terminal.end_link(incoming_link.link, _detach_error(error))

    def _outgoing_link_ended(self, outgoing_link: OutgoingLink, error: Exception) -> None:
        """Its queue is gone, or will not have it any longer."""
        if outgoing_link.sending is not None:
            outgoing_link.link.abort(outgoing_link.sending.delivery)
            outgoing_link.sending = None
        self._terminal.end_link(outgoing_link.link, _detach_error(error))

    def payload(self, delivery: Delivery) -> bytes:
        message_cache = self._terminal.service.message_cache
        return message_cache.payload(delivery.message, delivery.count, delivery.released)

    # Large messages.

    def _forward_large(
        self, outgoing_link: OutgoingLink, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        link = outgoing_link.link
        if self._terminal.closing or not link.live:
            if isinstance(fragment, Fragment):
                fragment.bucket.release()
            return
        if isinstance(fragment, Message):
            self._begin_large(outgoing_link, fragment, delivery)
            return
        large_delivery = outgoing_link.sending
        assert large_delivery is not None, "fragments follow the message they belong to"
        self._buckets.append(fragment.bucket)
        large_delivery.send(link, fragment.body, fragment.more)
        if fragment.more:
            self._request_fragment_soon(outgoing_link)
            return
        outgoing_link.sending = None
        outgoing = large_delivery.delivery
        if outgoing.settled and not outgoing_link.settled and outgoing.context is not None:
            outgoing_link.driver.channel_confirm(outgoing_link, outgoing.context)
        self.awaiting_credit[outgoing_link] = None
        self._loop.call_soon(self._request_awaiting_credit)

    def _begin_large(
        self, outgoing_link: OutgoingLink, opening: Message, delivery: Delivery | None
    ) -> None:
        link = outgoing_link.link
        outgoing = link.new(outgoing_link.presettled, delivery)
        count, released = 0, False
        if delivery is not None:
            count, released = delivery.count, delivery.released
        if not outgoing.settled and delivery is not None:
            outgoing_link.open[outgoing] = None
        outgoing_link.sending = LargeDelivery(outgoing)
        outgoing_link.sending.begin(link, opening, count, released)
        self._delivered += 1
        self._request_fragment_soon(outgoing_link)

    def _request_fragment_soon(self, outgoing_link: OutgoingLink) -> None:
        if not self.write_blocked:
            self._loop.call_soon(self._request_fragment, outgoing_link)

    def _request_fragment(self, outgoing_link: OutgoingLink) -> None:
        """Ask for the next fragment of a large message, if there is room for it."""
        if (
            outgoing_link.sending is not None
            and not self.write_blocked
            and not self._terminal.closing
        ):
            outgoing_link.request()
            self._write_batch.flush()

    # Writing.

    def schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._write_batch.to_flush.append(self)

    def flush(self) -> None:
        if self._confirms.waiting:
            self._metrics.confirmed += self._confirms.write()
        self._flush_scheduled = False
        connection = self._terminal.connection
        if connection.out:
            data = b"".join(connection.out)
            connection.out.clear()
            connection.out_bytes = 0
            self._metrics.bytes_out += len(data)
            self._metrics.delivered += self._delivered
            self._delivered = 0
            self._terminal.heartbeats.said = True
            self._terminal.transport.write(data)
        if self._buckets:
            self._release()
        if connection.finished:
            self._terminal.finished()
        elif self.write_blocked and not self.paused:
            self._loop.call_soon(self._unblock_writes)

    def _release(self) -> None:
        for bucket in self._buckets:
            bucket.release()
        self._buckets.clear()

    # Credit.

    def pause(self) -> None:
        self.paused = True
        self._block_writes()

    def resume(self) -> None:
        self.paused = False
        self._unblock_writes()

    def _block_writes(self) -> None:
        """The socket is behind: nothing more is sent until it has caught up."""
        self.write_blocked = True
        self._request_all()

    def _unblock_writes(self) -> None:
        if self.write_blocked and not self.paused and not self._terminal.closing:
            self.write_blocked = False
            self._request_all()
            self._write_batch.flush()

    def _request_all(self) -> None:
        """Ask for every outlet; whoever is asked for first may fill the socket: take turns."""
        outgoing_links = list(self.outgoing_links)
        if not self.write_blocked:
            self._first = (self._first + 1) % max(1, len(outgoing_links))
        for outgoing_link in outgoing_links[self._first :] + outgoing_links[: self._first]:
            if outgoing_link in self.outgoing_links:
                outgoing_link.request()

    def withdraw(self, session: Amqp10Session) -> None:
        """A session's window is full, or has room again: ask for what is on it."""
        for outgoing_link in list(self.outgoing_links):
            if outgoing_link.link.session is session:
                outgoing_link.request()

    def request(self) -> None:
        """Ask for those that were given credit, or have sent a large message."""
        awaiting_credit, self.awaiting_credit = self.awaiting_credit, {}
        self._metrics.acknowledged += self.acknowledged
        self.acknowledged = 0
        for outgoing_link in awaiting_credit:
            if outgoing_link in self.outgoing_links:
                outgoing_link.request()

    def _request_awaiting_credit(self) -> None:
        if self.awaiting_credit and not self._terminal.closing:
            self.request()
            self._write_batch.flush()

    def drain_soon(self, outgoing_link: OutgoingLink) -> None:
        self._loop.call_soon(self._drain, outgoing_link, outgoing_link.link.delivery_count)

    def _drain(self, outgoing_link: OutgoingLink, seen: int) -> None:
        if not self._terminal.closing:
            outgoing_link.drain(seen)
            self._write_batch.flush()

    # The end.

    def leave(self, outgoing_link: OutgoingLink) -> None:
        """A link has ended."""
        self.outgoing_links.pop(outgoing_link, None)
        self.awaiting_credit.pop(outgoing_link, None)

    def forget(self) -> None:
        """All links have ended: nobody is owed what they had under way."""
        self.outgoing_links.clear()
        self.awaiting_credit.clear()
        self._confirms.waiting.clear()
        self._release()


def _detach_error(error: Exception) -> Amqp10Error:
    """Why a link ends: what is not found any more was deleted."""
    return (
        Amqp10Error(DELETED, str(error)) if isinstance(error, NotFound) else to_amqp10_error(error)
    )


# A large message on its way out: its fragments become transfers of one delivery.
#
# A body that is too long for the size of a data section, which has four bytes, is cut into several
# sections as it passes.

#: The longest section there may be, and how long they get if there must be several.
DATA_SECTION_MAX_BYTES: Final = 0xFFFF_FFFF
DATA_SECTION_BYTES: Final = 1 << 30

_DATA_SECTION_PREFIX: Final = b"\x00\x53\x75\xb0"


class LargeDelivery:
    __slots__ = ("_after", "_left", "_section", "delivery")

    def __init__(self, delivery: OutgoingDelivery) -> None:
        self.delivery = delivery
        self._after = b""  #: what follows the body
        self._left = 0  #: of a body in several sections, beyond the one it is in
        self._section = 0  #: of that section

    def begin(self, link: SenderLink, opening: Message, count: int, released: bool) -> None:
        """What comes before the body; it was delivered so many times before, or given back."""
        if (
            opening.size > DATA_SECTION_MAX_BYTES
        ):  # begin with an empty section, and go on with others
            self._left = opening.size
            opening.header = opening.header[:4] + bytes(8) + opening.header[12:]
        before, self._after = outgoing(opening, count, released)
        link.send(self.delivery, before, more=True)

    def send(self, link: SenderLink, body: memoryview, more: bool) -> None:
        """The next piece of the body."""
        while self._left and len(body) > self._section:
            if self._section:
                link.send(self.delivery, body[: self._section], more=True)
                body = body[self._section :]
            self._section = min(self._left, DATA_SECTION_BYTES)
            self._left -= self._section
            link.send(
                self.delivery, _DATA_SECTION_PREFIX + self._section.to_bytes(4, "big"), more=True
            )
        self._section -= len(body)
        last = not more and not self._after
        link.send(self.delivery, body, more=not last)
        if not more and not last:
            link.send(self.delivery, self._after)


# What is safe, told to senders in as few words as possible.
#
# Deliveries are confirmed as destinations see fit and gather until the turn ends; those that follow
# one another are then accepted by one disposition. A sender that settles before we do is told the
# outcome, and the delivery stays open until it has.

_ENCODED_ACCEPTED: Final = encode_delivery_state(ACCEPTED)


class DispositionBatch:
    __slots__ = ("waiting",)

    def __init__(self) -> None:
        #: Numbers of deliveries that are safe, and whose senders have not been told.
        self.waiting: dict[Amqp10Session, list[int]] = {}

    def add(self, session: Amqp10Session, number: int) -> None:
        numbers = self.waiting.get(session)
        if numbers is None:
            self.waiting[session] = [number]
        else:
            numbers.append(number)

    def write(self) -> int:
        """Tell what has gathered; returns how many deliveries that were."""
        waiting, self.waiting = self.waiting, {}
        count = 0
        for session, numbers in waiting.items():
            count += len(numbers)
            for incoming_link in _accept(session, numbers):
                incoming_link.replenish_credit()
        return count


def _accept(session: Amqp10Session, numbers: list[int]) -> dict[IncomingLink, None]:
    """Accept deliveries in runs; returns the inlets that have room for others now."""
    incoming = session.incoming
    incoming_links: dict[IncomingLink, None] = {}
    first = last = -1
    second = False
    for number in numbers:
        delivery = incoming.get(number)
        if delivery is None:  # its link is gone
            continue
        if first < 0:
            first = number
        elif number != last + 1 or delivery.second is not second:
            _write_disposition(session, first, last, second)
            first = number
        last = number
        second = delivery.second
        if second:
            delivery.context = ACCEPTED
        else:
            delivery.settled = True
            del incoming[number]
            incoming_link: IncomingLink = delivery.link.context
            incoming_link.unsettled -= 1
            incoming_links[incoming_link] = None
    if first >= 0:
        _write_disposition(session, first, last, second)
    return incoming_links


def _write_disposition(session: Amqp10Session, first: int, last: int, second: bool) -> None:
    session.connection.write(
        encode_disposition(session.channel, RECEIVER, first, last, not second, _ENCODED_ACCEPTED)
    )


# The press: messages as the sections that receivers get, each set once and printed for many.
#
# All receivers of a message are served one after another, so remembering the last one is all it
# takes to convert a fan-out once.


class EncodedMessageCache:
    __slots__ = ("_message", "_payload")

    def __init__(self) -> None:
        self._message: Message | None = None
        self._payload = b""

    def payload(self, message: Message, count: int, released: bool) -> bytes:
        """A small message that was delivered so many times before, or given back."""
        if count or released:
            before, after = outgoing(message, count, released)
            return before + message.body + after
        if message is not self._message:
            before, after = outgoing(message)
            self._payload = before + message.body + after
            self._message = message
        return self._payload
