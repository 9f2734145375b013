"""A large message on its way out: one bucket at a time, as the terminal draws them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.broker.contract import Channel, Delivery, Fragment, Message
from penstock.broker.kernel import Kernel
from penstock.broker.spool import Spool


class Sending:
    __slots__ = (
        "_cancelled",
        "_channel",
        "_delivery",
        "_finished",
        "_kernel",
        "_offset",
        "_spool",
        "_task",
    )

    def __init__(
        self,
        kernel: Kernel,
        channel: Channel,
        delivery: Delivery,
        finished: Callable[[], None],
    ) -> None:
        message = delivery.message
        assert message.spool is not None
        self._kernel = kernel
        self._channel = channel
        self._delivery = delivery
        self._finished = finished
        self._spool: Spool = message.spool
        self._offset = 0
        self._cancelled = False
        self._task: asyncio.Task[None] | None = None
        self._spool.fileno()  # open it now: a settled message's file loses its name at once

    def open(self) -> None:
        message = self._delivery.message
        opening = Message(message.route, message.header, b"", message.flags, more=True)
        self._channel.terminal.channel_forward(self._channel, opening, self._delivery)

    def draw(self) -> None:
        """The terminal has room for the next fragment."""
        if self._task is None and self._offset < self._spool.size:
            self._task = self._kernel.loop.create_task(self._read())

    async def _read(self) -> None:
        try:
            bucket = await self._kernel.spools.read(self._spool, self._offset)
        except OSError as error:
            if not self._cancelled:
                self._channel.terminal.channel_failure(self._channel, 0, error)
            return
        finally:
            self._task = None
        if self._cancelled:
            bucket.release()
            return
        self._offset += bucket.filled
        more = self._offset < self._spool.size
        terminal = self._channel.terminal
        terminal.channel_forward(self._channel, Fragment(bucket, more), self._delivery)
        if not more:
            self._finished()
        self._kernel.turn.end()

    def cancel(self) -> None:
        """Forward nothing more. A read that is under way ends first: it fills a bucket."""
        self._cancelled = True
        self._offset = self._spool.size
