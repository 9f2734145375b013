"""The writer of an AMQP 1.0 connection: the side of the terminal that drivers see.

Frames collect in the `out` of the protocol engine, which the `SocketWriter` flushes at the end of
the write batch. Accepted deliveries collect, too, and are settled in ranges. A large message is
sent one fragment at a time, the next when the previous one was flushed; other links continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from penstock.broker.contract import Channel, Delivery, Fragment, Message
from penstock.broker.message_run import MessageRun
from penstock.core.errors import NoRoute, NotFound
from penstock.protocols.amqp10.conversion.encoder import convert_outgoing
from penstock.protocols.amqp10.errors import to_amqp10_error
from penstock.protocols.amqp10.incoming_link import Amqp10Producer
from penstock.protocols.amqp10.outgoing_link import OutgoingLink
from penstock.protocols.socket_writer import WRITE_HIGH_WATER_BYTES, SocketWriter
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


class Amqp10Writer:
    __slots__ = (
        "_confirms",
        "_loop",
        "_metrics",
        "_next_link",
        "_terminal",
        "_write_batch",
        "acknowledged",
        "awaiting_credit",
        "outgoing_links",
        "output",
    )

    def __init__(self, terminal: Amqp10Terminal) -> None:
        kernel = terminal.host.kernel
        self._terminal = terminal
        self._write_batch = kernel.write_batch
        self._loop = kernel.loop
        self._metrics = kernel.metrics
        self.output = SocketWriter(terminal, self, cast(list[bytes], terminal.connection.out))
        self.outgoing_links: dict[OutgoingLink, None] = {}
        self.awaiting_credit: dict[OutgoingLink, None] = {}  #: granted by the client
        self.acknowledged = 0
        self._next_link = 0  #: the first to request; rotates, because it may fill the socket
        self._confirms = DispositionBatch()

    # The contract.

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
        output = self.output
        output.delivered += 1
        if link.session.waits:
            self.request_session(link.session)
        if (
            self._terminal.connection.out_bytes > WRITE_HIGH_WATER_BYTES
            and not output.write_blocked
        ):
            output.block()

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        incoming_link = cast(Amqp10Producer, channel).incoming_link
        if incoming_link.suspended is not None:  # the client is disconnected
            incoming_link.suspended.confirm(receipt)
            return
        self._confirms.add(incoming_link.link.session, receipt - 1)
        self.output.schedule()

    def forward_run(
        self, channel: Channel, run: MessageRun, deliveries: list[Delivery] | None, packet_id: int
    ) -> bool:
        outgoing_link = cast(OutgoingLink, channel)
        link = outgoing_link.link
        if outgoing_link.presettled is not (deliveries is None):
            return False
        sent = link.send_run(encode_run(run), deliveries)
        if not sent:
            return False
        if deliveries is not None:
            outgoing_link.open.update(dict.fromkeys(sent))
        output = self.output
        output.delivered += len(sent)
        if link.session.waits:
            self.request_session(link.session)
        if (
            self._terminal.connection.out_bytes > WRITE_HIGH_WATER_BYTES
            and not output.write_blocked
        ):
            output.block()
        return True

    def confirm_run(self, channel: Channel, receipts: Sequence[int]) -> None:
        incoming_link = cast(Amqp10Producer, channel).incoming_link
        if incoming_link.suspended is not None:  # the client is disconnected
            for receipt in receipts:
                incoming_link.suspended.confirm(receipt)
            return
        self._confirms.add_run(incoming_link.link.session, [receipt - 1 for receipt in receipts])
        self.output.schedule()

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
        """The queue was deleted, or rejects the consumer."""
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
        self.output.hold_bucket(fragment.bucket)
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
        self.output.delivered += 1
        self._request_fragment_soon(outgoing_link)

    def _request_fragment_soon(self, outgoing_link: OutgoingLink) -> None:
        if not self.output.write_blocked:
            self._loop.call_soon(self._request_fragment, outgoing_link)

    def _request_fragment(self, outgoing_link: OutgoingLink) -> None:
        blocked = self.output.write_blocked or self._terminal.closing
        if outgoing_link.sending is not None and not blocked:
            outgoing_link.request()
            self._write_batch.flush()

    # Output.

    def flush(self) -> None:
        if self._confirms.waiting:
            self._metrics.confirmed += self._confirms.write()
        connection = self._terminal.connection
        connection.out_bytes = 0
        self.output.flush()
        if connection.finished:
            self._terminal.finished()

    def remove(self, outgoing_link: OutgoingLink) -> None:
        self.outgoing_links.pop(outgoing_link, None)
        self._terminal.host.kernel.inflight_pager.discard(outgoing_link)
        self.awaiting_credit.pop(outgoing_link, None)

    def reset(self) -> None:
        """All links have ended."""
        self.outgoing_links.clear()
        self.awaiting_credit.clear()
        self._confirms.waiting.clear()
        self.output.release_buckets()

    # Credit.

    def request_all(self) -> None:
        links = list(self.outgoing_links)
        if not self.output.write_blocked:
            self._next_link = (self._next_link + 1) % max(1, len(links))
        for outgoing_link in links[self._next_link :] + links[: self._next_link]:
            if outgoing_link in self.outgoing_links:
                outgoing_link.request()

    def request_session(self, session: Amqp10Session) -> None:
        """The session's window is full, or open again."""
        for outgoing_link in list(self.outgoing_links):
            if outgoing_link.link.session is session:
                outgoing_link.request()

    def request(self) -> None:
        """Request messages for links with new credit."""
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


def _detach_error(error: Exception) -> Amqp10Error:
    if isinstance(error, NotFound):
        return Amqp10Error(DELETED, str(error))
    return to_amqp10_error(error)


#: The largest section, whose size has four bytes; and the size of sections where one does not do.
DATA_SECTION_MAX_BYTES: Final = 0xFFFF_FFFF
DATA_SECTION_BYTES: Final = 1 << 30

_DATA_SECTION_PREFIX: Final = b"\x00\x53\x75\xb0"


class LargeDelivery:
    """Sends the fragments of a large message as transfers of one delivery."""

    __slots__ = ("_after", "_left", "_section", "delivery")

    def __init__(self, delivery: OutgoingDelivery) -> None:
        self.delivery = delivery
        self._after = b""  #: sections after the body
        self._left = 0  #: bytes of the body in sections that have not begun
        self._section = 0  #: bytes left of the current section

    def begin(self, link: SenderLink, opening: Message, count: int, released: bool) -> None:
        """Send the sections before the body."""
        if opening.size > DATA_SECTION_MAX_BYTES:  # an empty data section, then several others
            self._left = opening.size
            opening.header = opening.header[:4] + bytes(8) + opening.header[12:]
        before, self._after = convert_outgoing(opening, count, released)
        link.send(self.delivery, before, more=True)

    def send(self, link: SenderLink, body: memoryview, more: bool) -> None:
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


_ENCODED_ACCEPTED: Final = encode_delivery_state(ACCEPTED)


class DispositionBatch:
    """Accepts confirmed deliveries at the end of the write batch, consecutive ones together.

    In receiver settle mode *second* the sender is sent the outcome and settles first.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        #: Delivery ids that are confirmed, by session.
        self.waiting: dict[Amqp10Session, list[int]] = {}

    def add(self, session: Amqp10Session, number: int) -> None:
        numbers = self.waiting.get(session)
        if numbers is None:
            self.waiting[session] = [number]
        else:
            numbers.append(number)

    def add_run(self, session: Amqp10Session, numbers: list[int]) -> None:
        self.waiting.setdefault(session, []).extend(numbers)

    def write(self) -> int:
        """Returns the number of accepted deliveries."""
        waiting, self.waiting = self.waiting, {}
        count = 0
        for session, numbers in waiting.items():
            count += len(numbers)
            for incoming_link in _accept(session, numbers):
                incoming_link.replenish_credit()
        return count


def _accept(session: Amqp10Session, numbers: list[int]) -> dict[IncomingLink, None]:
    """Returns the links with settled deliveries, whose credit can be replenished."""
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


class EncodedMessageCache:
    """Caches the last converted message: all receivers of a fan-out are served in a row."""

    def __init__(self) -> None:
        self._message: Message | None = None
        self._payload = b""

    def payload(self, message: Message, count: int, released: bool) -> bytes:
        if count or released:
            before, after = convert_outgoing(message, count, released)
            return before + message.body + after
        if message is not self._message:
            before, after = convert_outgoing(message)
            self._payload = before + message.body + after
            self._message = message
        return self._payload


def encode_run(run: MessageRun) -> list[bytes]:
    """The messages of a run, as payloads. Those without properties differ in their bodies only."""
    header = before = b""
    payloads = []
    for message in run.messages:
        if message.header != header or message.header[12:14] not in (b"\x10\x00", b"\x00\x00"):
            header = message.header
            before, after = convert_outgoing(message)
            payloads.append(before + message.body + after)
        else:
            payloads.append(before + message.body)
    return payloads
