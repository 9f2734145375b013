"""What the database knows of requests before they are begun: which are answered, and which another
worker is at.

Asked for those that may be: handed out again after a crash, or long enough for the question not to
matter. An attempt is claimed before it begins, and the claim is given up when its answer is in the
history: of the workers that share a database one is at a request. Without a database, and while it
is away, a worker goes by its own memory.
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

#: Over in a moment: done twice they cost less than the question.
_SHORT: Final = frozenset(("call", "fake"))


class HistoryCheck:
    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository
        self._claims = AttemptLocks(repository.url)
        self._held: dict[WorkerJob, int] = {}
        self._given_up: list[tuple[int, JobChange | None]] = []
        self._task: asyncio.Task[None] | None = None

    def concerns(self, job: WorkerJob) -> bool:
        return job.delivery.redelivered or job.request.type not in _SHORT

    async def look_up(self, jobs: Sequence[WorkerJob]) -> dict[str, RequestMatch]:
        """Of those that are known; a database that is away knows of none."""
        keys = {
            job: attempt_lock_key(
                job.id, job.request_properties.run, job.request_properties.attempt
            )
            for job in jobs
        }
        try:
            # First the claims: what another gives up after that is in the history.
            ours = await asyncio.to_thread(self._claims.claim, list(keys.values()))
            known = await asyncio.to_thread(self._repository.known, [job.id for job in jobs])
        except (PenstockError, psycopg.Error) as error:
            log.warning("work begins without a look at the history", reason=str(error))
            return {}
        found: dict[str, RequestMatch] = {}
        for job, key in keys.items():
            if key in ours:
                self._held[job] = key
            else:
                found[job.id] = RequestMatch.ELSEWHERE
            if job.id in known:
                run, state, asked = known[job.id]
                if asked is not None and asked != job.digest:
                    found[job.id] = RequestMatch.OTHER
                elif state.final and run >= job.request_properties.run:
                    found[job.id] = RequestMatch.COPY
        return found

    def release(self, job: WorkerJob) -> None:
        """Somebody else may have it; if it is answered, that is in the history first."""
        key = self._held.pop(job, None)
        if key is None:
            return
        change = None
        if job.final and job.messages:
            answer = job.messages[0]
            change = from_response(answer.body, answer.said, datetime.now(UTC))
            if change is not None:  # it may be there before its request
                change = replace(change, digest=job.digest)
        self._given_up.append((key, change))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._give_up())

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(self._claims.close)

    async def _give_up(self) -> None:
        while self._given_up:
            batch, self._given_up = self._given_up, []
            try:
                changes = [change for _, change in batch if change is not None]
                await asyncio.to_thread(self._repository.add, changes)
                await asyncio.to_thread(self._claims.release, [key for key, _ in batch])
            except (PenstockError, psycopg.Error) as error:
                log.warning("claims end with their session", reason=str(error))
                await asyncio.to_thread(self._claims.close)


# Which worker is at which attempt of a job, as locks of the database that end with their session.
#
# A worker that is killed loses its session, and with it all its claims: nothing has to expire. One
# that loses the database goes on without claims. Blocking; those on a loop call it in a thread.

_CONNECT_SECONDS: Final = 10


def attempt_lock_key(identity: str, run: int, attempt: int) -> int:
    text = f"penstock job\0{identity}\0{run}\0{attempt}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), signed=True)


class AttemptLocks:
    """One session of its own; raises `psycopg.Error` where the database is away."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._lock = threading.Lock()

    def claim(self, keys: Sequence[int]) -> set[int]:
        """Those that are ours now; the others are another worker's. Each is claimed once."""
        with self._lock:
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
        with self._lock:
            if self._connection is not None and not self._connection.closed:
                self._connection.execute(
                    "SELECT pg_advisory_unlock(key) FROM unnest(%s::bigint[]) AS held (key)",
                    (list(keys),),
                )

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
