"""Connections to brokers: one for each to send over and one for each queue, closed with the rest.

AMQP 0-9-1 has a way of its own (`flow.queue`, `flow.exchanges`); the others go by the client's
patterns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from penstock.client import Fabric, connect
from penstock.pump.credentials import Credentials, without_secret
from penstock.pump.flow.bound import BoundFile, bound, unbind
from penstock.pump.flow.exchanges import Exchanges, Outward, Published
from penstock.pump.flow.hearing import Binding, Hearing, Subscribed, over_amqp091, over_mqtt
from penstock.pump.flow.queue import Queue

#: A broker that is just being started is waited for.
PATIENCE_SECONDS: Final = 60.0


class Brokers:
    def __init__(self, credentials: Credentials, stack: AsyncExitStack) -> None:
        self._credentials = credentials
        self._stack = stack
        self._fabrics: dict[str, Fabric] = {}
        self._senders: dict[str, Outward] = {}

    async def fabric(self, url: str) -> Fabric:
        """The client's patterns."""
        if url not in self._fabrics:
            fabric = connect(self._credentials.complete(url), patience=PATIENCE_SECONDS)
            self._fabrics[url] = await self._stack.enter_async_context(fabric)
        return self._fabrics[url]

    async def sending(self, url: str) -> Outward:
        """Apart from what is heard: a broker that asks senders to wait still hears what is done."""
        if url not in self._senders:
            if over_amqp091(url):
                exchanges = Exchanges(self._credentials.complete(url), PATIENCE_SECONDS)
                await exchanges.open()
                self._stack.push_async_callback(exchanges.close)
                self._senders[url] = exchanges
            else:
                self._senders[url] = Published(await self.fabric(url), mqtt=over_mqtt(url))
        return self._senders[url]

    async def hear(
        self,
        url: str,
        wanted: Sequence[Binding],
        queue: str,
        prefetch: int,
        expire: float | None = None,
    ) -> Hearing:
        """Open, so that what is announced from now on arrives."""
        hearing: Hearing
        if over_amqp091(url):
            complete, patience = self._credentials.complete(url), PATIENCE_SECONDS
            hearing = Queue(complete, wanted, queue, prefetch, expire=expire, patience=patience)
        else:
            hearing = Subscribed(await self.fabric(url), url, wanted, queue, prefetch)
        await hearing.open()
        self._stack.push_async_callback(hearing.close)
        return hearing

    async def hear_only(
        self,
        url: str,
        wanted: Sequence[Binding],
        queue: str,
        prefetch: int,
        expire: float | None,
        kept: Path,
    ) -> Hearing:
        """The same, of a queue that lasts: what was bound to it before, as `kept` has it, and is
        not wanted any more is unbound."""
        if not over_amqp091(url):
            return await self.hear(url, wanted, queue, prefetch, expire)
        file = BoundFile(kept, without_secret(url), queue)
        now = bound(wanted)
        before = await asyncio.to_thread(file.read)
        await asyncio.to_thread(file.write, before | now)
        hearing = await self.hear(url, wanted, queue, prefetch, expire)
        if former := before - now:
            left = await unbind(self._credentials.complete(url), queue, former)
            await asyncio.to_thread(file.write, now | left)
        return hearing
