"""Sending until it is safe.

An outlet sends to one exchange over one channel in confirm mode. What the broker has not confirmed
is kept here in order; when the connection breaks, the next channel sends it again, in that order
and with the same message ids. So nothing is lost, and a receiver that minds can tell the copies.

How much may wait for its confirm is bounded: `post` waits for room, and also while the broker asks
senders to wait. When the broker ends the channel because of a message (no such exchange, no
permission), all that waited on it fails with the broker's reason, for nothing of it was confirmed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from aiormq import Channel
from aiormq import exceptions as aiormq
from pamqp.commands import Basic

from penstock.client.amqp.faults import explain, passing
from penstock.client.amqp.link import Link, Prepare, discard, ended
from penstock.client.errors import FabricClosed
from penstock.client.window import Window
from penstock.core.units import MiB

#: Enough to keep a connection busy, little enough to hold in memory.
WINDOW_MESSAGES: Final = 1000
WINDOW_BYTES: Final = 64 * MiB


@dataclass(slots=True, eq=False)
class Posted:
    """A message on its way, and the promise given for it."""

    routing_key: str
    body: bytes
    properties: Basic.Properties
    safe: asyncio.Future[None]
    returned: bool = False


class Outlet:
    """One exchange to send to."""

    def __init__(
        self,
        link: Link,
        exchange: str,
        prepare: Prepare | None = None,
        *,
        mandatory: bool = False,
    ) -> None:
        self._link = link
        self._exchange = exchange
        self._prepare = prepare
        self._mandatory = mandatory
        self._window = Window(WINDOW_MESSAGES, WINDOW_BYTES)
        self._waiting: dict[int, Posted] = {}
        self._channel: Channel | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._sendings: set[asyncio.Task[None]] = set()
        self._closed = False

    async def post(
        self, routing_key: str, body: bytes, properties: Basic.Properties
    ) -> asyncio.Future[None]:
        """Take a message, when there is room; the future tells when it is safe."""
        await self._window.enter(len(body))
        try:
            await self._link.flowing()
            if self._closed:
                raise FabricClosed("the fabric is closed")
        except BaseException:
            self._window.leave(len(body))
            raise
        safe = asyncio.get_running_loop().create_future()
        posted = Posted(routing_key, body, properties, safe)
        self._waiting[id(posted)] = posted
        safe.add_done_callback(lambda _: self._settled(posted))
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep_channel())
        elif self._channel is not None:
            self._dispatch(self._channel, posted)
        return safe

    async def close(self) -> None:
        self._closed = True
        tasks = [*self._sendings, *([self._keeper] if self._keeper else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._channel is not None:
            await discard(self._channel)
        self._fail(FabricClosed("the fabric was closed before the broker confirmed the message"))

    async def _keep_channel(self) -> None:
        """Have a channel whenever something is to be sent; send again what the last one left."""
        while True:
            try:
                channel = await self._link.channel(self._prepare, confirms=True)
            except Exception as error:
                self._keeper = None  # the next post tries again
                self._fail(explain(error))
                return
            for posted in list(self._waiting.values()):
                self._dispatch(channel, posted)
            self._channel = channel
            reason = await ended(channel)
            self._channel = None
            if reason is not None and not passing(reason):
                self._fail(explain(reason))

    def _dispatch(self, channel: Channel, posted: Posted) -> None:
        sending = asyncio.create_task(self._send(channel, posted))
        self._sendings.add(sending)
        sending.add_done_callback(self._sendings.discard)

    async def _send(self, channel: Channel, posted: Posted) -> None:
        try:
            await channel.basic_publish(
                posted.body,
                exchange=self._exchange,
                routing_key=posted.routing_key,
                properties=posted.properties,
                mandatory=self._mandatory,
                wait=False,
            )
        except aiormq.PublishError as error:
            await self._send_returned(channel, posted, error)
        except aiormq.DeliveryError as error:
            _settle(posted, explain(error))
        except Exception as error:
            # With the channel gone, the keeper of channels decides what becomes of the message.
            if not passing(error) and not channel.is_closed:
                _settle(posted, error)
        else:
            _settle(posted, None)

    async def _send_returned(
        self, channel: Channel, posted: Posted, error: aiormq.PublishError
    ) -> None:
        """No queue took it. If ours was deleted meanwhile, declare it again and send once more."""
        if posted.returned or self._prepare is None:
            _settle(posted, explain(error))
            return
        posted.returned = True
        try:
            await self._prepare(channel)
        except Exception as fault:
            if not passing(fault) and not channel.is_closed:
                _settle(posted, explain(fault))
            return
        await self._send(channel, posted)

    def _settled(self, posted: Posted) -> None:
        self._waiting.pop(id(posted), None)
        self._window.leave(len(posted.body))
        if not posted.safe.cancelled():
            posted.safe.exception()  # seen, even if whoever posted it does not look

    def _fail(self, error: BaseException) -> None:
        for posted in list(self._waiting.values()):
            _settle(posted, error)


def _settle(posted: Posted, error: BaseException | None) -> None:
    if posted.safe.done():
        return
    if error is None:
        posted.safe.set_result(None)
    else:
        posted.safe.set_exception(error)
