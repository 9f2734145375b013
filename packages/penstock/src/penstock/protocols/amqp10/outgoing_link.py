"""A link on which a client receives: the conversation with a queue or a stream.

Drivers know it as a channel of the contract and forward on it while it has credit: the client's,
as long as the socket and the session's window have room. What the client says of a delivery goes
back to the driver: accepted is done with, rejected is dead, released is as if it had never left,
modified counts as an attempt. What it has not said anything of when the link ends is put back.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.broker.contract import Channel, Delivery, Driver
from penstock.wire.amqp10.performatives import (
    OUTCOMES,
    SETTLED,
    Accepted,
    DeliveryState,
    Modified,
    Rejected,
)

if TYPE_CHECKING:
    from penstock.protocols.amqp10.writer import Amqp10Writer, LargeDelivery
    from penstock.wire.amqp10.links import OutgoingDelivery, SenderLink


class OutgoingLink(Channel):
    __slots__ = (
        "_stream",
        "arguments",
        "ends",
        "link",
        "open",
        "presettled",
        "queue",
        "resuming",
        "sending",
        "writer",
    )

    def __init__(
        self, writer: Amqp10Writer, link: SenderLink, driver: Driver, queue: str, stream: bool
    ) -> None:
        self.presettled = link.remote is not None and link.remote.snd_settle_mode == SETTLED
        # A stream forgets nothing and gives no answer up: what is settled is answered here.
        super().__init__(writer, driver, self.presettled and not stream)
        self.writer = writer
        self.link = link
        self.queue = queue
        self.arguments: dict[str, Any] = {}
        self.ends: str | None = None  #: when its queue goes with it: "detach", "close" or "empty"
        self.open: dict[OutgoingDelivery, None] = {}  #: deliveries whose outcome is to come
        self.sending: LargeDelivery | None = None  #: a large message, half sent
        #: Deliveries of before an interruption, by their tags, and what the client says of them.
        self.resuming: deque[tuple[int, Delivery, DeliveryState | None]] = deque()
        self._stream = stream

    # Credit.

    @property
    def is_blocked(self) -> bool:
        """It is not for want of credit, or of messages, that nothing is sent."""
        return self.writer.write_blocked or self.link.session.waits or self.sending is not None

    def request(self) -> None:
        """Ask the driver for as much as there is room for."""
        if self.writer.write_blocked or self.link.session.waits or not self.link.live:
            credit = 0
        elif self.sending is not None:
            credit = 1
        else:
            if self.resuming:
                self._resume()
            credit = self.link.credit
        self.driver.channel_request(self, credit)
        if self.link.draining and self.link.live:
            self.writer.drain_soon(self)

    def drain(self, seen: int) -> None:
        """Credit is to be used up or given up. A pass of the loop that brings nothing is enough."""
        link = self.link
        if not link.live or not link.draining or self.is_blocked:
            return  # what holds it up asks for it again
        if link.delivery_count == seen and not self.busy:
            link.drained()
            self.driver.channel_request(self, 0)
        else:
            self.writer.drain_soon(self)

    def _resume(self) -> None:
        """First what was under way when the link was interrupted."""
        link = self.link
        while self.resuming and link.credit > 0:
            tag, delivery, state = self.resuming.popleft()
            if isinstance(state, OUTCOMES):
                self.answer(delivery, state)
                link.send(link.resume(tag, state, True, None), b"")
            else:
                outgoing = link.resume(tag, None, False, delivery)
                self.open[outgoing] = None
                link.send(outgoing, self.writer.payload(delivery))

    # Outcomes.

    def answer(self, delivery: Delivery, state: DeliveryState | None) -> None:
        """What a client has said of a delivery. Settled without a word it is released."""
        if isinstance(state, Accepted):
            self.driver.channel_confirm(self, delivery)
            self.writer.acknowledged += 1
        elif isinstance(state, Rejected) or getattr(state, "undeliverable_here", False):
            self.driver.channel_failure(self, delivery, False)
        else:
            if not (isinstance(state, Modified) and state.delivery_failed):
                delivery.count -= 1  # the queue counts it as an attempt, which it was not
                delivery.released = True
            self.driver.channel_failure(self, delivery, True)

    @property
    def is_resumable(self) -> bool:
        """Whether what is open can be kept for a client that comes back."""
        return self.ends in (None, "close") and not self._stream and not self.presettled

    def take_open(self) -> dict[int, Delivery]:
        """The open deliveries that can be sent again at once, by their tags: no longer ours."""
        taken = {tag: delivery for tag, delivery, _ in self.resuming}
        self.resuming.clear()
        for outgoing in list(self.open):
            if outgoing.context.message.spool is None:
                taken[outgoing.tag] = outgoing.context
                del self.open[outgoing]
        return taken

    def end(self) -> None:
        """Give everything back."""
        self.sending = None
        self.driver.channel_request(self, 0)
        self.put_back()  # before the link leaves: a successor begins with the oldest message
        self.driver.channel_close(self)

    def put_back(self) -> None:
        unanswered = [outgoing.context for outgoing in self.open]
        unanswered += [delivery for _, delivery, _ in self.resuming]
        self.open.clear()
        self.resuming.clear()
        for delivery in unanswered:
            self.driver.channel_failure(self, delivery, True)
