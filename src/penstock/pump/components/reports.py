"""report: what became of files, as those who fetched them say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.client import FabricClosed
from penstock.core.logs import get_logger
from penstock.pump.components.control import Control
from penstock.pump.components.workshop import open_workshop
from penstock.pump.config.settings import PumpSettings
from penstock.pump.errors import BadPost
from penstock.pump.flow.hearing import Hearing
from penstock.pump.posts.reports import Report, read_report

log = get_logger(__name__)


async def report(
    settings: PumpSettings, heard: Callable[[Report], None], control: Control | None = None
) -> None:
    """Call `heard` with each report, until told to stop."""
    control = control or Control()
    async with open_workshop(settings) as shop:
        hearing = await shop.hearing()
        control.ready.set()
        listening = asyncio.create_task(_hear(hearing, heard, control))
        stopped = asyncio.create_task(control.stop.wait())
        await asyncio.wait([listening, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in (listening, stopped):
            task.cancel()
        (ended,) = await asyncio.gather(listening, return_exceptions=True)
        if isinstance(ended, Exception):
            raise ended


async def _hear(hearing: Hearing, heard: Callable[[Report], None], control: Control) -> None:
    while True:
        try:
            come = await hearing.receive()
        except FabricClosed:
            return
        for each in come:
            control.tally.heard += 1
            letter = each.letter
            try:
                found = read_report(letter.body, letter.headers)
            except BadPost as error:
                log.warning("not a report", topic=letter.topic, reason=str(error))
            else:
                control.tally.codes[found.code] += 1
                heard(found)
            await each.ack()
