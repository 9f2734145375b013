"""Receiving across reconnects.

An inlet keeps a consumer on its source for as long as it is open: whenever a channel ends, a new
one is attached and goes on. Between the socket and the program lies a buffer no longer than the
prefetch. When a connection breaks, what a redelivering source had put there is dropped, for it
comes again; what another source had put there is all there is of it, and is kept.
"""

from __future__ import annotations

import asyncio

from aiormq import Channel
from aiormq.abc import DeliveredMessage

from penstock.client.amqp.delivery import Delivery, read_message
from penstock.client.amqp.faults import explain
from penstock.client.amqp.link import Link, discard
from penstock.client.amqp.outlet import Outlet
from penstock.client.amqp.sources import Source
from penstock.client.arrivals import Arrivals
from penstock.client.errors import FabricClosed
from penstock.client.message import Message
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger

log = get_logger(__name__)


class Inlet:
    """Keeps `penstock.client.inflow.Inlet`."""

    def __init__(self, link: Link, source: Source, replies: Outlet) -> None:
        self._link = link
        self._source = source
        self._replies = replies
        self._arrivals: Arrivals[DeliveredMessage] = Arrivals()
        self._attached = asyncio.Event()
        self._over = asyncio.Event()  #: the present channel or its consumer has ended
        self._keeper: asyncio.Task[None] | None = None
        self._channel: Channel | None = None
        self._unsettled = 0  #: handed to the program since the last credit was given
        self._giving: set[asyncio.Task[None]] = set()  #: that credit, on its way

    async def open(self) -> None:
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep_attached())
        await self._attached.wait()
        self._arrivals.check()

    async def receive(self) -> Message:
        await self.open()
        delivered = await self._arrivals.take()
        # From here on nothing is awaited: whoever is cancelled while it waits has lost nothing.
        if self._source.redelivers:
            tag = delivered.delivery_tag or 0
        else:
            tag = 0
            self._give_credit(delivered)
        return read_message(delivered, Delivery(delivered, tag, self._replies))

    async def close(self) -> None:
        self._fail(FabricClosed("the fabric was closed"))
        tasks = [*self._giving, *([self._keeper] if self._keeper else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._channel is not None:
            await discard(self._channel)
        self._arrivals.clear()

    async def _keep_attached(self) -> None:
        while True:
            try:
                channel = await self._link.channel(self._attach)
            except Exception as error:
                self._fail(explain(error))
                return
            self._attached.set()
            await self._over.wait()
            if self._source.redelivers:
                self._arrivals.clear()
            await discard(channel)

    async def _attach(self, channel: Channel) -> None:
        """Begin to consume; `over` is set when the channel or the consumer has ended."""
        self._channel = channel
        self._unsettled = 0
        self._over = over = asyncio.Event()
        channel.closing.add_done_callback(lambda _: over.set())
        channel.on_consumer_cancel_callbacks.add(lambda _: over.set())
        await channel.basic_qos(prefetch_count=self._source.prefetch)
        queue, arguments = await self._source.attach(channel)
        await channel.basic_consume(queue, self._arrive, arguments=arguments)

    async def _arrive(self, delivered: DeliveredMessage) -> None:
        if delivered.channel is self._channel and self._source.admit(delivered):
            self._arrivals.put(delivered)

    def _give_credit(self, delivered: DeliveredMessage) -> None:
        """Acknowledge in bundles what the program has taken, so that more may come."""
        channel = self._channel
        if channel is None or delivered.channel is not channel:
            return
        self._unsettled += 1
        if self._unsettled * 2 >= self._source.prefetch:
            self._unsettled = 0
            credit = Delivery(delivered, delivered.delivery_tag or 0, self._replies)
            giving = asyncio.create_task(_give(credit))
            self._giving.add(giving)
            giving.add_done_callback(self._giving.discard)

    def _fail(self, error: PenstockError) -> None:
        self._arrivals.fail(error)
        self._attached.set()


async def _give(credit: Delivery) -> None:
    """A broker that will not have it ends the channel, and the next has credit of its own."""
    try:
        await credit.ack(upto=True)
    except Exception as error:
        log.debug("no credit given", reason=str(error))
