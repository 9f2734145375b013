"""report: what became of files, as those who fetched them say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.client import FabricClosed, Inflow
from penstock.core.logs import get_logger
from penstock.pump.components.control import Control
from penstock.pump.components.workshop import open_workshop
from penstock.pump.config.settings import PumpSettings
from penstock.pump.errors import BadPost
from penstock.pump.posts.reports import Report, read_report

log = get_logger(__name__)


async def report(
    settings: PumpSettings, heard: Callable[[Report], None], control: Control | None = None
) -> None:
    """Call `heard` with each report, until told to stop."""
    control = control or Control()
    async with open_workshop(settings) as shop:
        inflows = await shop.inflows()
        control.ready.set()
        hearing = [asyncio.create_task(_hear(inflow, heard, control)) for inflow in inflows]
        stopped = asyncio.create_task(control.stop.wait())
        await asyncio.wait([*hearing, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in (*hearing, stopped):
            task.cancel()
        for ended in await asyncio.gather(*hearing, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


async def _hear(inflow: Inflow, heard: Callable[[Report], None], control: Control) -> None:
    while True:
        try:
            message = await inflow.receive()
        except FabricClosed:
            return
        control.tally.heard += 1
        try:
            found = read_report(message.body, message.headers)
        except BadPost as error:
            log.warning("not a report", topic=message.address, reason=str(error))
        else:
            control.tally.codes[found.code] += 1
            heard(found)
        await message.ack()
