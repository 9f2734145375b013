"""Room for parts: a pump that puts nothing together holds only so many bytes of them.

A part waits for room before it is fetched, which leaves its post with the broker; when those it is
for have reported that they have it, it goes, and makes room for the next. So a file passes that is
larger than the pump. Who reports twice is one reader all the same. Reports of a part that others
still need stay with the broker, and come again after a restart, as what lies there then counts. A
part that is larger than all the room comes alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from penstock.client import FabricClosed
from penstock.core.logs import get_logger
from penstock_pump.errors import BadPost
from penstock_pump.flow.subscription import PumpDelivery, PumpSubscription
from penstock_pump.posts import reports
from penstock_pump.posts.reports import PostReport, read_report

log = get_logger(__name__)

PART_PATTERN: Final = "*.Part"


class PartQuota:
    def __init__(self, folder: Path, base_url: str, limit: int, readers: int = 1) -> None:
        """`folder` is where the base URL leads to; blocking, for it looks what lies there."""
        self._folder = folder
        self._base_url = base_url
        self._limit = limit
        self._readers = readers
        self._held = {path: path.stat().st_size for path in folder.rglob(PART_PATTERN)}
        self._had: dict[Path, set[str]] = {}  #: by whom
        self._reports: dict[Path, list[PumpDelivery]] = {}  #: not acknowledged
        self._change = asyncio.Condition()

    @property
    def bytes(self) -> int:
        return sum(self._held.values())

    @asynccontextmanager
    async def room(self, path: Path, size: int) -> AsyncIterator[None]:
        """Waits for it; what fails to come gives it back."""
        async with self._change:
            await self._change.wait_for(lambda: self._fits(path, size))
            self._held[path] = size
        try:
            yield
        except BaseException:
            await self._release(path)
            raise

    async def hear(self, subscription: PumpSubscription) -> None:
        """Reports, until there are no more."""
        while True:
            try:
                come = await subscription.receive()
            except FabricClosed:
                return
            for heard in come:
                await self._hear_one(heard)

    async def _hear_one(self, heard: PumpDelivery) -> None:
        pump_message = heard.pump_message
        try:
            report = read_report(pump_message.body, pump_message.headers)
        except BadPost as error:
            log.info("not a report", topic=pump_message.topic, reason=str(error))
            await heard.ack()
            return
        path = self._about(report)
        self._reports.setdefault(path, []).append(heard)
        if not await self.reported(report):
            for each in self._reports.pop(path):
                await each.ack()

    async def reported(self, report: PostReport) -> bool:
        """Somebody has what a report is about, if it says so; gone when all have. Whether others
        are still to report."""
        ours = report.post.base_url == self._base_url
        path = self._about(report)
        if not ours or path not in self._held:
            return False
        had = self._had.setdefault(path, set())
        if 200 <= report.code < 300 or report.code == reports.NOT_MODIFIED:
            had.add(report.who)
        if len(had) < self._readers:
            return True
        await asyncio.to_thread(path.unlink, missing_ok=True)
        await self._release(path)
        return False

    def _about(self, report: PostReport) -> Path:
        return self._folder / report.post.relpath.lstrip("/")

    def _fits(self, path: Path, size: int) -> bool:
        others = self.bytes - self._held.get(path, 0)
        return others == 0 or others + size <= self._limit

    async def _release(self, path: Path) -> None:
        async with self._change:
            self._held.pop(path, None)
            self._had.pop(path, None)
            self._change.notify_all()
