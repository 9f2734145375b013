"""PADRES as one broker speaks it: what its connections share."""

from __future__ import annotations

import asyncio

from penstock.broker.host import Host
from penstock.terminals.padres.mailbox import Press
from penstock.terminals.padres.terminal import PadresTerminal


class Padres:
    __slots__ = ("host", "present", "press")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.press = Press()
        #: Clients that are connected, by virtual host and the name of their hop.
        self.present: dict[tuple[str, str], PadresTerminal] = {}

    def terminal(self) -> asyncio.Protocol:
        """For a connection that has just been made."""
        return PadresTerminal(self)

    def close(self) -> None:
        """There is nothing left when the last connection has ended."""
