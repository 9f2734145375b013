"""A terminal without a socket: it carries one message to an exchange, or some from a queue.

What AMQP terminals do for a client, this does for one HTTP request, by the same verbs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.contract import MANDATORY, Channel, Delivery, Fragment, Message
from penstock.core.errors import NoRoute

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.destinations import Exchange, Queue
    from penstock.broker.kernel import Kernel


class Posting:
    """Posts a message, and waits until it is safe or has found no queue."""

    def __init__(
        self,
        kernel: Kernel,
        exchange: Exchange,
        check_topic: Callable[[str], None] | None = None,
    ) -> None:
        self._kernel = kernel
        self._exchange = exchange
        self._check_topic = check_topic
        self._outcome: asyncio.Future[bool] = kernel.loop.create_future()

    async def post(self, message: Message) -> bool:
        """Whether a queue took it; raises what the exchange or a queue refused it with."""
        message.flags |= MANDATORY
        channel = Channel(self, self._exchange)
        channel.check_topic = self._check_topic
        self._exchange.channel_open(channel, {})
        try:
            self._exchange.channel_post(channel, message, 1)
            self._kernel.metrics.published += 1
            self._kernel.turn.end()
            return await self._outcome
        finally:
            self._exchange.channel_close(channel)

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        raise AssertionError("an exchange forwards nothing")

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        if not self._outcome.done():
            self._outcome.set_result(True)

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        if self._outcome.done():
            return
        if isinstance(error, NoRoute):
            self._outcome.set_result(False)
        else:
            self._outcome.set_exception(error)


class Fetching:
    """Takes messages from the head of a queue, one at a time, and owes an answer for each."""

    def __init__(self, kernel: Kernel, queue: Queue) -> None:
        self._kernel = kernel
        self._queue = queue
        self._got: list[Delivery] = []
        self._owed: list[tuple[Channel, Delivery]] = []

    def next(self) -> Delivery | None:
        """The next message, or None when the queue is empty."""
        channel = Channel(self, self._queue)
        self._queue.channel_open(channel, {"pull": True})
        self._queue.channel_request(channel, 1)
        # Of a large message only the first fragment has come: its body is read from the spool.
        self._queue.channel_close(channel)
        if not self._got:
            return None
        self._kernel.metrics.delivered += 1
        delivery = self._got.pop()
        self._owed.append((channel, delivery))
        return delivery

    def confirm(self) -> None:
        """Done with everything that was taken."""
        for channel, delivery in self._owed:
            self._queue.channel_confirm(channel, delivery)
        self._kernel.metrics.acknowledged += len(self._owed)
        self._end()

    def fail(self, requeue: bool) -> None:
        """Put everything back, or reject it."""
        for channel, delivery in self._owed:
            self._queue.channel_failure(channel, delivery, requeue)
        self._end()

    def _end(self) -> None:
        self._owed.clear()
        self._kernel.turn.end()

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        if isinstance(fragment, Fragment):
            fragment.bucket.release()
        elif delivery is not None:
            self._got.append(delivery)

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        raise AssertionError("nothing was posted")

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        """The queue is gone; whoever fetches finds it empty."""
