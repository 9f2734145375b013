"""What ends on a channel of requests, by transactions.

A final response and the acknowledgement of its request happen together, so a worker that is killed
leaves either both or neither. While one commit is under way, what ends meanwhile gathers for the
next. Over another channel what was handed out before cannot be settled: each has its epoch.
"""

from __future__ import annotations

import asyncio

from pamqp import commands

from penstock.client.amqp091.channel import Channel
from penstock.jobs.queue.carrier import Delivery, Listener, Settlement


class Commits:
    #: Whom it tells what was settled, and what may not have been; there is one before a channel.
    listener: Listener

    def __init__(self) -> None:
        self.epoch = 0
        self.held = False  #: none is begun
        self._channel: Channel | None = None
        self._unacknowledged: dict[int, None] = {}  # tags, in order
        self._ready: list[Settlement] = []
        self._returns: list[Delivery] = []
        self._under_way: list[Settlement] = []
        self._scheduled = False
        self._idle = asyncio.Event()  # there is nothing to settle
        self._idle.set()
        self._quiet = asyncio.Event()  # no commit is under way
        self._quiet.set()

    # A channel.

    def begin(self, channel: Channel) -> None:
        self._channel = channel
        self._unacknowledged.clear()
        self.epoch += 1

    def lose(self) -> list[Settlement]:
        """The channel went: what was not committed is not ours any more. What may be settled."""
        self._channel = None
        self.epoch += 1
        unsure = self._under_way + self._ready
        self._under_way, self._ready, self._returns = [], [], []
        self._idle.set()
        self._quiet.set()
        return unsure

    def hold(self) -> None:
        """Begin no commit until it is released: the channel is to be asked something else."""
        self.held = True

    def release(self) -> None:
        self.held = False
        if self._ready or self._returns:
            self._schedule()

    async def quiet(self) -> None:
        """Returns when no commit is under way."""
        await self._quiet.wait()

    async def idle(self) -> None:
        """Returns when nothing is left to be settled."""
        await self._idle.wait()

    # What is to be settled.

    def took(self, tag: int) -> None:
        self._unacknowledged[tag] = None

    def settle(self, settlement: Settlement) -> None:
        self._ready.append(settlement)
        self._schedule()

    def give_back(self, delivery: Delivery) -> None:
        if delivery.epoch == self.epoch:
            self._returns.append(delivery)
            self._schedule()

    def _schedule(self) -> None:
        self._idle.clear()
        if not self._scheduled and not self.held and self._quiet.is_set():
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._commit)

    def _commit(self) -> None:
        """Everything that is ready, in one transaction and one write."""
        self._scheduled = False
        if self.held:
            return
        channel, current = self._channel, self.epoch
        stale = [each for each in self._ready if each.delivery.epoch != current]
        batch = [each for each in self._ready if each.delivery.epoch == current]
        returns, self._ready, self._returns = self._returns, [], []
        if stale:
            self.listener.unsettled(stale)
        if channel is None or not (batch or returns):
            self._idle.set()
            return
        for settlement in batch:
            for each in settlement.messages:
                channel.publish(each.exchange, each.key, each.body, each.said)
        self._acknowledge(channel, {each.delivery.tag for each in batch})
        for delivery in returns:
            self._unacknowledged.pop(delivery.tag, None)
            channel.reject(delivery.tag, requeue=True)
        self._under_way = batch
        self._quiet.clear()
        channel.commit().add_done_callback(self._committed)

    def _acknowledge(self, channel: Channel, tags: set[int]) -> None:
        """As many as can be by one word."""
        upto = 0
        for tag in self._unacknowledged:
            if tag not in tags:
                break
            upto = tag
        if upto:
            channel.ack(upto, multiple=True)
        for tag in tags:
            del self._unacknowledged[tag]
            if tag > upto:
                channel.ack(tag)

    def _committed(self, answer: asyncio.Future[commands.Tx.CommitOk]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return  # it was lost with its channel
        batch, self._under_way = self._under_way, []
        self._quiet.set()
        self.listener.settled(batch)
        if self._ready or self._returns:
            self._schedule()
        else:
            self._idle.set()
