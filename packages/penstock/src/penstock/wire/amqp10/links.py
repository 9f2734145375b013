"""Links: one-way roads for messages, with credit; and the deliveries on them.

A `SenderLink` sends while it has credit, which its peer gives; a `ReceiverLink` gives credit and
takes what comes. Either may have been asked for by the peer (`accept` or `refuse` it) or by us.
What deliveries mean, and when they are settled, is the owner's; that credit is kept to, is the
link's.
"""

from __future__ import annotations

from collections import deque
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
    from penstock.wire.amqp10.performatives import LinkSource, LinkTarget, TransactionCoordinator
    from penstock.wire.amqp10.session import Amqp10Session
    from penstock.wire.amqp10.transfers import FlowPerformative, TransferPerformative


class OutgoingDelivery:
    """A delivery on its way out."""

    __slots__ = ("context", "id", "link", "resumes", "settled", "state", "tag")

    def __init__(self, link: SenderLink, tag: int, settled: bool, context: Any) -> None:
        self.link = link
        self.id = -1  #: until its first transfer leaves
        self.tag = tag
        self.settled = settled
        self.state: DeliveryState | None = None  #: what the peer has said of it
        self.resumes = False  #: it was sent before, and the link interrupted
        self.context = context  #: the owner's

    def settle(self, state: DeliveryState | None = None) -> None:
        """Be done with it, and tell the peer."""
        if not self.settled:
            self.settled = True
            session = self.link.session
            if session.outgoing.pop(self.id, None) is not None:
                session.dispose(SENDER, self.id, self.id, True, state or self.state)


class IncomingDelivery:
    """A delivery on its way in."""

    __slots__ = ("context", "id", "link", "message_format", "resumed", "second", "settled", "tag")

    def __init__(self, link: ReceiverLink, number: int, tag: bytes, settled: bool) -> None:
        self.link = link
        self.id = number
        self.tag = tag
        self.settled = settled  #: the sender does not want to hear of it
        self.second = link.rcv_settle_mode != FIRST  #: the sender settles before we do
        self.message_format = 0
        self.resumed = False  #: of a link that was interrupted
        self.context: Any = None  #: the owner's

    def settle(self, state: DeliveryState) -> None:
        """Say what became of it. The peer may have to settle first."""
        if not self.settled:
            session = self.link.session
            if self.second:
                session.dispose(RECEIVER, self.id, self.id, False, state)
            elif session.incoming.pop(self.id, None) is not None:
                self.settled = True
                session.dispose(RECEIVER, self.id, self.id, True, state)


class LinkEndpoint:
    """What a sender and a receiver have in common."""

    __slots__ = (
        "_detached",
        "attached",
        "context",
        "credit",
        "delivery_count",
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
        self.remote: Attach | None = None  #: as the peer attached it
        self.attached = False  #: by us
        self.snd_settle_mode = 2
        self.rcv_settle_mode = FIRST
        self.delivery_count = 0
        self.credit = 0
        self._detached = False  #: by us
        self.context: Any = None  #: the owner's

    @property
    def live(self) -> bool:
        """Attached on both sides, and not on its way out."""
        return self.attached and self.remote is not None and not self._detached

    def attach(self, attach: Attach) -> None:
        """Send our half; the connection fills in the handle."""
        self.handle = attach.handle = self.session.new_handle(self)
        self.attached = True
        self.snd_settle_mode = attach.snd_settle_mode
        self.rcv_settle_mode = attach.rcv_settle_mode
        self.session.send(attach)

    def _answer(
        self, source: LinkSource | None, target: LinkTarget | TransactionCoordinator | None
    ) -> Attach:
        assert self.remote is not None, "there is nothing to answer"
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
        """The peer wants a link that it cannot have: attach, so that there is something to end."""
        assert self.remote is not None, "there is nothing to answer"
        if self.role is SENDER:
            answer = self._answer(None, self.remote.target)
        else:
            answer = self._answer(self.remote.source, None)
        self.attach(answer)
        self.detach(Amqp10Error(fault.condition, fault.description or None))

    def detach(self, error: Amqp10Error | None = None, *, closed: bool = True) -> None:
        """End it, or only take it off this session. What still comes on it is not looked at."""
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


class SenderLink(LinkEndpoint):
    """The sending end: we send, the peer has the credit to give."""

    __slots__ = ("_tag", "draining")

    role = SENDER

    def __init__(self, session: Amqp10Session, name: str) -> None:
        super().__init__(session, name)
        self._tag = 0
        self.draining = False  #: credit is to be used now or given up

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
        """The next delivery; it takes one credit."""
        self.credit -= 1
        self.delivery_count = (self.delivery_count + 1) % SEQUENCE_MODULUS
        if tag is None:
            self._tag = tag = (self._tag + 1) % SEQUENCE_MODULUS
        return OutgoingDelivery(self, tag, settled or self.snd_settle_mode == SETTLED, context)

    def resume(
        self, tag: int, state: DeliveryState | None, settled: bool, context: Any
    ) -> OutgoingDelivery:
        """A delivery that was sent before the link was interrupted; it takes one credit."""
        delivery = self.new(settled, context, tag)
        delivery.state = state
        delivery.resumes = True
        return delivery

    def number_from(self, tag: int) -> None:
        """Tags up to this one are taken, by deliveries of before an interruption."""
        self._tag = max(self._tag, tag)

    def send(
        self, delivery: OutgoingDelivery, payload: bytes | memoryview, more: bool = False
    ) -> None:
        """A delivery's payload, or the next piece of it; in as many transfers as it takes."""
        self.session.transfer(delivery, payload, more)

    def abort(self, delivery: OutgoingDelivery) -> None:
        """Half of it is sent, and the rest will not be."""
        self.session.outgoing.pop(delivery.id, None)
        delivery.settled = True
        if delivery.id >= 0:
            self.session.connection.write(
                encode_aborted_transfer(self.session.channel, self.handle)
            )

    def drained(self) -> None:
        """There is nothing to send: give up what credit is left."""
        self.delivery_count = (self.delivery_count + self.credit) % SEQUENCE_MODULUS
        self.credit = 0
        self.tell()

    def tell(self) -> None:
        """Say where the link stands."""
        session = self.session
        session.connection.write(
            encode_link_flow(
                session.channel,
                *session.flow_state(),
                self.handle,
                self.delivery_count,
                self.credit,
                drain=self.draining,
            )
        )


class ReceiverLink(LinkEndpoint):
    """The receiving end: we give credit, the peer sends."""

    __slots__ = ("arriving", "drain", "max_message_size")

    role = RECEIVER

    def __init__(self, session: Amqp10Session, name: str) -> None:
        super().__init__(session, name)
        self.arriving: IncomingDelivery | None = None  #: a delivery of which more is to come
        self.drain = False
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
        """The peer may send so many more from now on; with `drain`, now or not at all."""
        self.credit = credit
        self.drain = drain
        self.tell()

    def tell(self, *, echo: bool = False) -> None:
        """Say where the link stands; with `echo`, and be told the same."""
        session = self.session
        session.connection.write(
            encode_link_flow(
                session.channel,
                *session.flow_state(),
                self.handle,
                self.delivery_count,
                self.credit,
                drain=self.drain,
                echo=echo,
            )
        )


# What leaves a session: deliveries cut into transfers, within the window that the peer gives.
#
# The peer says how many transfers it will take; what does not fit waits here, in order. Deliveries
# get their numbers as their first transfer leaves, so that what is forgotten before leaves no gap.

#: Sequence numbers go round.
SEQUENCE_MODULUS: Final = 1 << 32


class OutgoingWindow:
    __slots__ = ("_next_delivery", "_session", "_waiting", "next_id", "room")

    def __init__(self, session: Amqp10Session) -> None:
        self._session = session
        self.room = 0  #: transfers the peer will take
        self.next_id = 0  #: of the next transfer
        self._next_delivery = 0
        self._waiting: deque[tuple[OutgoingDelivery, bytes | memoryview, bool]] = deque()

    @property
    def waits(self) -> bool:
        """There is no room, or something waits for room."""
        return self.room <= 0 or bool(self._waiting)

    def on_flow(self, flow: FlowPerformative) -> None:
        """The peer says how far it has read, and how much more it will take from there."""
        seen = flow.next_incoming_id or 0  # before it has heard of our first, which is 0
        unseen = (self.next_id - seen) % SEQUENCE_MODULUS
        if unseen >= SEQUENCE_MODULUS // 2:
            raise SessionFault(WINDOW_VIOLATION, f"transfer {seen} has not been sent yet")
        self.room = max(0, flow.incoming_window - unseen)
        waiting = self._waiting
        while waiting and self.room > 0:
            delivery, payload, more = waiting.popleft()
            rest = self._write(delivery, payload, more)
            if rest is not None:
                waiting.appendleft((delivery, rest, more))

    def transfer(self, delivery: OutgoingDelivery, payload: bytes | memoryview, more: bool) -> None:
        """Write a payload in transfers, as far as the window reaches; the rest waits."""
        rest = payload if self._waiting else self._write(delivery, payload, more)
        if rest is not None:
            self._waiting.append((delivery, bytes(rest), more))

    def _write(
        self, delivery: OutgoingDelivery, payload: bytes | memoryview, more: bool
    ) -> bytes | memoryview | None:
        """Returns what did not fit the window."""
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
        """Nothing more of a link's is to leave."""
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


# What arrives on a session: transfers, pieces of deliveries, on links with credit for them.

#: Transfers we take before the peer hears of more room, which it does when half are used. Nothing
#: is gathered here: this says how often to speak, not what fits, and cannot be overrun.
INCOMING_WINDOW_SIZE: Final = 4096

#: A delivery tag has at most so many bytes.
DELIVERY_TAG_MAX_BYTES: Final = 32


class IncomingWindow:
    __slots__ = ("_room", "_session", "next_id")

    def __init__(self, session: Amqp10Session) -> None:
        self._session = session
        self._room = INCOMING_WINDOW_SIZE
        self.next_id = 0  #: of the next transfer

    def transferred(self) -> bool:
        """One more has come; false when it is time to tell the peer of more room."""
        self.next_id = (self.next_id + 1) % SEQUENCE_MODULUS
        self._room -= 1
        return self._room >= INCOMING_WINDOW_SIZE // 2

    def renew(self) -> int:
        """The window, all of it: the peer is being told."""
        self._room = INCOMING_WINDOW_SIZE
        return INCOMING_WINDOW_SIZE

    def take(self, link: LinkEndpoint, transfer: TransferPerformative, payload: bytes) -> None:
        if not isinstance(link, ReceiverLink):
            raise LinkFault(NOT_ALLOWED, "a transfer to the end of a link that sends")
        session = self._session
        delivery = link.arriving
        if delivery is None:
            delivery = self._arrive(link, transfer)
        else:
            if transfer.delivery_id not in (None, delivery.id):
                raise LinkFault(
                    ILLEGAL_STATE, f"delivery {delivery.id} is not finished, and another begins"
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
        """The first transfer of a delivery."""
        incoming = self._session.incoming
        number = transfer.delivery_id
        tag = transfer.delivery_tag
        if number is None or tag is None:
            raise DecodeError("a delivery begins with its id and its tag")
        if len(tag) > DELIVERY_TAG_MAX_BYTES:
            raise DecodeError(
                f"a delivery tag of {len(tag)} bytes, at most {DELIVERY_TAG_MAX_BYTES} may be"
            )
        if link.credit <= 0:
            raise LinkFault(TRANSFER_LIMIT, "a transfer without credit")
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
        if not settled:
            incoming[number] = delivery
        return delivery
