"""AMQP 1.0 as one broker speaks it: what its connections share."""

from __future__ import annotations

import asyncio

from penstock.broker.host import Host
from penstock.terminals.amqp10.press import Press
from penstock.terminals.amqp10.recovery import Recovery
from penstock.terminals.amqp10.terminal import Amqp10Terminal


class Amqp10:
    __slots__ = ("host", "press", "recovery")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.press = Press()
        kernel = host.kernel
        self.recovery = Recovery(
            lambda seconds, done: kernel.turn.at(kernel.loop.time() + seconds, done)
        )

    def terminal(self) -> asyncio.Protocol:
        """For a connection that has just been made."""
        return Amqp10Terminal(self)

    def close(self) -> None:
        self.recovery.close()
