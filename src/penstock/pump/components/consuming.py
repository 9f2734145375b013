"""What all components that hear posts have in common: a consumer around their work."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.pump.components.control import Control
from penstock.pump.components.readings import dialect
from penstock.pump.components.workshop import Workshop
from penstock.pump.flow.consumer import Abandon, Consumer, Work
from penstock.pump.flow.hearing import Hearing

#: How often the broker is asked how much waits.
LOOK_SECONDS: Final = 5.0


async def consume(
    shop: Workshop,
    work: Work,
    control: Control,
    *,
    retrying: bool = True,
    abandon: Abandon | None = None,
) -> None:
    consumer = Consumer(
        work,
        retries=await shop.retries() if retrying else None,
        limits=shop.limits(),
        tell=await shop.reporting(),
        dialect=dialect(shop.settings),
        abandon=abandon,
    )
    control.tally = consumer.tally
    hearing = await shop.hearing()
    control.ready.set()
    looking = asyncio.create_task(_look(hearing, control))
    try:
        await consumer.run(hearing, control.stop)
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def _look(hearing: Hearing, control: Control) -> None:
    """How much waits at the broker; while it is away, nobody knows."""
    while True:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                control.tally.queued = await hearing.queued()
        except Exception:
            control.tally.queued = None
        await asyncio.sleep(LOOK_SECONDS)
