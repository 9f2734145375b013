"""Deliveries that may not go unanswered for ever (`x-consumer-timeout`); by default they may."""

from __future__ import annotations

import asyncio

from penstock.broker.contract import Channel, Delivery
from penstock.broker.kernel import Kernel
from penstock.core.errors import PreconditionFailed


class Patience:
    __slots__ = ("_due", "_kernel", "_milliseconds", "_timer")

    def __init__(self, kernel: Kernel, milliseconds: int) -> None:
        self._kernel = kernel
        self._milliseconds = milliseconds
        self._due: dict[Delivery, tuple[float, Channel]] = {}  # the earliest first
        self._timer: asyncio.TimerHandle | None = None

    def delivered(self, channel: Channel, delivery: Delivery) -> None:
        self._due[delivery] = (
            self._kernel.loop.time() + self._milliseconds / 1000,
            channel,
        )
        self._arm()

    def answered(self, delivery: Delivery) -> None:
        self._due.pop(delivery, None)

    def _arm(self) -> None:
        if self._timer is None and self._due:
            due, _ = next(iter(self._due.values()))
            self._timer = self._kernel.turn.at(due, self._look)

    def _look(self) -> None:
        """End the channels that let a delivery wait too long; what they hold goes back."""
        self._timer = None
        now = self._kernel.loop.time()
        for delivery, (due, channel) in list(self._due.items()):
            if due > now:
                break
            if delivery in self._due:  # its channel's end may have answered others
                del self._due[delivery]
                why = PreconditionFailed(
                    "delivery acknowledgement on channel timed out. "
                    f"Timeout value used: {self._milliseconds} ms"
                )
                channel.terminal.channel_failure(channel, 0, why)
        self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
