"""Names on the disk: a folder is synced once for all files that got their names in it meanwhile.

A file whose content is on the disk is not safe before its name is. Files come many at a time, and
often to the same folder: whoever comes while it is being synced shares the next sync with all who
do.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from penstock.pump.threads import Hands


class Folders:
    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._next: dict[Path, asyncio.Future[None]] = {}  #: waiting for a sync that has not begun
        self._syncing: dict[Path, asyncio.Task[None]] = {}

    async def synced(self, folder: Path) -> None:
        """Returns when the names that were in it before this call are on the disk."""
        waiting = self._next.get(folder)
        if waiting is None:
            waiting = self._next[folder] = asyncio.get_running_loop().create_future()
            if folder not in self._syncing:
                self._syncing[folder] = asyncio.create_task(self._sync(folder))
        await asyncio.shield(waiting)

    async def _sync(self, folder: Path) -> None:
        while (waiting := self._next.pop(folder, None)) is not None:
            try:
                await self._hands.do(sync_folder, folder)
            except OSError as error:
                waiting.set_exception(error)
            else:
                waiting.set_result(None)
        del self._syncing[folder]


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
