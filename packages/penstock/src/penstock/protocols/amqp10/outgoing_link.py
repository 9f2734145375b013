"""A link on which a client receives: a channel of the contract to a queue or a stream.

The driver forwards while the link has credit of the client and neither the socket nor the session's
window is full. Outcomes of the client go to the driver: accepted settles the message, rejected
dead-letters it, released requeues it as if it had not been delivered, modified requeues it and
counts the attempt. Deliveries without an outcome are requeued when the link ends.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.broker.contract import Channel, Delivery, Driver
from penstock.broker.message_run import RunDriver
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
        "_run_driver",
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
        # A stream tracks deliveries in any case: this link confirms presettled ones itself.
        super().__init__(writer, driver, self.presettled and not stream)
        self.writer = writer
        self.link = link
        self.queue = queue
        self.arguments: dict[str, Any] = {}
        self.ends: str | None = (
            None  #: when its queue is deleted with it: "detach", "close", "empty" or "reply"
        )
        self.open: dict[OutgoingDelivery, None] = {}  #: deliveries without an outcome
        self.sending: LargeDelivery | None = None  #: a large message
        #: Deliveries from before an interruption: tag, delivery, state at the client.
        self.resuming: deque[tuple[int, Delivery, DeliveryState | None]] = deque()
        self._stream = stream
        self._run_driver = driver if isinstance(driver, RunDriver) else None
        if not stream:
            self.forward_run = writer.forward_run

    # Credit.

    @property
    def is_blocked(self) -> bool:
        """Whether something other than credit prevents deliveries."""
        return (
            self.writer.output.write_blocked or self.link.session.waits or self.sending is not None
        )

    def request(self) -> None:
        if self.writer.output.write_blocked or self.link.session.waits or not self.link.live:
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
        """Use up the credit, or give it up after a pass of the loop without a delivery."""
        link = self.link
        if not link.live or not link.draining or self.is_blocked:
            return  # requested again when that ends
        if link.delivery_count == seen and not self.busy:
            link.drained()
            self.driver.channel_request(self, 0)
        else:
            self.writer.drain_soon(self)

    def _resume(self) -> None:
        """Send the deliveries from before an interruption first."""
        link = self.link
        while self.resuming and link.credit > 0:
            tag, delivery, state = self.resuming.popleft()
            if isinstance(state, OUTCOMES):
                self.settle(delivery, state)
                link.send(link.resume(tag, state, True, None), b"")
            else:
                if not self._is_loaded(delivery):
                    continue
                outgoing = link.resume(tag, None, False, delivery)
                self.open[outgoing] = None
                link.send(outgoing, self.writer.payload(delivery))

    def _is_loaded(self, delivery: Delivery) -> bool:
        """Whether a delivery can be resumed. If its message cannot be read now, it is requeued."""
        try:
            return self.pages is None or self.pages.load(delivery)
        except OSError:
            self.driver.channel_failure(self, delivery, True)
            return False

    # The window, for the pager.

    @property
    def last_sent(self) -> int:
        return self.link.last_tag

    def unacknowledged(self, after: int, upto: int) -> list[tuple[int, Channel, Delivery]]:
        found: list[tuple[int, Channel, Delivery]] = []
        for outgoing in reversed(self.open):
            if outgoing.tag <= after:
                break
            if outgoing.tag <= upto:
                found.append((outgoing.tag, self, outgoing.context))
        found.reverse()
        return found

    # Outcomes.

    def settle(self, delivery: Delivery, state: DeliveryState | None) -> None:
        """Without a state the delivery is released."""
        if isinstance(state, Accepted):
            self.driver.channel_confirm(self, delivery)
            self.writer.acknowledged += 1
        elif isinstance(state, Rejected) or getattr(state, "undeliverable_here", False):
            self.driver.channel_failure(self, delivery, False)
        else:
            if not (isinstance(state, Modified) and state.delivery_failed):
                delivery.count -= 1  # the queue counts an attempt, which this was not
                delivery.released = True
            self.driver.channel_failure(self, delivery, True)

    def accept_run(self, deliveries: list[OutgoingDelivery]) -> bool:
        """Settle deliveries together, if all are open ones of this link and accepted."""
        link, opened = self.link, self.open
        if self._run_driver is None or len(deliveries) < 2:
            return False
        for one in deliveries:
            if one.link is not link or one not in opened or not isinstance(one.state, Accepted):
                return False
        for one in deliveries:
            del opened[one]
        self._run_driver.channel_confirm_run(self, [one.context for one in deliveries])
        self.writer.acknowledged += len(deliveries)
        return True

    @property
    def is_resumable(self) -> bool:
        """Whether open deliveries can be kept for the client to resume."""
        return self.ends in (None, "close") and not self._stream and not self.presettled

    def take_open(self) -> dict[int, Delivery]:
        """Remove and return the open deliveries that can be resumed, by tag. Their messages are
        paged out: they may wait for long."""
        taken = {tag: delivery for tag, delivery, _ in self.resuming}
        self.resuming.clear()
        for outgoing in list(self.open):
            if outgoing.context.message.spool is None:
                taken[outgoing.tag] = outgoing.context
                if self.pages is not None:
                    self.pages.page_out(outgoing.context)
                del self.open[outgoing]
        return taken

    def end(self) -> None:
        self.sending = None
        self.driver.channel_request(self, 0)
        self._requeue()  # before the link closes, so that the next one gets the oldest message
        self.driver.channel_close(self)

    def _requeue(self) -> None:
        unsettled = [outgoing.context for outgoing in self.open]
        unsettled += [delivery for _, delivery, _ in self.resuming]
        self.open.clear()
        self.resuming.clear()
        for delivery in unsettled:
            self.driver.channel_failure(self, delivery, True)
