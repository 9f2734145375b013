"""The history as a second opinion on requests: which are answered, which run elsewhere.

It is asked about requests that may be known: redelivered ones, and those long enough for the query
not to matter. An attempt is locked before it starts, and unlocked after its response is in the
history, so of the workers that share a database one runs a request. Without a database, and while
it is unavailable, a worker relies on its own registry.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final

import psycopg

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock_jobs.history.changes import JobChange, from_response
from penstock_jobs.history.repository import JobRepository
from penstock_jobs.worker.job import RequestMatch, WorkerJob

log = get_logger(__name__)

#: Types so short that running them twice costs less than a query.
_SHORT: Final = frozenset(("call", "fake"))
_CONNECT_SECONDS: Final = 10


class HistoryCheck:
    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository
        self._locks = AttemptLocks(repository.url)
        self._held: dict[WorkerJob, int] = {}
        self._released: list[tuple[int, JobChange | None]] = []
        self._task: asyncio.Task[None] | None = None

    def concerns(self, job: WorkerJob) -> bool:
        return (
            job.delivery.redelivered or job.properties.scheduled or job.request.type not in _SHORT
        )

    async def check(self, jobs: Sequence[WorkerJob]) -> dict[str, RequestMatch]:
        """The known requests among these; none while the database is unavailable."""
        keys = {
            job: attempt_lock_key(job.id, job.properties.run, job.properties.attempt)
            for job in jobs
        }
        try:
            # Locks first: what another worker unlocks after that is in the history.
            acquired = await asyncio.to_thread(self._locks.acquire, list(keys.values()))
            known = await asyncio.to_thread(self._repository.known, [job.id for job in jobs])
        except (PenstockError, psycopg.Error) as error:
            log.warning("history check skipped", reason=str(error))
            return {}
        matches: dict[str, RequestMatch] = {}
        for job, key in keys.items():
            if key in acquired:
                self._held[job] = key
            else:
                matches[job.id] = RequestMatch.ELSEWHERE
            if job.id in known:
                run, state, digest = known[job.id]
                if digest is not None and digest != job.digest:
                    matches[job.id] = RequestMatch.CONFLICT
                elif state.final and run >= job.properties.run:
                    matches[job.id] = RequestMatch.COPY
        return matches

    def release(self, job: WorkerJob) -> None:
        """Unlock the attempt; a final response is written to the history first."""
        key = self._held.pop(job, None)
        if key is None:
            return
        change = None
        if job.final and job.messages:
            response = job.messages[0]
            change = from_response(response.body, response.properties, datetime.now(UTC))
            if change is not None:  # it may reach the history before its request
                change = replace(change, digest=job.digest)
        self._released.append((key, change))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._unlock())

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(self._locks.close)

    async def _unlock(self) -> None:
        while self._released:
            batch, self._released = self._released, []
            try:
                changes = [change for _, change in batch if change is not None]
                await asyncio.to_thread(self._repository.add, changes)
                await asyncio.to_thread(self._locks.release, [key for key, _ in batch])
            except (PenstockError, psycopg.Error) as error:
                log.warning("attempt lock release failed, session closed", reason=str(error))
                await asyncio.to_thread(self._locks.close)


def attempt_lock_key(identity: str, run: int, attempt: int) -> int:
    text = f"penstock job\0{identity}\0{run}\0{attempt}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), signed=True)


class AttemptLocks:
    """Advisory locks of the database on attempts, held by one session.

    They end with the session, so the locks of a killed worker need no expiry. Blocking; raises
    `psycopg.Error` while the database is unavailable.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._mutex = threading.Lock()

    def acquire(self, keys: Sequence[int]) -> set[int]:
        """The acquired keys; another worker holds the others."""
        with self._mutex:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(
                    self._url,
                    autocommit=True,
                    connect_timeout=_CONNECT_SECONDS,
                    application_name="penstock job worker",
                )
            rows = self._connection.execute(
                "SELECT key FROM unnest(%s::bigint[]) AS asked (key) "
                "WHERE pg_try_advisory_lock(key)",
                (list(keys),),
            ).fetchall()
        return {key for (key,) in rows}

    def release(self, keys: Iterable[int]) -> None:
        with self._mutex:
            if self._connection is not None and not self._connection.closed:
                self._connection.execute(
                    "SELECT pg_advisory_unlock(key) FROM unnest(%s::bigint[]) AS held (key)",
                    (list(keys),),
                )

    def close(self) -> None:
        with self._mutex:
            if self._connection is not None:
                self._connection.close()
