"""Small pieces from a socket become large writes, made in a thread, at the pace that is allowed."""

from __future__ import annotations

from typing import Final

from penstock.core.units import MiB
from penstock.pump.pace import Pace
from penstock.pump.threads import to_the_end
from penstock.pump.transports.contract import Writing

GATHERED: Final = MiB


class Gathering:
    """Keeps `Sink`: small pieces become large writes, made in a thread."""

    __slots__ = ("_pace", "_pieces", "_size", "writing")

    def __init__(self, writing: Writing, pace: Pace) -> None:
        self.writing = writing
        self._pace = pace
        self._pieces: list[bytes] = []
        self._size = 0

    async def feed(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        await self._pace.let_through(len(data))
        if self._size >= GATHERED:
            await to_the_end(self.writing.write, self.taken())

    def taken(self) -> bytes:
        """What has not been written yet."""
        gathered = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return gathered
