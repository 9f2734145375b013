"""Keeps the window's edition young: one a minute, made once for all workers.

A worker takes the edition that is in the cache if it is young enough. Else it takes the lock in the
database, looks again, for whoever had the lock may have made one, and makes it. So workers that
share memcached make one edition a minute together, and workers that have a cache each make theirs
one after the other. The database is never asked because somebody outside asked.

When it does not answer, the window goes on showing what it has, and an old edition from the cache
is better than none.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.hives.app.live.feed import Document
from penstock.hives.app.public.editions import Edition, Editions, Head, age
from penstock.hives.publications import KEYS
from penstock.store.cache import Cache, SingleFlight

log = get_logger(__name__)

EVERY_SECONDS: Final = 60.0
#: After a failure.
RETRY_SECONDS: Final = 5.0
#: How often figures are looked up in the cache while none are heard.
CATCH_UP_SECONDS: Final = 10.0


class Refresher:
    """Of one worker."""

    def __init__(
        self,
        show: Callable[[Edition], None],
        read: Callable[[], Awaitable[Edition]],
        alone: Callable[[], AbstractAsyncContextManager[object]],
        cache: Cache | None,
        clock: Callable[[], datetime],
        every: float = EVERY_SECONDS,
        retry: float = RETRY_SECONDS,
    ) -> None:
        """`cache` is one that other workers have as well; without it, this one makes its own."""
        self._show = show
        self._read = read
        self._alone = alone
        self._editions = None if cache is None else Editions(cache)
        self._clock = clock
        self._every = every
        self._retry = retry
        self._flight: SingleFlight[None] = SingleFlight()
        self._shown: Head | None = None
        self.made = 0  #: editions that were made here

    async def run(self) -> None:
        while True:
            pause = self._every
            try:
                await self.refresh()
            except (PenstockError, OSError) as error:
                pause = self._retry
                log.warning("edition is not renewed", reason=str(error), again_in=pause)
            # Not all workers at once.
            await asyncio.sleep(pause * random.uniform(0.9, 1.0))

    async def refresh(self) -> None:
        """Show an edition that is young; raises what keeps it from being made."""
        await self._flight.run("refresh", self._refresh)

    async def _refresh(self) -> None:
        head = await self._latest()
        if await self._shows(head):
            return
        try:
            async with self._alone():
                if not await self._shows(await self._latest()):
                    await self._make()
        except (PenstockError, OSError):
            if self._shown is None and head is not None:
                await self._take(head)  # old, and better than none
            raise

    async def _latest(self) -> Head | None:
        return self._shown if self._editions is None else await self._editions.latest()

    async def _shows(self, head: Head | None) -> bool:
        """Whether this edition is young, and now shown."""
        if head is None or age(head, self._clock()) >= self._every:
            return False
        return await self._take(head)

    async def _take(self, head: Head) -> bool:
        if head == self._shown or self._editions is None:
            return True
        edition = await self._editions.read(head)
        if edition is None:
            return False
        self._show(edition)
        self._shown = head
        return True

    async def _make(self) -> None:
        edition = await self._read()
        self._show(edition)
        self.made += 1
        if self._editions is None:
            self._shown = Head(edition.as_of.timestamp(), 0, 0)
        else:
            self._shown = await self._editions.write(edition)


class CatchingUp:
    """Figures from the cache, where the pipeline keeps them too, while none are heard."""

    def __init__(
        self,
        cache: Cache,
        hives: Callable[[], list[int]],
        heard: Callable[[Document], None],
        listening: Callable[[], bool],
        every: float = CATCH_UP_SECONDS,
    ) -> None:
        self._cache = cache
        self._hives = hives
        self._heard = heard
        self._listening = listening
        self._every = every

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            if not self._listening():
                await self.look()

    async def look(self) -> None:
        keys = [KEYS.key("hive", hive) for hive in self._hives()]
        for text in (await self._cache.get_many(keys)).values():
            try:
                document = json.loads(text)
                int(document["hive"]), int(document["version"])
            except (ValueError, KeyError, TypeError):
                continue  # another's value under our key: no figure
            self._heard(document)
