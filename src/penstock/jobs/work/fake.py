"""Work that only takes time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.jobs.errors import OutOfTime
from penstock.jobs.model import Fake
from penstock.jobs.shells.shell import Limits
from penstock.jobs.work.kind import Outcome, Report

#: However short the interval that is asked for.
_SHORTEST_SECONDS: Final = 0.01


class FakeWork:
    types = ("fake",)

    async def open(self) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        """Nor to close."""

    async def carry_out(self, request: Fake, limits: Limits, report: Report) -> Outcome:
        if not request.duration:
            return Outcome(seconds=0.0)
        limit = min((each for each in (limits.soft, limits.hard) if each is not None), default=None)
        try:
            async with asyncio.timeout(limit):
                await _pass(request, report)
        except TimeoutError:
            raise OutOfTime(f"ended after {limit:g} seconds") from None
        return Outcome()


async def _pass(request: Fake, report: Report) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    finish = datetime.now(UTC) + timedelta(seconds=request.duration)
    interval = max(request.interval, _SHORTEST_SECONDS)
    steps = 0
    while (gone := steps * interval) < request.duration:
        report.told(gone / request.duration, finish)
        steps += 1
        due = begun + min(steps * interval, request.duration)
        await asyncio.sleep(max(due - loop.time(), 0.0))
