"""The sides of a transfer that are this broker: terminals of the contract without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from penstock.broker.content_header import message_flags
from penstock.broker.contract import Channel, Delivery, Fragment, Message, Queue
from penstock.broker.host import Alarms
from penstock.broker.kernel import Kernel
from penstock.broker.vhost import VirtualHost
from penstock.core.errors import NoRoute, NotFound, PenstockError
from penstock.federation.transfer import TransferFailed, TransferMessage, TransferOutcome

#: How often a destination looks whether the alarms have been cleared.
ALARM_POLL_SECONDS: Final = 0.2

FindQueue = Callable[[], Queue]


class _Flush:
    """Ends a write batch after all that one pass of the loop has caused."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._scheduled = False

    def soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._kernel.loop.call_soon(self._now)

    def _now(self) -> None:
        self._scheduled = False
        self._kernel.write_batch.flush()


class LocalTransferSource:
    """Consumes a queue of this broker."""

    def __init__(
        self,
        kernel: Kernel,
        find: FindQueue,
        prefetch: int,
        arguments: dict[str, Any] | None = None,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        """`find` declares the queue; `closed` is called at the end."""
        self._kernel = kernel
        self._find = find
        self._prefetch = prefetch
        self._arguments = arguments or {}
        self._closed = closed
        self._flush = _Flush(kernel)
        self._channel: Channel | None = None
        self._unsettled: dict[Delivery, None] = {}
        self._parts: list[bytes] = []  # of a large message
        self._opening: Message | None = None
        self.backlog: int | None = None

    async def open(
        self, arrived: Callable[[TransferMessage], None], failed: TransferFailed
    ) -> None:
        self._arrived = arrived
        self._failed = failed
        queue = self._find()
        self.backlog = queue.message_count
        self._channel = channel = Channel(self, queue)
        queue.channel_open(channel, {**self._arguments, "prefetch": self._prefetch})
        queue.channel_request(channel, self._prefetch)
        self._flush.soon()

    def ack(self, message: TransferMessage) -> None:
        delivery: Delivery = message.tag
        channel = self._channel
        if channel is None or self._unsettled.pop(delivery, 0) == 0:
            return
        channel.driver.channel_confirm(channel, delivery)
        self._kernel.metrics.acknowledged += 1
        channel.driver.channel_request(channel, channel.credit + 1)
        self._flush.soon()

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.driver.channel_close(channel)
            for delivery in self._unsettled:
                channel.driver.channel_failure(channel, delivery, True)
            self._unsettled.clear()
        self._closed()
        self._flush.soon()

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        assert delivery is not None, "the channel is not settled"
        if isinstance(fragment, Fragment):
            self._parts.append(bytes(fragment.body))
            fragment.bucket.release()
            message = self._opening
            assert message is not None
        else:
            self._unsettled[delivery] = None
            self._kernel.metrics.delivered += 1
            message = fragment
        if fragment.more:
            self._opening = message
            self._kernel.loop.call_soon(self._draw, channel)
            return
        body = b"".join(self._parts) or message.body
        self._parts, self._opening = [], None
        redelivered = delivery.count > 0
        arrival = TransferMessage(message.route, message.header, body, delivery, redelivered)
        self._arrived(arrival)

    def _draw(self, channel: Channel) -> None:
        if channel is self._channel:
            channel.driver.channel_request(channel, max(1, channel.credit))

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        raise AssertionError("nothing was posted")

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        self._channel = None
        self._unsettled.clear()
        self._failed(error if isinstance(error, PenstockError) else NotFound(str(error)))


class LocalTransferDestination:
    """Publishes to the exchanges of this broker that the routes of the messages name."""

    def __init__(
        self, vhost: VirtualHost, alarms: Alarms, declare: Callable[[], object] = lambda: None
    ) -> None:
        self._vhost = vhost
        self._kernel = vhost.kernel
        self._alarms = alarms
        self._declare = declare
        self._flush = _Flush(vhost.kernel)
        self._channels: dict[str, Channel] = {}
        self._receipt = 0
        self._outcomes: dict[int, TransferOutcome] = {}

    @property
    def flowing(self) -> bool:
        return not self._alarms.active

    async def open(self, failed: TransferFailed) -> None:
        self._failed = failed
        self._declare()
        self._flush.soon()

    async def flow(self) -> None:
        while not self.flowing:  # noqa: ASYNC110 - alarms are rare, and have one listener
            await asyncio.sleep(ALARM_POLL_SECONDS)

    def send(self, message: TransferMessage, outcome: TransferOutcome) -> None:
        posted = Message(message.route, message.header, message.body, message_flags(message.header))
        self._receipt += 1
        self._outcomes[self._receipt] = outcome
        self._kernel.metrics.published += 1
        try:
            channel = self._channels.get(posted.exchange) or self._open(posted.exchange)
            channel.driver.channel_post(channel, posted, self._receipt)
        except PenstockError as error:
            self._settle(self._receipt, error)
        self._flush.soon()

    def _open(self, name: str) -> Channel:
        exchange = self._vhost.exchange(name)
        channel = self._channels[name] = Channel(self, exchange)
        exchange.channel_open(channel, {})
        return channel

    async def close(self) -> None:
        self._outcomes.clear()
        for channel in self._channels.values():
            channel.driver.channel_close(channel)
        self._channels.clear()

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        raise AssertionError("exchanges do not forward")

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        self._settle(receipt, None)

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        if isinstance(error, NoRoute):
            self._settle(receipt, None)
            return
        refused = error if isinstance(error, PenstockError) else NotFound(str(error))
        if receipt:
            self._settle(receipt, refused)
        else:
            self._channels = {key: each for key, each in self._channels.items() if each != channel}
            self._failed(refused)

    def _settle(self, receipt: int, error: PenstockError | None) -> None:
        if (outcome := self._outcomes.pop(receipt, None)) is not None:
            outcome(error)
