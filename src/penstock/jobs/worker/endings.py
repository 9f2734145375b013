"""What an attempt says, and what is made of it: progress, an answer, another attempt, a grave.

A job is answered once. The answer goes with the acknowledgement of its request, so that it is the
broker's who has both or neither; what was to be tried again waits there too.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final

from penstock.core.logs import get_logger
from penstock.jobs.history.records import JobState
from penstock.jobs.model import Result
from penstock.jobs.queue.carrier import Carrier, Outgoing, Settlement
from penstock.jobs.queue.envelope import again
from penstock.jobs.work.kind import Outcome, lasting, sentence
from penstock.jobs.worker.answers import Answers
from penstock.jobs.worker.figures import Figures
from penstock.jobs.worker.job import Job, Stage
from penstock.jobs.worker.places import Places
from penstock.jobs.worker.retrying import Backoff

log = get_logger(__name__)

CANCELLED: Final = "it was cancelled"


class Endings:
    def __init__(
        self,
        carrier: Carrier,
        answers: Answers,
        places: Places,
        figures: Figures,
        backoff: Backoff,
    ) -> None:
        self._carrier = carrier
        self._answers = answers
        self._places = places
        self._figures = figures
        self._backoff = backoff

    def told(
        self, job: Job, share: float, finish: datetime | None, results: tuple[Result, ...]
    ) -> None:
        if job.stage is Stage.RUNNING:
            job.share, job.finish, job.results = share, finish or job.finish, results
            job.announced = True
            self._carrier.tell(self._answers.progress(job))

    def announce(self, job: Job) -> None:
        """That it runs, if nothing was said of it yet."""
        if not job.announced:
            job.announced = True
            self._carrier.tell(self._answers.progress(job))

    def done(self, job: Job, outcome: Outcome) -> None:
        if job.stage is not Stage.RUNNING:
            return
        seconds = asyncio.get_running_loop().time() - job.begun
        self._places.took(seconds if outcome.seconds is None else outcome.seconds)
        self._figures.took(job.request.type, seconds)
        self._figures.done += 1
        self._answer(job, [self._answers.done(job, outcome)])

    def failed(self, job: Job, error: Exception) -> None:
        if job.stage is not Stage.RUNNING:
            return
        if job.cancelled:
            self.cancelled(job)
            return
        words = sentence(error)
        attempts = job.envelope.options.attempts or self._backoff.attempts
        if lasting(error) or job.envelope.attempt >= attempts:
            self._bury(job, words)
        else:
            self._retry(job, words)

    def cancelled(self, job: Job) -> None:
        self._figures.cancelled += 1
        self._answer(job, [self._answers.failed(job, JobState.CANCELLED, CANCELLED)])

    def _bury(self, job: Job, error: str) -> None:
        """It failed, for good."""
        self._figures.failed += 1
        log.warning("job failed", job=job.id, reason=error[:500])
        answer = self._answers.failed(job, JobState.FAILED, error)
        self._answer(job, [answer, self._answers.dead(job, error)])

    def _retry(self, job: Job, error: str) -> None:
        self._figures.retried += 1
        due, milliseconds = self._backoff.pause(job.envelope.attempt)
        log.warning("attempt failed", job=job.id, attempt=job.envelope.attempt, reason=error[:500])
        job.messages = [self._answers.progress(job, JobState.RETRYING, error)]
        said = again(job.delivery.said, job.envelope.attempt + 1, milliseconds)
        self._leave(job)
        self._carrier.delay(
            Settlement(job.delivery, job.messages, job),
            Outgoing("", "", job.delivery.body, said),
            due,
        )

    def _answer(self, job: Job, messages: list[Outgoing]) -> None:
        job.final = True
        job.messages = messages
        self._leave(job)
        self._carrier.settle(Settlement(job.delivery, messages, job))

    def _leave(self, job: Job) -> None:
        job.stage = Stage.ANSWERED
        job.attempt = None
        self._places.leave(job)


class JobReport:
    """Keeps `penstock.jobs.work.kind.Report` for one job."""

    __slots__ = ("_endings", "_job")

    def __init__(self, endings: Endings, job: Job) -> None:
        self._endings = endings
        self._job = job

    def told(
        self, share: float, finish: datetime | None = None, results: tuple[Result, ...] = ()
    ) -> None:
        self._endings.told(self._job, share, finish, results)

    def done(self, outcome: Outcome) -> None:
        self._endings.done(self._job, outcome)

    def failed(self, error: Exception) -> None:
        self._endings.failed(self._job, error)
