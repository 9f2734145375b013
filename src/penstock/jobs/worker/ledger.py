"""What the database knows of requests before they are begun: which are answered, and which another
worker is at.

Asked for those that may be: handed out again after a crash, or long enough for the question not to
matter. An attempt is claimed before it begins, and the claim is given up when its answer is in the
history: of the workers that share a database one is at a request. Without a database, and while it
is away, a worker goes by its own memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import psycopg

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.jobs.history.changes import Change, from_response
from penstock.jobs.history.shelf import Shelf
from penstock.jobs.worker.claims import Claims, claim_key
from penstock.jobs.worker.job import Job
from penstock.jobs.worker.memory import Meeting

log = get_logger(__name__)

#: Over in a moment: done twice they cost less than the question.
_SHORT: Final = frozenset(("call", "fake"))


class Ledger:
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._claims = Claims(shelf.url)
        self._held: dict[Job, int] = {}
        self._given_up: list[tuple[int, Change | None]] = []
        self._task: asyncio.Task[None] | None = None

    def concerns(self, job: Job) -> bool:
        return job.delivery.redelivered or job.request.type not in _SHORT

    async def look_up(self, jobs: Sequence[Job]) -> dict[str, Meeting]:
        """Of those that are known; a database that is away knows of none."""
        keys = {job: claim_key(job.id, job.envelope.run, job.envelope.attempt) for job in jobs}
        try:
            # First the claims: what another gives up after that is in the history.
            ours = await asyncio.to_thread(self._claims.claim, list(keys.values()))
            known = await asyncio.to_thread(self._shelf.known, [job.id for job in jobs])
        except (PenstockError, psycopg.Error) as error:
            log.warning("work begins without a look at the history", reason=str(error))
            return {}
        found: dict[str, Meeting] = {}
        for job, key in keys.items():
            if key in ours:
                self._held[job] = key
            else:
                found[job.id] = Meeting.ELSEWHERE
            if job.id in known:
                run, state, asked = known[job.id]
                if asked is not None and asked != job.digest:
                    found[job.id] = Meeting.OTHER
                elif state.final and run >= job.envelope.run:
                    found[job.id] = Meeting.COPY
        return found

    def release(self, job: Job) -> None:
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
                await asyncio.to_thread(self._shelf.add, changes)
                await asyncio.to_thread(self._claims.release, [key for key, _ in batch])
            except (PenstockError, psycopg.Error) as error:
                log.warning("claims end with their session", reason=str(error))
                await asyncio.to_thread(self._claims.close)
