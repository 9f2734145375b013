"""Room for parts: a pump that puts nothing together holds only so many bytes of them.

A part waits for room before it is fetched, which leaves its post with the broker; when those it is
for have reported that they have it, it goes, and makes room for the next. So a file passes that is
larger than the pump. What lies there from before a restart counts, and a part that is larger than
all the room comes alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from penstock.client import FabricClosed, Inflow
from penstock.core.logs import get_logger
from penstock.pump.errors import BadPost
from penstock.pump.posts.reports import Report, read_report

log = get_logger(__name__)

PARTS: Final = "*.Part"


class Holding:
    def __init__(self, folder: Path, base_url: str, limit: int, readers: int = 1) -> None:
        """`folder` is where the base URL leads to; blocking, for it looks what lies there."""
        self._folder = folder
        self._base_url = base_url
        self._limit = limit
        self._readers = readers
        self._held = {path: path.stat().st_size for path in folder.rglob(PARTS)}
        self._fetched: Counter[Path] = Counter()
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

    async def hear(self, inflow: Inflow) -> None:
        """Reports, until there are no more."""
        while True:
            try:
                message = await inflow.receive()
            except FabricClosed:
                return
            try:
                report = read_report(message.body, message.headers)
            except BadPost as error:
                log.info("not a report", topic=message.address, reason=str(error))
            else:
                await self.reported(report)
            await message.ack()

    async def reported(self, report: Report) -> None:
        """Somebody has what a report is about, if it says so; gone when all have."""
        ours = report.post.base_url == self._base_url
        if not ours or not (200 <= report.code < 300 or report.code == 304):
            return
        path = self._folder / report.post.relpath.lstrip("/")
        if path not in self._held:
            return
        self._fetched[path] += 1
        if self._fetched[path] >= self._readers:
            await asyncio.to_thread(path.unlink, missing_ok=True)
            await self._release(path)

    def _fits(self, path: Path, size: int) -> bool:
        others = self.bytes - self._held.get(path, 0)
        return others == 0 or others + size <= self._limit

    async def _release(self, path: Path) -> None:
        async with self._change:
            self._held.pop(path, None)
            del self._fetched[path]
            self._change.notify_all()
