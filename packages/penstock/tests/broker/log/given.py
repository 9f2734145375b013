"""What the tests of the log start from: messages, a terminal that listens, a committer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.broker.contract import Channel, Delivery, Fragment, Message
from penstock.broker.log import Committer, Log


def message(body: bytes = b"hello", key: bytes = b"key", flags: int = 1) -> Message:
    route = b"\x02ex" + bytes((len(key),)) + key
    header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + b"\x10\x00\x02"
    return Message(route, header, body, flags)


def fields(one: Message) -> tuple[bytes, bytes, bytes, int]:
    return one.route, one.header, one.body, one.flags


def bodies(log: Log, start: int = 0) -> list[bytes]:
    """Every message that can be read, as a reader meets them."""
    found = []
    while (chunk := log.read(start)) is not None:
        found += [one.body for one in chunk.messages(max(start - chunk.base, 0))]
        start = chunk.end
    return found


class Listener:
    """A terminal that notes what it is told of its receipts."""

    def __init__(self) -> None:
        self.confirmed: list[int] = []
        self.failed: list[int] = []
        self.changed = asyncio.Event()

    def channel(self) -> Channel:
        return Channel(self, self, True)  # type: ignore[arg-type]

    def channel_forward(
        self, channel: Channel, fragment: Fragment, delivery: Delivery | None
    ) -> None:
        raise AssertionError("nothing is forwarded here")

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        self.confirmed.append(receipt)
        self.changed.set()

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        self.failed.append(receipt)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()


class Disk:
    """A committer, with what it said; its syncs are counted, and fail while `broken` is set."""

    def __init__(self, loop: asyncio.AbstractEventLoop, **options: Any) -> None:
        self.syncs = 0
        self.broken: OSError | None = None
        self.faults: list[OSError] = []
        self.recoveries = 0
        self.cycles = 0
        self.changed = asyncio.Event()
        self.committer = Committer(
            loop,
            on_fault=self._fault,
            on_recovered=self._recovered,
            on_synced=self._synced,
            retry_seconds=0.01,
            sync=self._sync,
            **options,
        )

    def _sync(self, descriptor: int) -> None:
        self.syncs += 1
        if self.broken is not None:
            raise self.broken
        os.fdatasync(descriptor)

    def _fault(self, error: OSError) -> None:
        self.faults.append(error)
        self.changed.set()

    def _recovered(self) -> None:
        self.recoveries += 1
        self.changed.set()

    def _synced(self) -> None:
        self.cycles += 1
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()


class Fixed:
    """A clock that is told the time."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.seg"))
