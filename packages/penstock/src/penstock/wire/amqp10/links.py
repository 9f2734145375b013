"""Links, the deliveries on them, and the transfer windows of a session.

A `SenderLink` sends while it has credit from its peer; a `ReceiverLink` grants credit and receives.
Either is requested by the peer (`accept` or `refuse` it) or by us. The owner decides what
deliveries mean and when they are settled; the links enforce credit. Transfers that do not fit the
peer's window wait in `OutgoingWindow`, in order. A delivery gets its number when its first transfer
is sent, so that one that is discarded before leaves no gap.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from penstock.wire.amqp10.errors import (
    ILLEGAL_STATE,
    NOT_ALLOWED,
    TRANSFER_LIMIT,
    WINDOW_VIOLATION,
    Amqp10Fault,
    DecodeError,
    LinkFault,
    SessionFault,
)
from penstock.wire.amqp10.performatives import (
    FIRST,
    RECEIVER,
    SECOND,
    SENDER,
    SETTLED,
    Amqp10Error,
    Attach,
    DeliveryState,
    Detach,
    encode_delivery_state,
)
from penstock.wire.amqp10.transfers import (
    NEXT_TRANSFER_OVERHEAD,
    TRANSFER_OVERHEAD,
    encode_aborted_transfer,
    encode_link_flow,
    encode_next_transfer_prefix,
    encode_resumed_transfer_prefix,
    encode_transfer_prefix,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.wire.amqp10.performatives import LinkSource, LinkTarget, TransactionCoordinator
    from penstock.wire.amqp10.session import Amqp10Session
    from penstock.wire.amqp10.transfers import FlowPerformative, TransferPerformative


class OutgoingDelivery:
    __slots__ = ("context", "id", "link", "resumes", "settled", "state", "tag")

    def __init__(self, link: SenderLink, tag: int, settled: bool, context: Any) -> None:
        self.link = link
        self.id = -1  #: until its first transfer is sent
        self.tag = tag
        self.settled = settled
        self.state: DeliveryState | None = None  #: the state reported by the peer
        self.resumes = False  #: it was sent before the link was interrupted
        self.context = context  #: for the owner

    def settle(self, state: DeliveryState | None = None) -> None:
        """Settle it and inform the peer."""
        if not self.settled:
            self.settled = True
            session = self.link.session
            if session.outgoing.pop(self.id, None) is not None:
                session.dispose(SENDER, self.id, self.id, True, state or self.state)


class IncomingDelivery:
    __slots__ = (
        "context",
        "id",
        "link",
        "message_format",
        "resumed",
        "second",
        "settled",
        "state",
        "tag",
    )

    def __init__(self, link: ReceiverLink, number: int, tag: bytes, settled: bool) -> None:
        self.link = link
        self.id = number
        self.tag = tag
        self.settled = settled  #: the sender expects no outcome
        self.second = link.rcv_settle_mode != FIRST  #: the sender settles before we do
        self.message_format = 0
        self.resumed = False  #: it was sent before the link was interrupted
        self.state: DeliveryState | None = None  #: with which the sender sent it
        self.context: Any = None  #: for the owner

    def settle(self, state: DeliveryState) -> None:
        """Report the outcome; in mode `SECOND` the peer settles first."""
        if not self.settled:
            session = self.link.session
            if self.second:
                session.dispose(RECEIVER, self.id, self.id, False, state)
            elif session.incoming.pop(self.id, None) is not None:
                self.settled = True
                session.dispose(RECEIVER, self.id, self.id, True, state)


class LinkEndpoint:
    __slots__ = (
        "_detached",
        "attached",
        "context",
        "credit",
        "delivery_count",
        "draining",
        "handle",
        "name",
        "rcv_settle_mode",
        "remote",
        "remote_handle",
        "session",
        "snd_settle_mode",
    )

    role: bool

    def __init__(self, session: Amqp10Session, name: str) -> None:
        self.session = session
        self.name = name
        self.handle = -1
        self.remote_handle = -1
        self.remote: Attach | None = None  #: the peer's attach
        self.attached = False  #: by us
        self.snd_settle_mode = 2
        self.rcv_settle_mode = FIRST
        self.delivery_count = 0
        self.credit = 0
        self.draining = False  #: the sender is to use its credit now or return it
        self._detached = False  #: by us
        self.context: Any = None  #: for the owner

    @property
    def live(self) -> bool:
        """Attached on both sides and not detached by us."""
        return self.attached and self.remote is not None and not self._detached

    def attach(self, attach: Attach) -> None:
        """Send our attach; the session assigns the handle."""
        self.handle = attach.handle = self.session.new_handle(self)
        self.attached = True
        self.snd_settle_mode = attach.snd_settle_mode
        self.rcv_settle_mode = attach.rcv_settle_mode
        self.session.send(attach)

    def _answer(
        self, source: LinkSource | None, target: LinkTarget | TransactionCoordinator | None
    ) -> Attach:
        assert self.remote is not None, "the peer has not attached the link"
        return Attach(
            self.name,
            0,
            self.role,
            snd_settle_mode=self.remote.snd_settle_mode,
            rcv_settle_mode=self.remote.rcv_settle_mode,
            source=source,
            target=target,
            initial_delivery_count=None if self.role else self.delivery_count,
        )

    def refuse(self, fault: Amqp10Fault) -> None:
        """Refuse a link of the peer: attach, then detach with the error."""
        assert self.remote is not None, "the peer has not attached the link"
        if self.role is SENDER:
            answer = self._answer(None, self.remote.target)
        else:
            answer = self._answer(self.remote.source, None)
        self.attach(answer)
        self.detach(Amqp10Error(fault.condition, fault.description or None))

    def detach(self, error: Amqp10Error | None = None, *, closed: bool = True) -> None:
        """Close the link, or only detach it. Frames that arrive on it afterwards are ignored."""
        if self._detached:
            return
        self._detached = True
        if self.attached:
            self.session.forget_deliveries(self)
            self.session.send(Detach(self.handle, closed, error))
        self.session.release_handle(self)

    @property
    def detached(self) -> bool:
        return self._detached

    def send_flow(self, *, echo: bool = False) -> None:
        """Send the link's state; with `echo`, ask the peer for its own."""
        session = self.session
        session.connection.write(
            encode_link_flow(
                session.channel,
                *session.flow_state(),
                self.handle,
                self.delivery_count,
                self.credit,
                drain=self.draining,
                echo=echo,
            )
        )


class SenderLink(LinkEndpoint):
    __slots__ = ("last_tag",)

    role = SENDER

    def __init__(self, session: Amqp10Session, name: str) -> None:
        super().__init__(session, name)
        self.last_tag = 0

    def accept(
        self,
        source: LinkSource,
        target: LinkTarget | TransactionCoordinator | None,
        *,
        unsettled: dict[Any, Any] | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> None:
        answer = self._answer(source, target)
        answer.unsettled = unsettled
        answer.properties = properties
        self.attach(answer)

    def new(self, settled: bool, context: Any = None, tag: int | None = None) -> OutgoingDelivery:
        """The next delivery; it uses one credit."""
        self.credit -= 1
        self.delivery_count = (self.delivery_count + 1) % SEQUENCE_MODULUS
        if tag is None:
            self.last_tag = tag = (self.last_tag + 1) % SEQUENCE_MODULUS
        return OutgoingDelivery(self, tag, settled or self.snd_settle_mode == SETTLED, context)

    def resume(
        self, tag: int, state: DeliveryState | None, settled: bool, context: Any
    ) -> OutgoingDelivery:
        """A delivery that was sent before the link was interrupted; it uses one credit."""
        delivery = self.new(settled, context, tag)
        delivery.state = state
        delivery.resumes = True
        return delivery

    def reserve_tags(self, tag: int) -> None:
        """Tags up to this one belong to deliveries from before an interruption."""
        self.last_tag = max(self.last_tag, tag)

    def send(
        self, delivery: OutgoingDelivery, payload: bytes | memoryview, more: bool = False
    ) -> None:
        """Send the payload of a delivery, or the next piece of it."""
        self.session.transfer(delivery, payload, more)

    def send_run(
        self, payloads: Sequence[bytes], contexts: Sequence[Any] | None
    ) -> list[OutgoingDelivery]:
        """Send a delivery for each payload, settled if there are no contexts.

        Nothing is sent unless all fit the credit and the window, each in one transfer.
        """
        count = len(payloads)
        settled = contexts is None or self.snd_settle_mode == SETTLED
        if self.credit < count:
            return []
        tag = self.last_tag
        deliveries = [
            OutgoingDelivery(self, (tag + number) % SEQUENCE_MODULUS, settled, context)
            for number, context in enumerate(contexts or repeat(None, count), 1)
        ]
        if not self.session.outgoing_window.transfer_run(deliveries, payloads):
            return []
        self.credit -= count
        self.delivery_count = (self.delivery_count + count) % SEQUENCE_MODULUS
        self.last_tag = (tag + count) % SEQUENCE_MODULUS
        return deliveries

    def abort(self, delivery: OutgoingDelivery) -> None:
        self.session.outgoing.pop(delivery.id, None)
        delivery.settled = True
        if delivery.id >= 0:
            self.session.connection.write(
                encode_aborted_transfer(self.session.channel, self.handle)
            )

    def drained(self) -> None:
        """Return the remaining credit, because there is nothing to send."""
        self.delivery_count = (self.delivery_count + self.credit) % SEQUENCE_MODULUS
        self.credit = 0
        self.send_flow()


class ReceiverLink(LinkEndpoint):
    __slots__ = ("arriving", "max_message_size")

    role = RECEIVER

    def __init__(self, session: Amqp10Session, name: str) -> None:
        super().__init__(session, name)
        self.arriving: IncomingDelivery | None = None  #: an incomplete delivery
        self.max_message_size = 0

    def accept(
        self,
        source: LinkSource | None,
        target: LinkTarget | TransactionCoordinator,
        *,
        max_message_size: int = 0,
        unsettled: dict[Any, Any] | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> None:
        answer = self._answer(source, target)
        answer.max_message_size = self.max_message_size = max_message_size
        answer.unsettled = unsettled
        answer.properties = properties
        self.attach(answer)

    def grant(self, credit: int, *, drain: bool = False) -> None:
        """Set the credit; with `drain`, the peer is to use it now or return it."""
        self.credit = credit
        self.draining = drain
        self.send_flow()


#: Sequence numbers wrap around.
SEQUENCE_MODULUS: Final = 1 << 32


class OutgoingWindow:
    __slots__ = ("_next_delivery", "_session", "_waiting", "next_id", "room")

    def __init__(self, session: Amqp10Session) -> None:
        self._session = session
        self.room = 0  #: transfers that the peer will accept
        self.next_id = 0  #: of the next transfer
        self._next_delivery = 0
        self._waiting: deque[tuple[OutgoingDelivery, bytes | memoryview, bool]] = deque()

    @property
    def waits(self) -> bool:
        """The window is full, or transfers wait for it."""
        return self.room <= 0 or bool(self._waiting)

    def on_flow(self, flow: FlowPerformative) -> None:
        """Update the window and send waiting transfers."""
        seen = (
            flow.next_incoming_id or 0
        )  # absent before the peer has received our first transfer, 0
        unseen = (self.next_id - seen) % SEQUENCE_MODULUS
        if unseen >= SEQUENCE_MODULUS // 2:
            raise SessionFault(
                WINDOW_VIOLATION, f"next-incoming-id {seen} is beyond the last transfer"
            )
        self.room = max(0, flow.incoming_window - unseen)
        waiting = self._waiting
        while waiting and self.room > 0:
            delivery, payload, more = waiting.popleft()
            rest = self._write(delivery, payload, more)
            if rest is not None:
                waiting.appendleft((delivery, rest, more))

    def transfer(self, delivery: OutgoingDelivery, payload: bytes | memoryview, more: bool) -> None:
        """Send a payload in transfers within the window; the rest waits."""
        rest = payload if self._waiting else self._write(delivery, payload, more)
        if rest is not None:
            self._waiting.append((delivery, bytes(rest), more))

    def transfer_run(
        self, deliveries: Sequence[OutgoingDelivery], payloads: Sequence[bytes]
    ) -> bool:
        """Send new deliveries of one link; returns whether all fit the window, each in a frame."""
        session = self._session
        connection = session.connection
        count = len(deliveries)
        if (
            self._waiting
            or self.room < count
            or max(map(len, payloads)) > connection.remote_frame_max - TRANSFER_OVERHEAD
        ):
            return False
        channel, handle, settled = session.channel, deliveries[0].link.handle, deliveries[0].settled
        number = self._next_delivery
        transfers: list[bytes] = []
        for delivery, payload in zip(deliveries, payloads, strict=True):
            delivery.id = number
            if not settled:
                session.outgoing[number] = delivery
            transfers += (
                encode_transfer_prefix(
                    channel, handle, number, delivery.tag, settled, False, len(payload)
                ),
                payload,
            )
            number = (number + 1) % SEQUENCE_MODULUS
        self._next_delivery = number
        self.room -= count
        self.next_id = (self.next_id + count) % SEQUENCE_MODULUS
        connection.write_transfers(transfers)
        return True

    def _write(
        self, delivery: OutgoingDelivery, payload: bytes | memoryview, more: bool
    ) -> bytes | memoryview | None:
        """Returns the part that did not fit the window."""
        connection = self._session.connection
        limit = connection.remote_frame_max
        rest: bytes | memoryview | None = payload
        while rest is not None and self.room > 0:
            payload = rest
            size = limit - _transfer_overhead(delivery)
            if len(payload) > size:
                rest = memoryview(payload)[size:]
                payload = memoryview(payload)[:size]
            else:
                rest = None
            head = self._head(delivery, more or rest is not None, len(payload))
            self.room -= 1
            self.next_id = (self.next_id + 1) % SEQUENCE_MODULUS
            connection.write_transfer(head, payload)
        return rest

    def _head(self, delivery: OutgoingDelivery, more: bool, size: int) -> bytes:
        session, handle, settled = self._session, delivery.link.handle, delivery.settled
        channel = session.channel
        if delivery.id >= 0:
            return encode_next_transfer_prefix(channel, handle, settled, more, size)
        delivery.id = number = self._next_delivery
        self._next_delivery = (number + 1) % SEQUENCE_MODULUS
        if not settled:
            session.outgoing[number] = delivery
        if delivery.resumes:
            state = encode_delivery_state(delivery.state)
            return encode_resumed_transfer_prefix(
                channel, handle, number, delivery.tag, settled, more, size, state
            )
        return encode_transfer_prefix(channel, handle, number, delivery.tag, settled, more, size)

    def forget(self, link: LinkEndpoint) -> None:
        """Discard the waiting transfers of a link."""
        if self._waiting:
            self._waiting = deque(one for one in self._waiting if one[0].link is not link)

    def end(self) -> None:
        self._waiting.clear()


def _transfer_overhead(delivery: OutgoingDelivery) -> int:
    if delivery.id >= 0:
        return NEXT_TRANSFER_OVERHEAD
    if delivery.resumes:
        return TRANSFER_OVERHEAD + 2 + len(encode_delivery_state(delivery.state))
    return TRANSFER_OVERHEAD


#: The incoming window in transfers, renewed when half is used. Nothing is buffered here, so it sets
#: how often flows are sent and is not a limit.
INCOMING_WINDOW_SIZE: Final = 4096

DELIVERY_TAG_MAX_BYTES: Final = 32


class IncomingWindow:
    __slots__ = ("_room", "_session", "next_id")

    def __init__(self, session: Amqp10Session) -> None:
        self._session = session
        self._room = INCOMING_WINDOW_SIZE
        self.next_id = 0  #: of the next transfer

    def transferred(self) -> bool:
        """Count a transfer; returns false when the peer is to be sent a new window."""
        self.next_id = (self.next_id + 1) % SEQUENCE_MODULUS
        self._room -= 1
        return self._room >= INCOMING_WINDOW_SIZE // 2

    def renew(self) -> int:
        """Reset the window, because it is sent to the peer."""
        self._room = INCOMING_WINDOW_SIZE
        return INCOMING_WINDOW_SIZE

    def take(self, link: LinkEndpoint, transfer: TransferPerformative, payload: bytes) -> None:
        if not isinstance(link, ReceiverLink):
            raise LinkFault(NOT_ALLOWED, "transfer to a sending endpoint")
        session = self._session
        delivery = link.arriving
        if delivery is None:
            delivery = self._arrive(link, transfer)
        else:
            if transfer.delivery_id not in (None, delivery.id):
                raise LinkFault(
                    ILLEGAL_STATE,
                    f"delivery {transfer.delivery_id} begins before the end of {delivery.id}",
                )
            if transfer.settled and not delivery.settled:
                delivery.settled = True
                session.incoming.pop(delivery.id, None)
        if transfer.aborted:
            link.arriving = None
            delivery.settled = True
            session.incoming.pop(delivery.id, None)
            session.connection.events.on_abort(delivery)
            return
        link.arriving = delivery if transfer.more else None
        session.connection.events.on_transfer(delivery, payload, transfer.more)

    def _arrive(self, link: ReceiverLink, transfer: TransferPerformative) -> IncomingDelivery:
        """Begin a delivery with its first transfer."""
        incoming = self._session.incoming
        number = transfer.delivery_id
        tag = transfer.delivery_tag
        if number is None or tag is None:
            raise DecodeError("first transfer without delivery-id or delivery-tag")
        if len(tag) > DELIVERY_TAG_MAX_BYTES:
            raise DecodeError(f"delivery tag of {len(tag)} bytes exceeds {DELIVERY_TAG_MAX_BYTES}")
        if link.credit <= 0:
            raise LinkFault(TRANSFER_LIMIT, "transfer without credit")
        if number in incoming:
            raise SessionFault(ILLEGAL_STATE, f"delivery {number} is not settled yet")
        link.credit -= 1
        link.delivery_count = (link.delivery_count + 1) % SEQUENCE_MODULUS
        settled = transfer.settled is True or link.snd_settle_mode == SETTLED
        delivery = IncomingDelivery(link, number, tag, settled)
        if transfer.rcv_settle_mode is not None:
            delivery.second = transfer.rcv_settle_mode == SECOND
        if transfer.message_format:
            delivery.message_format = transfer.message_format
        delivery.resumed = transfer.resume
        delivery.state = transfer.state
        if not settled:
            incoming[number] = delivery
        return delivery
