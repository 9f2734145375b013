"""What becomes of a request when it is taken: a job to begin, or an answer at once.

What cannot be understood, or has an id that is another's, is refused; what is there already is
acknowledged, and what was handed out to us before is joined to the job we have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.jobs.forms import read_request
from penstock.jobs.queue.carrier import Carrier, Delivery, Settlement
from penstock.jobs.queue.envelope import read_envelope, repeated
from penstock.jobs.worker.answers import Answers
from penstock.jobs.worker.figures import Figures
from penstock.jobs.worker.job import Job, Stage
from penstock.jobs.worker.ledger import Ledger
from penstock.jobs.worker.memory import Meeting, Memory

log = get_logger(__name__)

#: So long a request that another worker is at stays here before it is handed out again.
_ELSEWHERE_SECONDS: Final = 1.0


class Intake:
    def __init__(
        self,
        carrier: Carrier,
        types: Collection[str],
        memory: Memory,
        answers: Answers,
        figures: Figures,
        ledger: Ledger | None,
    ) -> None:
        self._carrier = carrier
        self._types = frozenset(types)
        self._memory = memory
        self._answers = answers
        self._figures = figures
        self._ledger = ledger

    def read(self, delivery: Delivery) -> Job | None:
        """The job, if it is new, which is remembered then; all else is answered."""
        try:
            request, form = read_request(delivery.body)
            envelope = read_envelope(delivery.said)
        except PenstockError as error:
            self._refuse(delivery, str(error))
            return None
        if request.type not in self._types:
            self._refuse(delivery, f"work of type {request.type!r} is not done here", request.id)
            return None
        job = Job(request, form, envelope, delivery)
        meeting = self._memory.meet(job, self._carrier.epoch)
        if meeting is Meeting.NEW:
            self._memory.keep(job)
            return job
        if meeting is Meeting.AGAIN:
            self._join(job)
        elif meeting is Meeting.COPY and job.id in self._memory.jobs:
            self._hold(job)
        else:
            self._turn_away(job, meeting)
        return None

    def doubts(self, job: Job) -> bool:
        """Whether the history should be asked before it is begun."""
        return self._ledger is not None and self._ledger.concerns(job)

    async def look_up(self, jobs: Sequence[Job]) -> list[Job]:
        """Those that are new to the history as well; the others are answered."""
        assert self._ledger is not None
        verdicts = await self._ledger.look_up(jobs)
        new: list[Job] = []
        for job in jobs:
            meeting = verdicts.get(job.id, Meeting.NEW)
            if job.delivery.epoch != self._carrier.epoch:
                self._memory.drop(job)  # it comes again
            elif job.stage is not Stage.WAITING:
                continue  # it was cancelled meanwhile
            elif meeting is Meeting.NEW:
                new.append(job)
            else:
                self._memory.drop(job)
                self._turn_away(job, meeting)
        return new

    def _give_back(self, delivery: Delivery) -> None:
        if delivery.epoch == self._carrier.epoch:
            self._carrier.give_back(delivery)

    def _join(self, job: Job) -> None:
        """The request of a job we have, handed out to us again."""
        there = self._memory.jobs[job.id]
        there.delivery = job.delivery
        if there.stage is Stage.UNSURE:
            there.stage = Stage.ANSWERED
            there.messages = [replace(each, said=repeated(each.said)) for each in there.messages]
            self._carrier.settle(Settlement(there.delivery, there.messages, there))

    def _hold(self, job: Job) -> None:
        """A copy of one we have; or the same, for not all protocols tell that a delivery was lost.
        Either way the newer of the two is held until the answer is safe."""
        self._figures.copies += 1
        there = self._memory.jobs[job.id]
        former, there.delivery = there.delivery, job.delivery
        if there.stage is not Stage.ANSWERED:  # else it goes with its answer
            self._carrier.settle(Settlement(former, ()))

    def _turn_away(self, job: Job, meeting: Meeting) -> None:
        if meeting is Meeting.ELSEWHERE and job.delivery.redelivered:
            # Perhaps the one request there is, which its worker has lost: it gets it again, or we
            # do, when that worker is gone or done.
            loop = asyncio.get_running_loop()
            loop.call_later(_ELSEWHERE_SECONDS, self._give_back, job.delivery)
        elif meeting in (Meeting.COPY, Meeting.ELSEWHERE):
            self._figures.copies += 1
            self._carrier.settle(Settlement(job.delivery, ()))
        else:
            self._refuse(job.delivery, f"the id {job.id!r} is another request's", job.id)

    def _refuse(self, delivery: Delivery, error: str, identity: str = "") -> None:
        self._figures.refused += 1
        log.info("request refused", kind=delivery.kind, reason=error)
        message = self._answers.refused(delivery, error, identity)
        self._carrier.settle(Settlement(delivery, [message]))
