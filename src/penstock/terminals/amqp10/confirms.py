"""What is safe, told to senders in as few words as possible.

Deliveries are confirmed as destinations see fit and gather until the turn ends; those that follow
one another are then accepted by one disposition. A sender that settles before we do is told the
outcome, and the delivery stays open until it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.wire.amqp10.heads import disposition_frame
from penstock.wire.amqp10.performatives import RECEIVER
from penstock.wire.amqp10.states import ACCEPTED, encode_state

if TYPE_CHECKING:
    from penstock.terminals.amqp10.inlet import Inlet
    from penstock.wire.amqp10.session import Session

_ACCEPTED: Final = encode_state(ACCEPTED)


class Confirms:
    __slots__ = ("waiting",)

    def __init__(self) -> None:
        #: Numbers of deliveries that are safe, and whose senders have not been told.
        self.waiting: dict[Session, list[int]] = {}

    def add(self, session: Session, number: int) -> None:
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
            for inlet in _accept(session, numbers):
                inlet.top_up()
        return count


def _accept(session: Session, numbers: list[int]) -> dict[Inlet, None]:
    """Accept deliveries in runs; returns the inlets that have room for others now."""
    incoming = session.incoming
    inlets: dict[Inlet, None] = {}
    first = last = -1
    second = False
    for number in numbers:
        delivery = incoming.get(number)
        if delivery is None:  # its link is gone
            continue
        if first < 0:
            first = number
        elif number != last + 1 or delivery.second is not second:
            _tell(session, first, last, second)
            first = number
        last = number
        second = delivery.second
        if second:
            delivery.context = ACCEPTED
        else:
            delivery.settled = True
            del incoming[number]
            inlet: Inlet = delivery.link.context
            inlet.unsettled -= 1
            inlets[inlet] = None
    if first >= 0:
        _tell(session, first, last, second)
    return inlets


def _tell(session: Session, first: int, last: int, second: bool) -> None:
    session.connection.write(
        disposition_frame(session.channel, RECEIVER, first, last, not second, _ACCEPTED)
    )
