"""Changes of jobs as they happen, to any number of watchers.

The database tells that there is news; one reading of it serves all watchers of the process. A
watcher that is slow is not sent everything in between: of each job it gets the latest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.sql import SQL, Identifier

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock_jobs.history.repository import CHANNEL, JobRepository
from penstock_jobs.model import JobRecord

log = get_logger(__name__)

_READ: Final = 1_000
#: Without a word from the database we look ourselves: the connection may be gone unnoticed.
_POLL_SECONDS: Final = 15.0
_RETRY_SECONDS: Final = 1.0


class JobChangeWatcher:
    """What one who watches has not taken yet."""

    def __init__(self, identity: str | None) -> None:
        self.identity = identity
        self._latest: dict[str, JobRecord] = {}
        self._news = asyncio.Event()

    def tell(self, record: JobRecord) -> None:
        if self.identity is None or record.id == self.identity:
            self._latest.pop(record.id, None)  # in the order of the last change
            self._latest[record.id] = record
            self._news.set()

    async def next(self) -> JobRecord:
        while not self._latest:
            self._news.clear()
            await self._news.wait()
        return self._latest.pop(next(iter(self._latest)))

    async def __aiter__(self) -> AsyncIterator[JobRecord]:
        while True:
            yield await self.next()


class JobChangeFeed:
    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository
        self._seen = 0
        self._watchers: set[JobChangeWatcher] = set()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._seen = await asyncio.to_thread(self._repository.last_revision)
        self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @contextmanager
    def watcher(self, identity: str | None = None) -> Iterator[JobChangeWatcher]:
        """Of one job or of all; of what is told from now on."""
        watcher = JobChangeWatcher(identity)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    async def _follow(self) -> None:
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(
                    self._repository.url, autocommit=True, application_name="penstock jobs"
                )
                async with connection:
                    await connection.execute(SQL("LISTEN {}").format(Identifier(CHANNEL)))
                    await self._read()
                    await self._listen(connection)
            except (psycopg.Error, OSError, PenstockError) as error:
                log.warning("changes of jobs are waited for", reason=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    async def _listen(self, connection: psycopg.AsyncConnection[Any]) -> None:
        while True:
            async for _ in connection.notifies(timeout=_POLL_SECONDS, stop_after=1):
                pass
            await self._read()

    async def _read(self) -> None:
        while True:
            records = await asyncio.to_thread(self._repository.since, self._seen, _READ)
            for record in records:
                self._seen = max(self._seen, record.revision)
                for watcher in tuple(self._watchers):
                    watcher.tell(record)
            if len(records) < _READ:
                return
