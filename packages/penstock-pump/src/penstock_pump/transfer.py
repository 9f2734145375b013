"""Transfers that are under way, for whoever wants to see how far they are.

A transfer is entered when it begins and leaves when it ends, however it ends. What it has done is
added up where bytes are written, in a thread or not; who looks sees a moment of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from threading import Lock
from typing import Final

from penstock.core.units import MiB
from penstock_pump.errors import WrongSize
from penstock_pump.thread_pool import run_to_completion
from penstock_pump.transports.transport import ByteWriter


@dataclass(slots=True, eq=False)
class FileTransfer:
    name: str
    total: int | None
    done: int = 0
    begun: float = inf  #: those that wait for their turn have not

    def begin(self) -> None:
        self.begun = time.monotonic()


class TransferRegistry:
    def __init__(self) -> None:
        self._under_way: dict[int, FileTransfer] = {}

    def enter(self, name: str, total: int | None) -> FileTransfer:
        transfer = FileTransfer(name, total)
        self._under_way[id(transfer)] = transfer
        return transfer

    def leave(self, transfer: FileTransfer) -> None:
        del self._under_way[id(transfer)]

    def long(self, seconds: float) -> list[FileTransfer]:
        """Those that have lasted so long, the oldest first."""
        since = time.monotonic() - seconds
        found = [each for each in list(self._under_way.values()) if each.begun <= since]
        return sorted(found, key=lambda each: each.begun)


class CountingWriter:
    """Keeps `ByteWriter`: whatever is written counts."""

    __slots__ = ("_transfer", "_writing")

    def __init__(self, writing: ByteWriter, transfer: FileTransfer) -> None:
        self._writing = writing
        self._transfer = transfer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._writing.write(data)
        self._transfer.done += len(data)


# A bound on bytes a second, for all transfers of a component together.
#
# What comes over sockets waits on the event loop, what is copied in a thread waits there.


class BandwidthLimit:
    """Waits as long as it takes; without a rate it never does."""

    def __init__(
        self, bytes_per_second: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._due = 0.0  #: when what was let through so far will have passed
        self._lock = Lock()

    async def wait_for(self, size: int) -> None:
        if self._rate > 0 and (seconds := self.seconds(size)) > 0:
            await asyncio.sleep(seconds)

    def limit_writer(self, writing: ByteWriter) -> ByteWriter:
        """The same for what is written in a thread."""
        return _LimitedWriter(self, writing) if self._rate > 0 else writing

    def seconds(self, size: int) -> float:
        """How long so many bytes have to wait; they count from now on."""
        with self._lock:
            now = self._clock()
            self._due = max(self._due, now) + size / self._rate
            return self._due - now


class _LimitedWriter:
    """Keeps `ByteWriter`."""

    __slots__ = ("_bandwidth_limit", "_writing")

    def __init__(self, bandwidth_limit: BandwidthLimit, writing: ByteWriter) -> None:
        self._bandwidth_limit = bandwidth_limit
        self._writing = writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._writing.write(data)
        time.sleep(self._bandwidth_limit.seconds(len(data)))


# What sockets bring, on its way to a file: in large pieces, at the pace that is allowed.
#
# A large file is written while it comes, in a thread, a mebibyte at a time. A small one is kept
# until all of it is there, so that it is written in one go with others.

WRITE_BYTES: Final = MiB


class BufferedSink:
    """Keeps `Sink`: small pieces become large writes, made in a thread."""

    __slots__ = ("_bandwidth_limit", "_pieces", "_size", "_writing")

    def __init__(self, writing: ByteWriter, bandwidth_limit: BandwidthLimit) -> None:
        self._writing = writing
        self._bandwidth_limit = bandwidth_limit
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def writing(self) -> ByteWriter:
        return self._bandwidth_limit.limit_writer(self._writing)

    async def feed(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        await self._bandwidth_limit.wait_for(len(data))
        if self._size >= WRITE_BYTES:
            await run_to_completion(self._writing.write, self.taken())

    def taken(self) -> bytes:
        """What has not been written yet."""
        gathered = _joined(self._pieces)
        self._pieces.clear()
        self._size = 0
        return gathered


class MemorySink:
    """A `ByteWriter` in memory: holds no more bytes than were announced."""

    __slots__ = ("_bandwidth_limit", "_pieces", "_transfer")

    def __init__(self, transfer: FileTransfer, bandwidth_limit: BandwidthLimit) -> None:
        self._transfer = transfer
        self._bandwidth_limit = bandwidth_limit
        self._pieces: list[bytes] = []

    @property
    def writing(self) -> ByteWriter:
        return self._bandwidth_limit.limit_writer(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        transfer = self._transfer
        transfer.done += len(data)
        if transfer.total is not None and transfer.done > transfer.total:
            raise WrongSize(f"more than the {transfer.total} bytes announced")
        self._pieces.append(bytes(data))

    async def feed(self, data: bytes) -> None:
        self.write(data)
        await self._bandwidth_limit.wait_for(len(data))

    def taken(self) -> bytes:
        return _joined(self._pieces)


def _joined(pieces: list[bytes]) -> bytes:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
