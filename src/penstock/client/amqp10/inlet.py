"""Receiving across reconnects.

An inlet keeps a link to its source for as long as it is open: whenever a connection ends, it is
attached to the next and goes on. Between the socket and the program lies a buffer, and credit sees
to it that no more than the prefetch is there or in the program's hands. When a connection breaks,
what a redelivering source had put there is dropped, for it comes again; what another source had put
there is all there is of it, and is kept.
"""

from __future__ import annotations

import asyncio

from penstock.client.amqp10.delivery import Delivery, read_message
from penstock.client.amqp10.faults import explain
from penstock.client.amqp10.replies import Replies
from penstock.client.amqp10.sources import Source
from penstock.client.amqp10.trunk import Trunk
from penstock.client.arrivals import Arrivals
from penstock.client.errors import FabricClosed
from penstock.client.message import Message
from penstock.core.errors import PenstockError
from penstock.wire.amqp10 import message as wire
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.links import Incoming, Outgoing, Receiver
from penstock.wire.amqp10.performatives import MIXED, RECEIVER, SETTLED, Attach
from penstock.wire.amqp10.session import Session
from penstock.wire.amqp10.states import Error, Rejected, State
from penstock.wire.amqp10.termini import Target


class Inlet:
    """Keeps `penstock.client.inflow.Inlet`."""

    def __init__(self, trunk: Trunk, source: Source, replies: Replies) -> None:
        self._trunk = trunk
        self._source = source
        self._replies = replies
        self._arrivals: Arrivals[tuple[wire.Message, Incoming]] = Arrivals()
        self._parts: list[bytes] = []  #: of a message that has not all arrived
        self._held_back = 0  #: messages that count against the prefetch
        self._link: Receiver | None = None
        self._attached = asyncio.Event()  #: what is sent now will arrive here
        self._joining: asyncio.Task[None] | None = None

    async def open(self) -> None:
        if self._joining is None:
            self._joining = asyncio.create_task(self._join())
        await self._attached.wait()
        self._arrivals.check()

    @property
    def address(self) -> str:
        """Where what comes here is sent to, of a node that the broker has made for us."""
        remote = None if self._link is None else self._link.remote
        return "" if remote is None or remote.source is None else str(remote.source.address)

    async def receive(self) -> Message:
        message, delivery = await self.take()
        return read_message(message, Delivery(message, delivery, self._settle, self._replies))

    async def take(self) -> tuple[wire.Message, Incoming | None]:
        """The next message as it came; and its delivery, if that is to be settled."""
        if self._joining is None:
            await self.open()
        message, delivery = await self._arrivals.take()
        if self._source.redelivers:
            return message, delivery
        self._release(delivery)
        return message, None

    async def close(self) -> None:
        self.failed(FabricClosed("the fabric was closed"))
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
        self._trunk.leave(self)
        self._arrivals.clear()
        link, self._link = self._link, None
        if link is not None:
            link.context = None
            link.detach(closed=not self._source.lasts)
            await self._trunk.parted(link)

    # What the trunk says.

    def resume(self, session: Session) -> None:
        self._link = link = session.receiver(self._source.name)
        link.context = self
        self._held_back = len(self._arrivals)
        link.attach(
            Attach(
                self._source.name,
                0,
                RECEIVER,
                snd_settle_mode=MIXED if self._source.redelivers else SETTLED,
                source=self._source.terminus(),
                target=Target(),
            )
        )

    def paused(self) -> None:
        self._link = None
        self._attached.clear()
        self._parts = []
        if self._source.redelivers:
            self._arrivals.clear()

    def failed(self, error: PenstockError) -> None:
        self._arrivals.fail(error)
        self._attached.set()

    # What the link says.

    def on_attached(self) -> None:
        self._grant()
        self._attached.set()

    def on_detached(self, error: Error | None) -> None:
        """Refused; or ended, for its queue was deleted, say, and then another may be made."""
        link, refused = self._link, not self._attached.is_set()
        self.paused()
        if refused or link is None:
            self.failed(explain(error, f"cannot receive from {self._source.terminus().address!r}"))
        else:
            self.resume(link.session)

    def on_payload(self, delivery: Incoming, payload: bytes, more: bool) -> None:
        if more or self._parts:
            self._parts.append(payload)
            if more:
                return
            payload = b"".join(self._parts)
            self._parts = []
        self._held_back += 1
        try:
            message = wire.decode_message(payload)
        except DecodeError as error:
            self._settle(delivery, Rejected(Error("amqp:decode-error", str(error))))
            return
        if self._source.admit(message):
            self._arrivals.put((message, delivery))
        else:
            self._release(delivery)

    def on_abort(self, delivery: Incoming) -> None:
        self._parts = []

    def on_credit(self) -> None:
        """Credit is ours to give."""

    def on_outcome(self, delivery: Outgoing) -> None:
        """Nothing is sent this way."""

    # Credit.

    def _settle(self, delivery: Incoming, state: State) -> None:
        if self._link is not None and delivery.link is self._link:
            delivery.settle(state)
            self._release(delivery)

    def _release(self, delivery: Incoming) -> None:
        """One message fewer counts against the prefetch."""
        if self._link is None or delivery.link is not self._link:
            return
        self._held_back -= 1
        # Not while some is left: RabbitMQ counts it twice when flows and transfers cross.
        if self._link.credit == 0 and self._held_back * 2 <= self._source.prefetch:
            self._grant()

    def _grant(self) -> None:
        assert self._link is not None
        self._link.grant(max(0, self._source.prefetch - self._held_back))

    async def _join(self) -> None:
        try:
            await self._trunk.join(self)
        except PenstockError as error:
            self.failed(error)
