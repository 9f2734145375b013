"""What sockets bring, on its way to a file: in large pieces, at the pace that is allowed.

A large file is written while it comes, in a thread, a mebibyte at a time. A small one is kept until
all of it is there, so that it is written in one go with others.
"""

from __future__ import annotations

from typing import Final

from penstock.core.units import MiB
from penstock.pump.errors import WrongSize
from penstock.pump.pace import Pace
from penstock.pump.threads import to_the_end
from penstock.pump.transfers import Transfer
from penstock.pump.transports.contract import Writing

GATHERED: Final = MiB


class Gathering:
    """Keeps `Sink`: small pieces become large writes, made in a thread."""

    __slots__ = ("_pace", "_pieces", "_size", "_writing")

    def __init__(self, writing: Writing, pace: Pace) -> None:
        self._writing = writing
        self._pace = pace
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def writing(self) -> Writing:
        return self._pace.kept_by(self._writing)

    async def feed(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        await self._pace.let_through(len(data))
        if self._size >= GATHERED:
            await to_the_end(self._writing.write, self.taken())

    def taken(self) -> bytes:
        """What has not been written yet."""
        gathered = _joined(self._pieces)
        self._pieces.clear()
        self._size = 0
        return gathered


class Collecting:
    """Keeps `Sink`, and `Writing`: nothing is written, and no more is kept than was announced."""

    __slots__ = ("_pace", "_pieces", "_transfer")

    def __init__(self, transfer: Transfer, pace: Pace) -> None:
        self._transfer = transfer
        self._pace = pace
        self._pieces: list[bytes] = []

    @property
    def writing(self) -> Writing:
        return self._pace.kept_by(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        transfer = self._transfer
        transfer.done += len(data)
        if transfer.total is not None and transfer.done > transfer.total:
            raise WrongSize(f"more than the {transfer.total} bytes announced")
        self._pieces.append(bytes(data))

    async def feed(self, data: bytes) -> None:
        self.write(data)
        await self._pace.let_through(len(data))

    def taken(self) -> bytes:
        return _joined(self._pieces)


def _joined(pieces: list[bytes]) -> bytes:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
