"""A job in a worker: its stages, the legal transitions between them, and the registry of ids."""

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
from penstock_jobs.queue.worker_connection import JobDelivery, JobMessage


class JobStage(Enum):
    CHECKING = 0  #: The history is asked whether the job is done or runs on another worker.
    WAITING = 1  #: The job waits for a slot.
    RUNNING = 2  #: An executor works on an attempt.
    SETTLING = 3  #: The response and the acknowledgement are on their way to the broker.
    UNCONFIRMED = 4  #: The connection closed before the broker confirmed the settlement.
    CLOSED = 5  #: The worker has settled, requeued or lost the request.


#: Every legal change of a job's stage. A job that ends while it waits was cancelled.
TRANSITIONS: Final = {
    JobStage.CHECKING: {JobStage.WAITING, JobStage.SETTLING, JobStage.CLOSED},
    JobStage.WAITING: {JobStage.CHECKING, JobStage.RUNNING, JobStage.SETTLING, JobStage.CLOSED},
    JobStage.RUNNING: {JobStage.SETTLING, JobStage.CLOSED},
    JobStage.SETTLING: {JobStage.UNCONFIRMED, JobStage.CLOSED},
    JobStage.UNCONFIRMED: {JobStage.SETTLING, JobStage.CLOSED},
    JobStage.CLOSED: set[JobStage](),
}


#: Characters of output in one message.
_MAX_OUTPUT: Final = 64 * 1024


class OutputBuffer:
    """What a job has printed and no message has carried yet; of too much the end is stored."""

    __slots__ = ("_pieces", "_size", "_start")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0
        self._start = 0  # characters taken before

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self._size += len(text)
        if self._size > 2 * _MAX_OUTPUT:
            kept = "".join(self._pieces)[-_MAX_OUTPUT:]
            self._start += self._size - len(kept)
            self._pieces, self._size = [kept], len(kept)

    def take(self) -> tuple[str, int] | tuple[None, None]:
        """The output and the number of characters before it."""
        if not self._pieces:
            return None, None
        text, start = "".join(self._pieces), self._start
        self._start += len(text)
        self._pieces, self._size = [], 0
        return text, start


@dataclass(slots=True, eq=False)
class WorkerJob:
    request: JobRequest
    format: MessageFormat
    properties: RequestProperties
    delivery: JobDelivery
    stage: JobStage = JobStage.WAITING
    attempt: Attempt | None = None
    started: float = 0.0  #: by the loop's clock
    observed_since: float | None = None  #: since when the attempt is known to run
    start: datetime | None = None
    announced: bool = False  #: a progress message was published
    share: float = 0.0
    finish: datetime | None = None
    results: tuple[VoteResult, ...] = ()
    output: OutputBuffer = field(default_factory=OutputBuffer)
    cancelled: bool = False
    exceeded: float = 0.0  #: the time limit that is over, in seconds
    #: The response, stored until the broker confirms it.
    messages: list[JobMessage] = field(default_factory=list)
    final: bool = False  #: whether that is the final response
    _digest: bytes = field(default=b"", init=False)

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def attempt_number(self) -> int:
        return self.properties.attempt

    @property
    def digest(self) -> bytes:
        """Distinguishes requests of the same id; computed on first use, usually after the work."""
        self._digest = self._digest or digest(self.delivery.body)
        return self._digest

    def move(self, stage: JobStage) -> None:
        if stage not in TRANSITIONS[self.stage]:
            raise RuntimeError(f"job {self.id}: no transition {self.stage.name} → {stage.name}")
        self.stage = stage


#: Settled jobs to remember: enough to recognise a request that was published twice.
_MAX_SETTLED: Final = 10_000
#: Unconfirmed responses to store in case their requests are redelivered.
_MAX_UNCONFIRMED: Final = 10_000


class RequestMatch(Enum):
    """How a request relates to known requests of the same id."""

    NEW = 0
    REDELIVERED = 1  #: the same request, whose delivery was lost
    COPY = 2  #: the same request once more: one response serves both
    CONFLICT = 3  #: another request with an id in use
    ELSEWHERE = 4  #: the same request, running on another worker


class JobRegistry:
    """Jobs by id: those in work, those with an unconfirmed response, those settled recently."""

    def __init__(self, on_release: Callable[[WorkerJob], None] = lambda _: None) -> None:
        """`on_release` is called for jobs that another worker may take."""
        self._on_release = on_release
        self.jobs: dict[str, WorkerJob] = {}
        self._settled: dict[str, tuple[int, bytes]] = {}  # run, digest
        self._unconfirmed: dict[str, WorkerJob] = {}

    def match(self, job: WorkerJob, epoch: int) -> RequestMatch:
        known = self.jobs.get(job.id)
        if known is not None:
            if known.stage is JobStage.SETTLING and _is_later(job, known):
                return RequestMatch.NEW  # the confirm of its predecessor has not arrived yet
            if known.properties.run != job.properties.run or known.digest != job.digest:
                return RequestMatch.CONFLICT
            lost = known.delivery.epoch != epoch or known.stage is JobStage.UNCONFIRMED
            return RequestMatch.REDELIVERED if lost else RequestMatch.COPY
        run, settled_digest = self._settled.get(job.id, (0, b""))
        if job.properties.run > run:
            return RequestMatch.NEW
        return RequestMatch.COPY if settled_digest == job.digest else RequestMatch.CONFLICT

    def add(self, job: WorkerJob) -> None:
        self.jobs[job.id] = job

    def close(self, job: WorkerJob) -> None:
        job.move(JobStage.CLOSED)
        self._on_release(job)
        if self.jobs.get(job.id) is job:
            del self.jobs[job.id]
        if self._unconfirmed:
            self._unconfirmed.pop(job.id, None)

    def mark_unconfirmed(self, job: WorkerJob) -> None:
        """Store the response for a redelivery. Beyond the limit the oldest is forgotten, and its
        job runs again if the request is redelivered."""
        job.move(JobStage.UNCONFIRMED)
        self._on_release(job)  # the request may be redelivered to another worker
        self._unconfirmed[job.id] = job
        if len(self._unconfirmed) > _MAX_UNCONFIRMED:
            self.close(next(iter(self._unconfirmed.values())))

    def mark_settling(self, job: WorkerJob) -> None:
        """Its request was redelivered, so the stored response is sent again."""
        job.move(JobStage.SETTLING)
        self._unconfirmed.pop(job.id, None)

    def mark_settled(self, job: WorkerJob) -> None:
        self.close(job)
        if job.final:
            self._settled[job.id] = job.properties.run, job.digest
            if len(self._settled) > _MAX_SETTLED:
                del self._settled[next(iter(self._settled))]


def _is_later(job: WorkerJob, known: WorkerJob) -> bool:
    """Whether it is the next attempt or a new run."""
    later, earlier = job.properties, known.properties
    return (later.run, later.attempt) > (earlier.run, earlier.attempt)
