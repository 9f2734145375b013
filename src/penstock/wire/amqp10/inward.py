"""What arrives on a session: transfers, pieces of deliveries, on links with credit for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.wire.amqp10.conditions import (
    ILLEGAL_STATE,
    NOT_ALLOWED,
    TRANSFER_LIMIT,
    LinkFault,
    SessionFault,
)
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.links import Incoming, Link, Receiver
from penstock.wire.amqp10.outward import ROUND
from penstock.wire.amqp10.performatives import SECOND, SETTLED

if TYPE_CHECKING:
    from penstock.wire.amqp10.session import Session
    from penstock.wire.amqp10.transfers import Transfer

#: Transfers we take before the peer hears of more room, which it does when half are used. Nothing
#: is gathered here: this says how often to speak, not what fits, and cannot be overrun.
WINDOW: Final = 4096

#: A delivery tag has at most so many bytes.
TAG_MAX: Final = 32


class Inward:
    __slots__ = ("_room", "_session", "next_id")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._room = WINDOW
        self.next_id = 0  #: of the next transfer

    def transferred(self) -> bool:
        """One more has come; false when it is time to tell the peer of more room."""
        self.next_id = (self.next_id + 1) % ROUND
        self._room -= 1
        return self._room >= WINDOW // 2

    def renew(self) -> int:
        """The window, all of it: the peer is being told."""
        self._room = WINDOW
        return WINDOW

    def take(self, link: Link, transfer: Transfer, payload: bytes) -> None:
        if not isinstance(link, Receiver):
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

    def _arrive(self, link: Receiver, transfer: Transfer) -> Incoming:
        """The first transfer of a delivery."""
        incoming = self._session.incoming
        number = transfer.delivery_id
        tag = transfer.delivery_tag
        if number is None or tag is None:
            raise DecodeError("a delivery begins with its id and its tag")
        if len(tag) > TAG_MAX:
            raise DecodeError(f"a delivery tag of {len(tag)} bytes, at most {TAG_MAX} may be")
        if link.credit <= 0:
            raise LinkFault(TRANSFER_LIMIT, "a transfer without credit")
        if number in incoming:
            raise SessionFault(ILLEGAL_STATE, f"delivery {number} is not settled yet")
        link.credit -= 1
        link.delivery_count = (link.delivery_count + 1) % ROUND
        settled = transfer.settled is True or link.snd_settle_mode == SETTLED
        delivery = Incoming(link, number, tag, settled)
        if transfer.rcv_settle_mode is not None:
            delivery.second = transfer.rcv_settle_mode == SECOND
        if transfer.message_format:
            delivery.message_format = transfer.message_format
        delivery.resumed = transfer.resume
        if not settled:
            incoming[number] = delivery
        return delivery
