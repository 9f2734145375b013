"""What leaves a session: deliveries cut into transfers, within the window that the peer gives.

The peer says how many transfers it will take; what does not fit waits here, in order. Deliveries
get their numbers as their first transfer leaves, so that what is forgotten before leaves no gap.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from penstock.wire.amqp10.conditions import WINDOW_VIOLATION, SessionFault
from penstock.wire.amqp10.heads import (
    NEXT_HEAD,
    TRANSFER_HEAD,
    next_transfer_head,
    resumed_head,
    transfer_head,
)
from penstock.wire.amqp10.states import encode_state

if TYPE_CHECKING:
    from penstock.wire.amqp10.links import Link, Outgoing
    from penstock.wire.amqp10.session import Session
    from penstock.wire.amqp10.transfers import Flow

#: Sequence numbers go round.
ROUND: Final = 1 << 32


class Outward:
    __slots__ = ("_next_delivery", "_session", "_waiting", "next_id", "room")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.room = 0  #: transfers the peer will take
        self.next_id = 0  #: of the next transfer
        self._next_delivery = 0
        self._waiting: deque[tuple[Outgoing, bytes | memoryview, bool]] = deque()

    @property
    def waits(self) -> bool:
        """There is no room, or something waits for room."""
        return self.room <= 0 or bool(self._waiting)

    def on_flow(self, flow: Flow) -> None:
        """The peer says how far it has read, and how much more it will take from there."""
        seen = flow.next_incoming_id or 0  # before it has heard of our first, which is 0
        unseen = (self.next_id - seen) % ROUND
        if unseen >= ROUND // 2:
            raise SessionFault(WINDOW_VIOLATION, f"transfer {seen} has not been sent yet")
        self.room = max(0, flow.incoming_window - unseen)
        waiting = self._waiting
        while waiting and self.room > 0:
            delivery, payload, more = waiting.popleft()
            rest = self._write(delivery, payload, more)
            if rest is not None:
                waiting.appendleft((delivery, rest, more))

    def transfer(self, delivery: Outgoing, payload: bytes | memoryview, more: bool) -> None:
        """Write a payload in transfers, as far as the window reaches; the rest waits."""
        rest = payload if self._waiting else self._write(delivery, payload, more)
        if rest is not None:
            self._waiting.append((delivery, bytes(rest), more))

    def _write(
        self, delivery: Outgoing, payload: bytes | memoryview, more: bool
    ) -> bytes | memoryview | None:
        """Returns what did not fit the window."""
        connection = self._session.connection
        limit = connection.remote_frame_max
        rest: bytes | memoryview | None = payload
        while rest is not None and self.room > 0:
            payload = rest
            size = limit - _head_size(delivery)
            if len(payload) > size:
                rest = memoryview(payload)[size:]
                payload = memoryview(payload)[:size]
            else:
                rest = None
            head = self._head(delivery, more or rest is not None, len(payload))
            self.room -= 1
            self.next_id = (self.next_id + 1) % ROUND
            connection.write_transfer(head, payload)
        return rest

    def _head(self, delivery: Outgoing, more: bool, size: int) -> bytes:
        session, handle, settled = self._session, delivery.link.handle, delivery.settled
        channel = session.channel
        if delivery.id >= 0:
            return next_transfer_head(channel, handle, settled, more, size)
        delivery.id = number = self._next_delivery
        self._next_delivery = (number + 1) % ROUND
        if not settled:
            session.outgoing[number] = delivery
        if delivery.resumes:
            state = encode_state(delivery.state)
            return resumed_head(channel, handle, number, delivery.tag, settled, more, size, state)
        return transfer_head(channel, handle, number, delivery.tag, settled, more, size)

    def forget(self, link: Link) -> None:
        """Nothing more of a link's is to leave."""
        if self._waiting:
            self._waiting = deque(one for one in self._waiting if one[0].link is not link)

    def end(self) -> None:
        self._waiting.clear()


def _head_size(delivery: Outgoing) -> int:
    if delivery.id >= 0:
        return NEXT_HEAD
    if delivery.resumes:
        return TRANSFER_HEAD + 2 + len(encode_state(delivery.state))
    return TRANSFER_HEAD
