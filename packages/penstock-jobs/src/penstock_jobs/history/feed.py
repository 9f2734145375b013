"""Changes of jobs, for any number of watchers.

PostgreSQL notifies about changes; one query serves all watchers of the process. A slow watcher gets
the latest record of each job, not every change in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg.sql import SQL, Identifier

from penstock.core.errors import PenstockError
from penstock.core.retry import RetryPolicy, retry_async
from penstock_jobs.history.repository import CHANNEL, JobRepository
from penstock_jobs.model import JobRecord

_BATCH: Final = 1_000
#: Seconds without a notification after which the database is polled: the connection may be dead.
_POLL_SECONDS: Final = 15.0
_RETRIES: Final = RetryPolicy.fixed(1.0)


class JobChangeWatcher:
    """The latest records that the consumer has not read yet."""

    def __init__(self, identity: str | None, owner: str | None = None) -> None:
        self.identity = identity
        self.owner = owner
        self._latest: dict[str, JobRecord] = {}
        self._changed = asyncio.Event()

    def add(self, record: JobRecord) -> None:
        if self.identity in (None, record.id) and self.owner in (None, record.owner):
            self._latest.pop(record.id, None)  # in the order of the last change
            self._latest[record.id] = record
            self._changed.set()

    async def next_batch(self) -> list[JobRecord]:
        while not self._latest:
            self._changed.clear()
            await self._changed.wait()
        batch, self._latest = self._latest, {}
        return list(batch.values())

    async def __aiter__(self) -> AsyncIterator[JobRecord]:
        while True:
            for record in await self.next_batch():
                yield record


class JobChangeFeed:
    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository
        self._seen = 0
        self._watchers: set[JobChangeWatcher] = set()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._seen = await asyncio.to_thread(self._repository.last_revision)
        self._task = asyncio.create_task(self._follow_forever())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @contextmanager
    def watcher(
        self, identity: str | None = None, owner: str | None = None
    ) -> Iterator[JobChangeWatcher]:
        """Watches one job or all, or those of an owner, from now on."""
        watcher = JobChangeWatcher(identity, owner)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    async def _follow_forever(self) -> None:
        errors = (psycopg.Error, OSError, PenstockError)
        await retry_async(self._follow, _RETRIES, lambda error: isinstance(error, errors))

    async def _follow(self) -> None:
        connection = await psycopg.AsyncConnection.connect(
            self._repository.url, autocommit=True, application_name="penstock jobs"
        )
        async with connection:
            await connection.execute(SQL("LISTEN {}").format(Identifier(CHANNEL)))
            while True:
                await self._read()
                async for _ in connection.notifies(timeout=_POLL_SECONDS, stop_after=1):
                    pass

    async def _read(self) -> None:
        while True:
            records = await asyncio.to_thread(self._repository.since, self._seen, _BATCH)
            for record in records:
                self._seen = max(self._seen, record.revision)
                for watcher in tuple(self._watchers):
                    watcher.add(record)
            if len(records) < _BATCH:
                return
