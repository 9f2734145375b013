"""A queue of AMQP 0-9-1 as posts come out of it: by the hundred, across reconnects.

All that one read of the socket brings is handed on together. When the connection breaks, what has
come and was not handed on is dropped, for it comes again; acknowledgements of what came over it go
nowhere, which is what was promised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.client.amqp091.channel import Channel
from penstock.client.amqp091.connection import Connection
from penstock.client.amqp091.link import Link
from penstock.core.errors import PenstockError, WireSyntaxError
from penstock.core.logs import get_logger
from penstock.core.properties import decode_header
from penstock.pump.flow.declaring import declare_exchange, declare_queue
from penstock.pump.flow.hearing import Binding, Heard
from penstock.pump.flow.letter import Letter
from penstock.pump.flow.settling import Settling
from penstock.wire.amqp091.address import parse_address
from penstock.wire.amqp091.messages import Content

log = get_logger(__name__)

_TAG: Final = "pump"


@dataclass(frozen=True, slots=True)
class Delivered:
    """Keeps `Heard`."""

    letter: Letter
    tag: int
    settling: Settling

    async def ack(self) -> None:
        self.settling.done(self.tag)


class Queue:
    """Keeps `Hearing`."""

    def __init__(
        self,
        url: str,
        bindings: Sequence[Binding],
        name: str,
        prefetch: int,
        *,
        expire: float | None = None,
        patience: float = 0.0,
    ) -> None:
        self._bindings = bindings
        self._name = name
        self._prefetch = prefetch
        self._expire = expire
        self._link = Link(parse_address(url), "pump", self._prepare, patience=patience)
        self._come: list[Heard] = []
        self._news = asyncio.Event()

    async def open(self) -> None:
        await self._link.open()
        assert self._link.failed is not None
        self._link.failed.add_done_callback(lambda _: self._news.set())

    async def receive(self) -> Sequence[Heard]:
        while not self._come:
            self._news.clear()
            if self._link.failed is not None and self._link.failed.done():
                raise self._link.failed.result()
            await self._news.wait()
        come, self._come = self._come, []
        return come

    async def queued(self) -> int | None:
        channel = await (await self._link.connection()).channel()
        found = await channel.declare_queue(self._name, passive=True)
        await channel.close()
        return found.message_count

    async def close(self) -> None:
        await self._link.close()

    async def _prepare(self, connection: Connection) -> None:
        for exchange in dict.fromkeys(each.exchange for each in self._bindings):
            await declare_exchange(connection, exchange)
        await declare_queue(connection, self._name, self._expire)
        channel = await connection.channel()
        for each in self._bindings:
            await channel.bind(self._name, each.exchange, each.key)
        await channel.prefetch(self._prefetch)
        self._listen(connection, channel)
        await channel.consume(self._name, _TAG)

    def _listen(self, connection: Connection, channel: Channel) -> None:
        settling = Settling(channel)

        def came(contents: list[Content]) -> None:
            for content in contents:
                settling.took(content.tag)
                try:
                    headers = decode_header(content.header).headers or {}
                except WireSyntaxError as error:
                    log.warning("not a post", topic=content.key, reason=str(error))
                    settling.done(content.tag)
                    continue
                letter = Letter(content.key, content.body, headers, content.redelivered)
                self._come.append(Delivered(letter, content.tag, settling))
            self._news.set()

        def ended(error: PenstockError) -> None:
            self._come.clear()
            if not connection.lost.done():
                # A channel alone is not mended: as when an acknowledgement took longer than the
                # broker waits, or the queue was deleted.
                log.warning("the broker has ended the channel", reason=str(error))
                connection.abandon()

        channel.on_deliveries = came
        channel.on_closed = ended
        channel.on_cancelled = lambda _: connection.abandon()
