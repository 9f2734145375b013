"""A disk quota for parts, for a pump that does not assemble files.

A part waits for free quota before it is fetched; its post stays at the broker meanwhile. It is
deleted when all readers have reported that they have it, which frees quota for the next. So a file
larger than the pump's disk can pass. A reader that reports twice counts once. Reports of a part
that others still need stay unacknowledged, so they are redelivered after a restart; parts that are
on disk then count. A part larger than the quota is fetched alone.
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
        """`folder` is the directory behind the base URL. Blocking: it is scanned for parts."""
        self._folder = folder
        self._base_url = base_url
        self._limit = limit
        self._readers = readers
        self._sizes = {path: path.stat().st_size for path in folder.rglob(PART_PATTERN)}
        self._reported: dict[Path, set[str]] = {}  #: readers that have the part
        self._unacked: dict[Path, list[PumpDelivery]] = {}  #: reports
        self._change = asyncio.Condition()

    @property
    def bytes(self) -> int:
        return sum(self._sizes.values())

    @asynccontextmanager
    async def reserve(self, path: Path, size: int) -> AsyncIterator[None]:
        """Waits for free quota; on an error it is released."""
        async with self._change:
            await self._change.wait_for(lambda: self._fits(path, size))
            self._sizes[path] = size
        try:
            yield
        except BaseException:
            await self._release(path)
            raise

    async def consume_reports(self, subscription: PumpSubscription) -> None:
        while True:
            try:
                deliveries = await subscription.receive()
            except FabricClosed:
                return
            for delivery in deliveries:
                await self._consume_report(delivery)

    async def _consume_report(self, delivery: PumpDelivery) -> None:
        message = delivery.pump_message
        try:
            report = read_report(message.body, message.headers)
        except BadPost as error:
            log.info("invalid report", topic=message.topic, reason=str(error))
            await delivery.ack()
            return
        path = self._path(report)
        self._unacked.setdefault(path, []).append(delivery)
        if not await self.handle_report(report):
            for each in self._unacked.pop(path):
                await each.ack()

    async def handle_report(self, report: PostReport) -> bool:
        """Deletes the part when all readers have it; whether other readers are still to report."""
        path = self._path(report)
        if report.post.base_url != self._base_url or path not in self._sizes:
            return False
        reported = self._reported.setdefault(path, set())
        if 200 <= report.code < 300 or report.code in (reports.NOT_MODIFIED, reports.PART_FILE):
            reported.add(report.who)
        if len(reported) < self._readers:
            return True
        await asyncio.to_thread(path.unlink, missing_ok=True)
        await self._release(path)
        return False

    def _path(self, report: PostReport) -> Path:
        return self._folder / report.post.relpath.lstrip("/")

    def _fits(self, path: Path, size: int) -> bool:
        others = self.bytes - self._sizes.get(path, 0)
        return others == 0 or others + size <= self._limit

    async def _release(self, path: Path) -> None:
        async with self._change:
            self._sizes.pop(path, None)
            self._reported.pop(path, None)
            self._change.notify_all()
