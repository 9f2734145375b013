"""What all components that hear posts have in common: a consumer around their work."""

from __future__ import annotations

from penstock.pump.components.control import Control
from penstock.pump.components.readings import dialect
from penstock.pump.components.workshop import Workshop
from penstock.pump.flow.consumer import Consumer, Work


async def consume(shop: Workshop, work: Work, control: Control, *, retrying: bool = True) -> None:
    consumer = Consumer(
        work,
        retries=await shop.retries() if retrying else None,
        limits=shop.limits(),
        tell=await shop.reporting(),
        dialect=dialect(shop.settings),
    )
    control.tally = consumer.tally
    inflows = await shop.inflows()
    control.ready.set()
    await consumer.run(inflows, control.stop)
