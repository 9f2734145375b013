"""Changes of jobs, handed to all pages that are open.

One listener asks for all. What changes often is handed on a few times a second, as it last was:
a thousand jobs that end in a second are one update of a page, not a thousand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock_jobs.model import JobRecord
from penstock_jobs.service import JobBackend

log = get_logger(__name__)

RecordListener = Callable[[Sequence[JobRecord]], None]

FLUSH_SECONDS: Final = 0.15
_RETRY_SECONDS: Final = 1.0


class PageFeed:
    def __init__(self, backend: JobBackend) -> None:
        self._backend = backend
        self._listeners: list[RecordListener] = []
        self._news: dict[str, JobRecord] = {}
        self._some = asyncio.Event()

    def listen(self, listener: RecordListener) -> Callable[[], None]:
        """Returns what ends it."""
        self._listeners.append(listener)

        def leave() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return leave

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._hear()), asyncio.create_task(self._tell())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _hear(self) -> None:
        last: int | None = None
        while True:
            try:
                async for record in self._backend.watch_all(last):
                    last = record.revision
                    self._news[record.id] = record
                    self._some.set()
            except (PenstockError, ConnectionError) as error:
                log.warning("changes of jobs are not heard", error=str(error))
            await asyncio.sleep(_RETRY_SECONDS)

    async def _tell(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            news, self._news = tuple(self._news.values()), {}
            for listener in tuple(self._listeners):
                try:
                    listener(news)
                except Exception as error:  # a page that cannot be updated must not stop others
                    log.error("page could not be updated", exc_info=error)
            await asyncio.sleep(FLUSH_SECONDS)
