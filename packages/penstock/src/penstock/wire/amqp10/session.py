"""Sessions: links, and the unsettled deliveries on them.

Deliveries are numbered across all links of a session, in each direction, and a disposition covers a
range of these numbers: so the session knows which are unsettled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.wire.amqp10.errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    LIMIT_EXCEEDED,
    NOT_IMPLEMENTED,
    STOLEN,
    TRANSFER_LIMIT,
    UNATTACHED_HANDLE,
    ConnectionFault,
    DecodeError,
    LinkFault,
    SessionFault,
)
from penstock.wire.amqp10.links import (
    INCOMING_WINDOW_SIZE,
    SEQUENCE_MODULUS,
    IncomingDelivery,
    IncomingWindow,
    LinkEndpoint,
    OutgoingDelivery,
    OutgoingWindow,
    ReceiverLink,
    SenderLink,
)
from penstock.wire.amqp10.performatives import (
    OUTCOMES,
    RECEIVER,
    SENDER,
    Amqp10Error,
    Attach,
    Begin,
    DeliveryState,
    Detach,
    End,
    TransactionalState,
    encode_delivery_state,
    encode_performative_frame,
)
from penstock.wire.amqp10.transfers import (
    DispositionPerformative,
    FlowPerformative,
    TransferReader,
    decode_disposition,
    decode_flow,
    encode_disposition,
    encode_session_flow,
)

if TYPE_CHECKING:
    from penstock.wire.amqp10.connection import Amqp10Connection

#: The largest handle of a link.
HANDLE_MAX: Final = 1023


class Amqp10Session:
    __slots__ = (
        "_handles",
        "_links",
        "_remote_handle_max",
        "_remote_handles",
        "_transfers",
        "begun",
        "channel",
        "connection",
        "context",
        "ended",
        "incoming",
        "incoming_window",
        "outgoing",
        "outgoing_window",
        "remote_channel",
    )

    def __init__(self, connection: Amqp10Connection, channel: int) -> None:
        self.connection = connection
        self.channel = channel
        self.remote_channel = -1
        self.begun = False  #: by us
        self.ended = False  #: by us
        self.incoming_window = IncomingWindow(self)
        self.outgoing_window = OutgoingWindow(self)
        self.incoming: dict[int, IncomingDelivery] = {}  #: unsettled, by number
        self.outgoing: dict[int, OutgoingDelivery] = {}  #: unsettled, by number
        self.context: Any = None  #: for the owner
        self._remote_handle_max = HANDLE_MAX
        self._links: dict[tuple[str, bool], LinkEndpoint] = {}
        self._handles: dict[int, LinkEndpoint] = {}
        self._remote_handles: dict[int, LinkEndpoint] = {}
        self._transfers = TransferReader()

    def begin(self) -> None:
        self.begun = True
        self.send(
            Begin(
                remote_channel=None if self.remote_channel < 0 else self.remote_channel,
                next_outgoing_id=self.outgoing_window.next_id,
                incoming_window=INCOMING_WINDOW_SIZE,
                outgoing_window=INCOMING_WINDOW_SIZE,
                handle_max=HANDLE_MAX,
            )
        )

    def on_begin(self, channel: int, begin: Begin) -> None:
        self.remote_channel = channel
        self.incoming_window.next_id = begin.next_outgoing_id
        self._remote_handle_max = begin.handle_max
        self.outgoing_window.room = begin.incoming_window

    def end(self, error: Amqp10Error | None = None) -> None:
        """End it; frames that arrive on it afterwards are ignored."""
        if not self.ended:
            self.ended = True
            self.outgoing_window.end()
            self.incoming.clear()
            self.outgoing.clear()
            self.send(End(error))
            self.connection.release_channel(self)

    def lose(self) -> None:
        """Release everything, because the connection is lost."""
        for known in (self.incoming, self.outgoing, self._links, self._handles):
            known.clear()
        self._remote_handles.clear()
        del self.incoming_window, self.outgoing_window

    def send(self, performative: Any) -> None:
        frame = encode_performative_frame(self.channel, performative)
        self.connection.write_checked(frame)

    @property
    def links(self) -> list[LinkEndpoint]:
        return list(self._links.values())

    # Links.

    def sender(self, name: str) -> SenderLink:
        """A sending link of ours, to be attached."""
        link = SenderLink(self, name)
        self._links[name, SENDER] = link
        return link

    def receiver(self, name: str) -> ReceiverLink:
        link = ReceiverLink(self, name)
        self._links[name, RECEIVER] = link
        return link

    def new_handle(self, link: LinkEndpoint) -> int:
        handles = self._handles
        handle = len(handles)
        if handle in handles:  # a lower one may be free
            handle = next(free for free in range(handle) if free not in handles)
        if handle > self._remote_handle_max:
            raise SessionFault(LIMIT_EXCEEDED, f"at most {handle} links can be attached")
        handles[handle] = link
        return handle

    def release_handle(self, link: LinkEndpoint) -> None:
        """We have detached a link. Its name is free once the peer has, too."""
        if self._handles.get(link.handle) is link:
            del self._handles[link.handle]
        if link.remote_handle < 0 or link.remote_handle not in self._remote_handles:
            self._forget(link)

    def _forget(self, link: LinkEndpoint) -> None:
        if self._links.get((link.name, link.role)) is link:
            del self._links[link.name, link.role]

    def on_attach(self, attach: Attach) -> None:
        if attach.handle > HANDLE_MAX:
            raise ConnectionFault(FRAMING_ERROR, f"handle {attach.handle} exceeds {HANDLE_MAX}")
        if attach.handle in self._remote_handles:
            raise SessionFault(HANDLE_IN_USE, f"handle {attach.handle} is already attached")
        role = not attach.role
        link = self._links.get((attach.name, role))
        if link is not None and link.remote is not None:
            self._steal(link)
            link = None
        if link is None:
            link = (
                SenderLink(self, attach.name) if role is SENDER else ReceiverLink(self, attach.name)
            )
            self._links[attach.name, role] = link
        link.remote = attach
        link.remote_handle = attach.handle
        self._remote_handles[attach.handle] = link
        if role is RECEIVER:
            if attach.initial_delivery_count is None:
                raise DecodeError("attach of a sender without initial-delivery-count")
            link.delivery_count = attach.initial_delivery_count
        try:
            self.connection.events.on_attach(link)
        except LinkFault as fault:
            link.refuse(fault)

    def _steal(self, link: LinkEndpoint) -> None:
        """Detach a link whose name the peer has attached again."""
        error = Amqp10Error(STOLEN, f"link '{link.name}' was attached again")
        self.connection.events.on_detach(link, False, error)
        link.detach(error)
        self._forget(link)

    def on_detach(self, detach: Detach) -> None:
        link = self._remote_handles.pop(detach.handle, None)
        if link is None:
            raise SessionFault(UNATTACHED_HANDLE, f"handle {detach.handle} is not attached")
        if not link.detached:
            self.connection.events.on_detach(link, detach.closed, detach.error)
        link.detach(closed=detach.closed)
        self._forget(link)

    def fail(self, link: LinkEndpoint, fault: LinkFault) -> None:
        """Detach a link, because of an error of the peer."""
        error = Amqp10Error(fault.condition, fault.description or None)
        self.connection.events.on_detach(link, True, error)
        link.detach(error)

    # Incoming.

    def on_transfer(self, data: bytes, at: int, stop: int) -> None:
        transfer, at = self._transfers.read(data, at, stop)
        room = self.incoming_window.transferred()
        link = self._remote_handles.get(transfer.handle)
        if link is None:
            raise SessionFault(UNATTACHED_HANDLE, f"handle {transfer.handle} is not attached")
        if not link.detached:
            try:
                self.incoming_window.take(link, transfer, data[at:stop])
            except LinkFault as fault:
                self.fail(link, fault)
        if not room:
            self.connection.write(encode_session_flow(self.channel, *self.flow_state()))

    def on_flow(self, data: bytes, at: int, stop: int) -> None:
        flow = decode_flow(data, at, stop)
        full = self.waits
        self.outgoing_window.on_flow(flow)
        if flow.handle is not None:
            self._link_flow(flow)
        elif flow.echo:
            self.connection.write(encode_session_flow(self.channel, *self.flow_state()))
        if full and not self.waits:
            self.connection.events.on_window_open(self)

    def _link_flow(self, flow: FlowPerformative) -> None:
        link = self._remote_handles.get(flow.handle or 0)
        if link is None:
            raise SessionFault(UNATTACHED_HANDLE, f"handle {flow.handle} is not attached")
        if not link.live:
            return
        try:
            if isinstance(link, SenderLink):
                if flow.properties and "txn-id" in flow.properties:
                    raise LinkFault(NOT_IMPLEMENTED, "transactional acquisition is not supported")
                if flow.link_credit is not None:
                    seen = flow.delivery_count or 0
                    ahead = (link.delivery_count - seen) % SEQUENCE_MODULUS
                    link.credit = (
                        max(0, flow.link_credit - ahead) if ahead < SEQUENCE_MODULUS // 2 else 0
                    )
                link.draining = flow.drain
                self.connection.events.on_flow(link)
            elif isinstance(link, ReceiverLink):
                self._sender_flow(link, flow)
        except LinkFault as fault:
            self.fail(link, fault)
            return
        if flow.echo and link.live:
            link.send_flow()

    def _sender_flow(self, link: ReceiverLink, flow: FlowPerformative) -> None:
        """A sender has sent its delivery count: it may have returned credit."""
        if flow.delivery_count is not None:
            returned = (flow.delivery_count - link.delivery_count) % SEQUENCE_MODULUS
            if returned > link.credit:
                raise LinkFault(TRANSFER_LIMIT, "delivery-count exceeds the credit")
            link.delivery_count = flow.delivery_count
            link.credit -= returned
        self.connection.events.on_drained(link)

    def on_disposition(self, data: bytes, at: int, stop: int) -> None:
        disposition = decode_disposition(data, at, stop)
        if disposition.role is RECEIVER:
            self._outcomes(disposition)
            return
        events = self.connection.events
        for number in _deliveries_in_range(self.incoming, disposition):
            if disposition.settled:
                delivery = self.incoming.pop(number)
                delivery.settled = True
                events.on_settled(delivery)

    def _outcomes(self, disposition: DispositionPerformative) -> None:
        """Handle outcomes of our deliveries; settle those that the peer has not."""
        state = disposition.state
        final = isinstance(state, OUTCOMES)
        outgoing = self.outgoing
        on_outcomes = self.connection.events.on_outcomes
        numbers = _deliveries_in_range(outgoing, disposition)
        if not numbers:
            return
        if disposition.settled or final:
            deliveries = [outgoing.pop(number) for number in numbers]
            for delivery in deliveries:
                delivery.settled = True
                if state is not None:
                    delivery.state = state
            on_outcomes(deliveries)
            if not disposition.settled:
                self.dispose(SENDER, numbers[0], numbers[-1], True, state)
        elif state is not None:
            deliveries = [outgoing[number] for number in numbers]
            for delivery in deliveries:
                delivery.state = state
            if isinstance(state, TransactionalState):
                on_outcomes(deliveries)

    # Outgoing.

    def flow_state(self) -> tuple[int, int, int, int]:
        """The session fields of a flow."""
        return (
            self.incoming_window.next_id,
            self.incoming_window.renew(),
            self.outgoing_window.next_id,
            INCOMING_WINDOW_SIZE,
        )

    def dispose(
        self, role: bool, first: int, last: int, settled: bool, state: DeliveryState | None
    ) -> None:
        self.connection.write(
            encode_disposition(
                self.channel, role, first, last, settled, encode_delivery_state(state)
            )
        )

    def transfer(self, delivery: OutgoingDelivery, payload: bytes | memoryview, more: bool) -> None:
        self.outgoing_window.transfer(delivery, payload, more)

    @property
    def waits(self) -> bool:
        """The outgoing window is full, or transfers wait for it."""
        return self.outgoing_window.waits

    def forget_deliveries(self, link: LinkEndpoint) -> None:
        """Discard the waiting transfers and unsettled deliveries of a detached link."""
        self.outgoing_window.forget(link)
        for known in (self.incoming, self.outgoing):
            for number in [number for number, one in known.items() if one.link is link]:
                del known[number]


def _deliveries_in_range(known: dict[int, Any], disposition: DispositionPerformative) -> list[int]:
    """The known numbers in the range of a disposition, in order."""
    first = disposition.first
    count = (disposition.last - first) % SEQUENCE_MODULUS + 1
    if count == 1:
        return [first] if first in known else []
    if count <= len(known):
        numbers = (number % SEQUENCE_MODULUS for number in range(first, first + count))
        return [number for number in numbers if number in known]
    return [number for number in known if (number - first) % SEQUENCE_MODULUS < count]
