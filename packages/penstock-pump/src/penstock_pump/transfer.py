"""Transfers in progress: their registry, the bandwidth limit, and the sinks of received bytes."""

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

WRITE_BYTES: Final = MiB


@dataclass(slots=True, eq=False)
class FileTransfer:
    name: str
    total: int | None
    done: int = 0
    started: float = inf  #: infinite while it waits for a slot

    def start(self) -> None:
        self.started = time.monotonic()


class TransferRegistry:
    def __init__(self) -> None:
        self._transfers: dict[int, FileTransfer] = {}

    def add(self, name: str, total: int | None) -> FileTransfer:
        transfer = FileTransfer(name, total)
        self._transfers[id(transfer)] = transfer
        return transfer

    def remove(self, transfer: FileTransfer) -> None:
        del self._transfers[id(transfer)]

    def longer_than(self, seconds: float) -> list[FileTransfer]:
        """The oldest first."""
        since = time.monotonic() - seconds
        found = [each for each in list(self._transfers.values()) if each.started <= since]
        return sorted(found, key=lambda each: each.started)


class CountingWriter:
    """A `ByteWriter` that adds to the progress of a transfer."""

    __slots__ = ("_transfer", "_writer")

    def __init__(self, writer: ByteWriter, transfer: FileTransfer) -> None:
        self._writer = writer
        self._transfer = transfer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._writer.write(data)
        self._transfer.done += len(data)


class BandwidthLimit:
    """Bytes per second for all transfers of a component. Sockets wait on the event loop, local
    copies in their thread. A rate of 0 means no limit."""

    def __init__(
        self, bytes_per_second: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._due = 0.0  #: when the bytes admitted so far will have passed
        self._lock = Lock()

    async def wait_for(self, size: int) -> None:
        if self._rate > 0 and (seconds := self.seconds(size)) > 0:
            await asyncio.sleep(seconds)

    @property
    def pace(self) -> Callable[[int], None] | None:
        """For reads in a thread: waits as long as so many bytes must wait."""
        return None if self._rate <= 0 else lambda size: time.sleep(self.seconds(size))

    def limit_writer(self, writer: ByteWriter) -> ByteWriter:
        """For writes in a thread."""
        return _LimitedWriter(self, writer) if self._rate > 0 else writer

    def seconds(self, size: int) -> float:
        """Admits the bytes, and returns how long they must wait."""
        with self._lock:
            now = self._clock()
            self._due = max(self._due, now) + size / self._rate
            return self._due - now


class _LimitedWriter:
    __slots__ = ("_bandwidth_limit", "_writer")

    def __init__(self, bandwidth_limit: BandwidthLimit, writer: ByteWriter) -> None:
        self._bandwidth_limit = bandwidth_limit
        self._writer = writer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._writer.write(data)
        time.sleep(self._bandwidth_limit.seconds(len(data)))


class BufferedSink:
    """For large files: writes a mebibyte at a time, in a thread."""

    __slots__ = ("_bandwidth_limit", "_pieces", "_size", "_writer")

    def __init__(self, writer: ByteWriter, bandwidth_limit: BandwidthLimit) -> None:
        self._writer = writer
        self._bandwidth_limit = bandwidth_limit
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def writer(self) -> ByteWriter:
        return self._bandwidth_limit.limit_writer(self._writer)

    async def feed(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        await self._bandwidth_limit.wait_for(len(data))
        if self._size >= WRITE_BYTES:
            await run_to_completion(self._writer.write, self.take())

    def take(self) -> bytes:
        """Removes and returns the bytes that were not written yet."""
        data = _joined(self._pieces)
        self._pieces.clear()
        self._size = 0
        return data


class MemorySink:
    """For small files: collects the content, at most the announced size."""

    __slots__ = ("_bandwidth_limit", "_pieces", "_transfer")

    def __init__(self, transfer: FileTransfer, bandwidth_limit: BandwidthLimit) -> None:
        self._transfer = transfer
        self._bandwidth_limit = bandwidth_limit
        self._pieces: list[bytes] = []

    @property
    def writer(self) -> ByteWriter:
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

    def take(self) -> bytes:
        return _joined(self._pieces)


def _joined(pieces: list[bytes]) -> bytes:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
