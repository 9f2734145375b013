"""save and restore: a queue put into a file, a line a message, and published again from there."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable
from pathlib import Path
from typing import Final

from penstock.core.errors import ConfigurationError
from penstock.pump.components.control import Control
from penstock.pump.components.workshop import open_workshop
from penstock.pump.config.settings import PumpSettings
from penstock.pump.flow.hearing import Heard
from penstock.pump.flow.letter import from_json, to_json

#: So many messages are written and synced together, and then acknowledged.
BATCH: Final = 500
#: So many announcements are under way at a time.
UNDER_WAY: Final = 1000


async def save(settings: PumpSettings, control: Control | None = None) -> int:
    """Take messages from the queue until it is quiet; how many. The file is added to."""
    control = control or Control()
    path = _file(settings)
    saved = 0
    async with open_workshop(settings) as shop:
        hearing = await shop.hearing()
        control.ready.set()
        batch: list[Heard] = []
        while not control.stop.is_set():
            try:
                async with asyncio.timeout(settings.idle):
                    batch += await hearing.receive()
            except TimeoutError:
                break
            if len(batch) >= min(BATCH, settings.prefetch):
                saved += await _write(path, batch)
        saved += await _write(path, batch)
    return saved


async def restore(settings: PumpSettings) -> int:
    """Publish all that was saved, as it was; how many. The file is left as it is."""
    path = _file(settings)
    sent = 0
    under_way: deque[Awaitable[None]] = deque()
    async with open_workshop(settings) as shop:
        announcing = await shop.announcing()
        with path.open(encoding="utf-8") as lines:
            while batch := await asyncio.to_thread(lines.readlines, 1 << 16):
                for line in batch:
                    if line.strip():
                        repeating = announcing.repeat(from_json(line))
                        under_way.append(asyncio.create_task(repeating))
                        sent += 1
                    while len(under_way) > UNDER_WAY:
                        await under_way.popleft()
        while under_way:
            await under_way.popleft()
    return sent


async def _write(path: Path, batch: list[Heard]) -> int:
    """On the disk first, and acknowledged then."""
    if not batch:
        return 0
    await asyncio.to_thread(_append, path, [to_json(each.letter) for each in batch])
    count = len(batch)
    for heard in batch:
        await heard.ack()
    batch.clear()
    return count


def _append(path: Path, lines: list[str]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())


def _file(settings: PumpSettings) -> Path:
    if settings.file is None:
        raise ConfigurationError(f"{settings.component} needs a file")
    return settings.file
