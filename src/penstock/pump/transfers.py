"""Transfers that are under way, for whoever wants to see how far they are.

A transfer is entered when it begins and leaves when it ends, however it ends. What it has done is
added up where bytes are written, in a thread or not; who looks sees a moment of it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import inf

from penstock.pump.transports.contract import Writing


@dataclass(slots=True, eq=False)
class Transfer:
    name: str
    total: int | None
    done: int = 0
    begun: float = inf  #: those that wait for their turn have not

    def begin(self) -> None:
        self.begun = time.monotonic()


class Transfers:
    def __init__(self) -> None:
        self._under_way: dict[int, Transfer] = {}

    def enter(self, name: str, total: int | None) -> Transfer:
        transfer = Transfer(name, total)
        self._under_way[id(transfer)] = transfer
        return transfer

    def leave(self, transfer: Transfer) -> None:
        del self._under_way[id(transfer)]

    def long(self, seconds: float) -> list[Transfer]:
        """Those that have lasted so long, the oldest first."""
        since = time.monotonic() - seconds
        found = [each for each in list(self._under_way.values()) if each.begun <= since]
        return sorted(found, key=lambda each: each.begun)


class Counted:
    """Keeps `Writing`: whatever is written counts."""

    __slots__ = ("_transfer", "_writing")

    def __init__(self, writing: Writing, transfer: Transfer) -> None:
        self._writing = writing
        self._transfer = transfer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._writing.write(data)
        self._transfer.done += len(data)
