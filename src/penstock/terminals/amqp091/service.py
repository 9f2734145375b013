"""AMQP 0-9-1 as one broker speaks it: its connections share nothing but the broker."""

from __future__ import annotations

import asyncio

from penstock.broker.host import Host
from penstock.terminals.amqp091.terminal import Amqp091Terminal


class Amqp091:
    __slots__ = ("_host",)

    def __init__(self, host: Host) -> None:
        self._host = host

    def terminal(self) -> asyncio.Protocol:
        """For a connection that has just been made."""
        return Amqp091Terminal(self._host)

    def close(self) -> None:
        """There is nothing to let go of."""
