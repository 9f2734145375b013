"""Sending until it is settled.

An outlet is a link to one target. What is posted waits here in order for the credit that the broker
gives; what the broker has not settled when a connection breaks is sent again on the next, in that
order and with the same message ids. So nothing is lost, and a receiver that minds can tell the
copies.

How much may wait is bounded: `post` waits for room. A target that the broker refuses fails all that
waited for it; the next post tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from penstock.client.amqp10.connection import Amqp10RecoveringConnection
from penstock.client.amqp10.endpoint import to_penstock_error
from penstock.client.errors import FabricClosed
from penstock.client.sender import InflightWindow, settle
from penstock.core.errors import NoRoute, NotFound, PenstockError, QueueFull, ResourceExhausted
from penstock.wire.amqp10.errors import DELETED
from penstock.wire.amqp10.links import IncomingDelivery, OutgoingDelivery, SenderLink
from penstock.wire.amqp10.performatives import (
    SENDER,
    UNSETTLED,
    Accepted,
    Amqp10Error,
    Attach,
    LinkSource,
    LinkTarget,
    Rejected,
)
from penstock.wire.amqp10.session import Amqp10Session
from penstock.wire.amqp10.values import Symbol


@dataclass(slots=True, eq=False)
class UnsettledMessage:
    """A message on its way, and the promise given for it."""

    payload: bytes
    confirmed: asyncio.Future[None]
    returned: bool = False  #: once, when it was sent to a queue that had gone


class Amqp10Publisher:
    """One address to send to; None is the relay, which looks at the address of each message."""

    def __init__(
        self,
        connection: Amqp10RecoveringConnection,
        address: str | None,
        *,
        mandatory: bool = False,
        makes: bool = False,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        self._connection = connection
        self._address = address
        self._mandatory = mandatory  #: that nobody takes a message is an error
        self._makes = makes  #: attaching makes what is not there
        self._arguments = arguments or {}
        self._window = InflightWindow()
        self._queue: deque[UnsettledMessage] = deque()
        self._flying: dict[OutgoingDelivery, UnsettledMessage] = {}
        self._link: SenderLink | None = None
        self._session: Amqp10Session | None = None
        self._joining = asyncio.Lock()
        self._joined = False
        self._failure: PenstockError | None = None

    @property
    def blocked(self) -> bool:
        """Whether something waits because the broker gives no credit."""
        link = self._link
        return bool(self._queue) and link is not None and link.live and link.credit <= 0

    async def post(self, payload: bytes) -> asyncio.Future[None]:
        """Send when there is space in the window; the future is done when it is settled."""
        confirmed = await self._window.admit(len(payload), self._join)
        posting = UnsettledMessage(payload, confirmed)
        self._queue.append(posting)
        if self._link is None and self._session is not None:
            self._attach(self._session)
        else:
            self.on_credit()
        return confirmed

    async def close(self) -> None:
        self._connection.leave(self)
        if self._link is not None and self._session is not None:
            self._link.detach()
        self.failed(FabricClosed("the fabric was closed before the broker settled the message"))

    async def _join(self) -> None:
        if self._failure is not None:
            raise self._failure
        async with self._joining:
            if not self._joined:
                await self._connection.join(self)
                self._joined = True

    # Events of the connection.

    def resume(self, session: Amqp10Session) -> None:
        self._session = session
        if self._queue:
            self._attach(session)

    def paused(self) -> None:
        self._session = self._link = None
        self._take_back()

    def failed(self, error: PenstockError) -> None:
        self._failure = self._failure or error
        self._give_up(error)

    # What the link says.

    def on_attached(self) -> None:
        self.on_credit()

    def on_detached(self, error: Amqp10Error | None) -> None:
        """The broker has refused the link, or ended it: for its queue was deleted, say."""
        self._link = None
        self._take_back()
        if self._makes and error is not None and error.condition == DELETED:
            if self._queue and self._session is not None:
                self._attach(self._session)
        else:
            self._give_up(to_penstock_error(error, f"cannot send to {self._address!r}"))

    def on_credit(self) -> None:
        link = self._link
        if link is None or not link.live:
            return
        while self._queue and link.credit > 0 and not link.session.waits:
            posting = self._queue.popleft()
            if posting.confirmed.done():  # whoever posted it has given up
                continue
            delivery = link.new(False)
            self._flying[delivery] = posting
            link.send(delivery, posting.payload)

    def on_payload(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None:
        """Nothing comes this way."""

    def on_abort(self, delivery: IncomingDelivery) -> None:
        """Nor this."""

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        posting = self._flying.pop(delivery, None)
        if posting is None:
            return
        match delivery.state:
            case None | Accepted():
                settle(posting.confirmed)
            case Rejected(error):
                failure = to_penstock_error(error, f"{self._address!r} does not take the message")
                if isinstance(failure, ResourceExhausted):
                    failure = QueueFull(str(failure))
                settle(posting.confirmed, failure)
            case _ if not self._mandatory:
                settle(posting.confirmed)
            case _ if self._makes and not posting.returned:
                posting.returned = True
                self._queue.appendleft(posting)
                self._attach_again()
            case _:
                settle(
                    posting.confirmed,
                    NoRoute(f"unroutable message: no queue for address {self._address!r}"),
                )

    def _attach(self, session: Amqp10Session) -> None:
        name = f"{self._address or 'relay'}-{uuid4().hex[:8]}"
        self._link = link = session.sender(name)
        link.context = self
        attach = Attach(
            name,
            0,
            SENDER,
            snd_settle_mode=UNSETTLED,
            source=LinkSource(),
            target=LinkTarget(self._address),
            initial_delivery_count=0,
            properties={Symbol(key): value for key, value in self._arguments.items()} or None,
        )
        link.attach(attach)

    def _attach_again(self) -> None:
        """The queue has gone, and attaching makes another: what is under way is sent there."""
        if self._link is not None:
            self._link.context = None
            self._link.detach()
            self._link = None
        self._take_back()
        if self._session is not None:
            self._attach(self._session)

    def _take_back(self) -> None:
        """What was under way is to be sent again, before what waits."""
        self._queue.extendleft(reversed(self._flying.values()))
        self._flying.clear()

    def _give_up(self, error: PenstockError) -> None:
        waiting = [*self._flying.values(), *self._queue]
        self._flying.clear()
        self._queue.clear()
        for posting in waiting:
            settle(posting.confirmed, error)


# Where answers go: the addresses that questions ask them to be sent to.
#
# A broker that relays takes them all over one link and reads the address of each. To another, there
# is a link for each asker; those that were used longest ago are taken off again, once nothing is
# under way on them.

#: Askers that have a link of their own at a time, unless more are answered at once.
MAX_REPLY_LINKS: Final = 32


@dataclass(slots=True)
class _ReplyLink:
    publisher: Amqp10Publisher
    under_way: int = 0  #: answers that are not settled yet


class Amqp10ReplySender:
    def __init__(self, connection: Amqp10RecoveringConnection) -> None:
        self._connection = connection
        self._relay = _ReplyLink(Amqp10Publisher(connection, None))
        self._askers: dict[str, _ReplyLink] = {}

    async def send(self, address: str, payload: bytes) -> None:
        """To one who has gone it goes nowhere: that is no fault of whoever answers."""
        await self._connection.open()
        asker = self._relay if self._connection.relays else self._asker(address)
        asker.under_way += 1
        try:
            with contextlib.suppress(NotFound):
                await (await asker.publisher.post(payload))
        finally:
            asker.under_way -= 1
            await self._take_off()

    async def close(self) -> None:
        for asker in (self._relay, *self._askers.values()):
            await asker.publisher.close()

    def _asker(self, address: str) -> _ReplyLink:
        asker = self._askers.pop(address, None) or _ReplyLink(
            Amqp10Publisher(self._connection, address)
        )
        self._askers[address] = asker  # the latest is the last
        return asker

    async def _take_off(self) -> None:
        over = len(self._askers) - MAX_REPLY_LINKS
        if over > 0:
            idle = [name for name, asker in self._askers.items() if not asker.under_way]
            for asker in [self._askers.pop(name) for name in idle[:over]]:
                await asker.publisher.close()
