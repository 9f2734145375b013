"""A request in the hands of a worker, from when it was taken to when its answer is safe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final

from penstock_jobs.executors.executor import Attempt
from penstock_jobs.formats import MessageFormat
from penstock_jobs.history.changes import digest
from penstock_jobs.model import JobRequest, VoteResult
from penstock_jobs.queue.properties import RequestProperties
from penstock_jobs.queue.worker_connection import CancelRequest, JobDelivery, JobMessage


class JobStage(Enum):
    WAITING = 0  #: for room here
    RUNNING = 1
    ANSWERED = 2  #: the answer is on its way, with the acknowledgement
    UNSURE = 3  #: the connection went before the broker's word: the request may come again


@dataclass(slots=True, eq=False)
class WorkerJob:
    request: JobRequest
    form: MessageFormat
    request_properties: RequestProperties
    delivery: JobDelivery
    stage: JobStage = JobStage.WAITING
    attempt: Attempt | None = None
    begun: float = 0.0  #: by the loop's clock
    seen: float | None = None  #: since when it is known to be underway
    start: datetime | None = None
    announced: bool = False
    share: float = 0.0
    finish: datetime | None = None
    results: tuple[VoteResult, ...] = ()
    cancelled: bool = False
    #: What answers it, kept until that is known to be safe.
    messages: list[JobMessage] = field(default_factory=list)
    #: Whether that was the last word about it.
    final: bool = False
    _digest: bytes = field(default=b"", init=False)

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def digest(self) -> bytes:
        """Tells it from others of the same id; made when it is first asked for, which as a rule is
        after the work."""
        self._digest = self._digest or digest(self.delivery.body)
        return self._digest


@dataclass(frozen=True, slots=True)
class AnsweredJob:
    """What is remembered of one that was answered."""

    run: int
    digest: bytes


# What a worker knows of ids: which it is at, and which it has answered not long ago.

#: Answers that are remembered: long enough for a copy that was sent twice to come by.
_MAX_ANSWERED: Final = 10_000
#: Answers that may not have arrived, kept in case their requests come again.
_MAX_UNSURE: Final = 10_000
#: Wishes to cancel what did not come by yet.
_MAX_CANCEL_REQUESTS: Final = 100_000


class RequestMatch(Enum):
    """What a request is to one with the same id."""

    NEW = 0
    AGAIN = 1  #: handed out again: the same request, whose delivery was lost
    COPY = 2  #: the same request once more: one answer serves both
    OTHER = 3  #: another request, with an id that is taken
    ELSEWHERE = 4  #: the same request, which another worker is at


class JobRegistry:
    def __init__(self, dropped: Callable[[WorkerJob], None] = lambda _: None) -> None:
        """`dropped` hears of those that somebody else may have."""
        self._dropped = dropped
        self.jobs: dict[str, WorkerJob] = {}
        self._past: dict[str, AnsweredJob] = {}
        self._unsure: dict[str, WorkerJob] = {}
        self._wishes: dict[str, CancelRequest] = {}

    def meet(self, job: WorkerJob, epoch: int) -> RequestMatch:
        there = self.jobs.get(job.id)
        if there is not None:
            if there.stage is JobStage.ANSWERED and _later(job, there):
                return RequestMatch.NEW  # the word that its answer is safe is still on its way
            if (
                there.digest != job.digest
                or there.request_properties.run != job.request_properties.run
            ):
                return RequestMatch.OTHER
            lost = there.delivery.epoch != epoch or there.stage is JobStage.UNSURE
            return RequestMatch.AGAIN if lost else RequestMatch.COPY
        past = self._past.get(job.id)
        if past is None or job.request_properties.run > past.run:
            return RequestMatch.NEW
        return RequestMatch.COPY if past.digest == job.digest else RequestMatch.OTHER

    def keep(self, job: WorkerJob) -> None:
        self.jobs[job.id] = job

    def drop(self, job: WorkerJob) -> None:
        """It is not ours any more."""
        self._dropped(job)
        if self.jobs.get(job.id) is job:
            del self.jobs[job.id]
        if self._unsure:
            self._unsure.pop(job.id, None)

    def unsure(self, job: WorkerJob) -> None:
        """The connection went before it was known whether its answer is safe.

        The oldest of too many is forgotten: if its request comes again it was not safe, and is
        done again."""
        job.stage = JobStage.UNSURE
        self._dropped(job)  # its request may come to another, who is not to wait for us
        self._unsure[job.id] = job
        if len(self._unsure) > _MAX_UNSURE:
            self.drop(self._unsure[next(iter(self._unsure))])

    def answered(self, job: WorkerJob) -> None:
        """Its answer is safe."""
        self.drop(job)
        if job.final:
            self._past[job.id] = AnsweredJob(job.request_properties.run, job.digest)
            if len(self._past) > _MAX_ANSWERED:
                del self._past[next(iter(self._past))]

    def cancel_request(self, cancel_request: CancelRequest) -> None:
        self._wishes.pop(cancel_request.cancel, None)
        self._wishes[cancel_request.cancel] = cancel_request
        if len(self._wishes) > _MAX_CANCEL_REQUESTS:
            del self._wishes[next(iter(self._wishes))]

    def unwanted(self, job: WorkerJob) -> bool:
        """Whether somebody wished it cancelled."""
        if not self._wishes or (cancel_request := self._wishes.get(job.id)) is None:
            return False
        return cancel_request.holds(job.request_properties.run, job.request_properties.submitted)


def _later(job: WorkerJob, there: WorkerJob) -> bool:
    """Whether it is the next attempt, or was asked for again."""
    next_, last = job.request_properties, there.request_properties
    return (next_.run, next_.attempt) > (last.run, last.attempt)
