"""The engine with one worker for the length of a measurement."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from penstock_hives.server.master import Master
from penstock_hives.server.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class Running:
    port: int
    worker: int  #: its process


@asynccontextmanager
async def engine(name: str, **options: Any) -> AsyncIterator[Running]:
    settings = EngineSettings(
        application=f"benchmarks.hives.applications:{name}",
        options=options,
        port=0,
        workers=1,
        linger=0.0,
        drain=5.0,
    )
    master = Master(lambda: settings)
    stop = asyncio.Event()
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(master.run(stop, asyncio.Event(), address.set_result))
    try:
        waited: set[asyncio.Future[Any]] = {running, address}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        url = await address
        assert master.generation is not None
        pid = master.generation.slots[0].pid
        assert pid is not None
        yield Running(int(url.rpartition(":")[2]), pid)
    finally:
        stop.set()
        await running
