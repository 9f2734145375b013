"""What the history knows of requests before they are begun: which have been answered already.

Asked for those that may have been: handed out again after a crash, or long enough for the question
not to matter. Without a history a worker goes by its own memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.jobs.history.shelf import Shelf
from penstock.jobs.worker.job import Job
from penstock.jobs.worker.memory import Meeting

log = get_logger(__name__)

#: Over in a moment: done twice they cost less than the question.
_SHORT: Final = frozenset(("call", "fake"))


class Ledger:
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def concerns(self, job: Job) -> bool:
        return job.delivery.redelivered or job.request.type not in _SHORT

    async def look_up(self, jobs: Sequence[Job]) -> dict[str, Meeting]:
        """Of those that are known; a database that is away knows of none."""
        try:
            known = await asyncio.to_thread(self._shelf.known, [job.id for job in jobs])
        except PenstockError as error:
            log.warning("work begins without a look at the history", reason=str(error))
            return {}
        found: dict[str, Meeting] = {}
        for job in jobs:
            if job.id in known:
                run, state, asked = known[job.id]
                if asked is not None and asked != job.digest:
                    found[job.id] = Meeting.OTHER
                elif state.final and run >= job.envelope.run:
                    found[job.id] = Meeting.COPY
        return found
