"""How a component that runs is told to stop, and how it tells that it is ready and what it did."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from penstock.pump.flow.consumer import Tally
from penstock.pump.transfers import Transfers


@dataclass(slots=True)
class Control:
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)  #: what is announced now is heard
    tally: Tally = field(default_factory=Tally)
    transfers: Transfers = field(default_factory=Transfers)
