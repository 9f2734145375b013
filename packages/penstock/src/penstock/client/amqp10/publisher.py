"""Publishing until settled, across reconnects.

A publisher is a sender link to one target. Messages wait in order for link credit. After a lost
connection, unsettled messages are sent again, in order and with the same message ids: at least
once. `post` waits while the window is full. If the broker refuses the target, all waiting messages
fail; the next `post` attaches again.
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
    payload: bytes
    confirmed: asyncio.Future[None]
    returned: bool = False  #: once, because its queue had been deleted


class Amqp10Publisher:
    """Sends to one address; None is the anonymous relay."""

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
        self._mandatory = mandatory  #: an unroutable message is an error
        self._makes = makes  #: attaching creates the queue if it does not exist
        self._arguments = arguments or {}
        self._window = InflightWindow()
        self._queue: deque[UnsettledMessage] = deque()
        self._unsettled: dict[OutgoingDelivery, UnsettledMessage] = {}
        self._link: SenderLink | None = None
        self._session: Amqp10Session | None = None
        self._joining = asyncio.Lock()
        self._joined = False
        self._failure: PenstockError | None = None

    @property
    def blocked(self) -> bool:
        """Whether messages wait for link credit."""
        link = self._link
        return bool(self._queue) and link is not None and link.live and link.credit <= 0

    async def post(self, payload: bytes) -> asyncio.Future[None]:
        """Send when there is space in the window; the future is done when it is settled."""
        confirmed = await self._window.admit(len(payload), self._join)
        message = UnsettledMessage(payload, confirmed)
        self._queue.append(message)
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
        self._requeue_unsettled()

    def failed(self, error: PenstockError) -> None:
        self._failure = self._failure or error
        self._fail_all(error)

    # Events of the link.

    def on_attached(self) -> None:
        self.on_credit()

    def on_detached(self, error: Amqp10Error | None) -> None:
        """Refused, or ended because its queue was deleted, say."""
        self._link = None
        self._requeue_unsettled()
        if self._makes and error is not None and error.condition == DELETED:
            if self._queue and self._session is not None:
                self._attach(self._session)
        else:
            self._fail_all(to_penstock_error(error, f"cannot send to {self._address!r}"))

    def on_credit(self) -> None:
        link = self._link
        if link is None or not link.live:
            return
        while self._queue and link.credit > 0 and not link.session.waits:
            message = self._queue.popleft()
            if message.confirmed.done():  # cancelled by its sender
                continue
            delivery = link.new(False)
            self._unsettled[delivery] = message
            link.send(delivery, message.payload)

    def on_payload(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None:
        """For receivers only."""

    def on_abort(self, delivery: IncomingDelivery) -> None:
        """For receivers only."""

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        message = self._unsettled.pop(delivery, None)
        if message is None:
            return
        match delivery.state:
            case None | Accepted():
                settle(message.confirmed)
            case Rejected(error):
                failure = to_penstock_error(error, f"{self._address!r} refused the message")
                if isinstance(failure, ResourceExhausted):
                    failure = QueueFull(str(failure))
                settle(message.confirmed, failure)
            case _ if not self._mandatory:
                settle(message.confirmed)
            case _ if self._makes and not message.returned:
                message.returned = True
                self._queue.appendleft(message)
                self._attach_again()
            case _:
                settle(
                    message.confirmed,
                    NoRoute(f"unroutable message: no queue for address {self._address!r}"),
                )

    def _attach(self, session: Amqp10Session) -> None:
        name = f"{self._address or 'relay'}-{uuid4().hex[:8]}"
        self._link = link = session.sender(name)
        link.context = self
        address = None if self._address is None else self._connection.queue_address(self._address)
        attach = Attach(
            name,
            0,
            SENDER,
            snd_settle_mode=UNSETTLED,
            source=LinkSource(),
            target=LinkTarget(address),
            initial_delivery_count=0,
            properties={Symbol(key): value for key, value in self._arguments.items()} or None,
        )
        link.attach(attach)

    def _attach_again(self) -> None:
        """The queue was deleted: attaching creates another one. Send unsettled messages again."""
        if self._link is not None:
            self._link.context = None
            self._link.detach()
            self._link = None
        self._requeue_unsettled()
        if self._session is not None:
            self._attach(self._session)

    def _requeue_unsettled(self) -> None:
        """Queue unsettled messages again, before the waiting ones."""
        self._queue.extendleft(reversed(self._unsettled.values()))
        self._unsettled.clear()

    def _fail_all(self, error: PenstockError) -> None:
        waiting = [*self._unsettled.values(), *self._queue]
        self._unsettled.clear()
        self._queue.clear()
        for message in waiting:
            settle(message.confirmed, error)


#: Reply links at a time, unless more replies are unsettled at once.
MAX_REPLY_LINKS: Final = 32


@dataclass(slots=True)
class _ReplyLink:
    publisher: Amqp10Publisher
    unsettled: int = 0


class Amqp10ReplySender:
    """Sends replies to the addresses of requesters.

    If the broker has an anonymous relay, one link is enough. Otherwise each requester has a link,
    and those that were not used for the longest time are detached.
    """

    def __init__(self, connection: Amqp10RecoveringConnection) -> None:
        self._connection = connection
        self._relay = _ReplyLink(Amqp10Publisher(connection, None))
        self._links: dict[str, _ReplyLink] = {}

    async def send(self, address: str, payload: bytes) -> None:
        """A reply to a requester that has disconnected is dropped."""
        await self._connection.open()
        link = self._relay if self._connection.relays else self._link_to(address)
        link.unsettled += 1
        try:
            with contextlib.suppress(NotFound):
                await (await link.publisher.post(payload))
        finally:
            link.unsettled -= 1
            await self._detach_unused()

    async def close(self) -> None:
        for link in (self._relay, *self._links.values()):
            await link.publisher.close()

    def _link_to(self, address: str) -> _ReplyLink:
        link = self._links.pop(address, None) or _ReplyLink(
            Amqp10Publisher(self._connection, address)
        )
        self._links[address] = link  # the latest is the last
        return link

    async def _detach_unused(self) -> None:
        over = len(self._links) - MAX_REPLY_LINKS
        if over > 0:
            idle = [name for name, link in self._links.items() if not link.unsettled]
            for link in [self._links.pop(name) for name in idle[:over]]:
                await link.publisher.close()
