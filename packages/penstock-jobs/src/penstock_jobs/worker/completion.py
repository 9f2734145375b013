"""What an attempt says, and what is made of it: progress, an answer, another attempt, a grave.

A job is answered once. The answer goes with the acknowledgement of its request, so that it is the
broker's who has both or neither; what was to be tried again waits there too.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from penstock.core.logs import get_logger
from penstock_jobs.errors import JobFormatError
from penstock_jobs.executors.executor import JobOutcome, error_text, is_permanent
from penstock_jobs.formats import MessageFormat, write_response
from penstock_jobs.history.changes import digest
from penstock_jobs.model import ATTEMPTS, JobResponse, JobState, VoteResult
from penstock_jobs.queue.properties import (
    RequestProperties,
    ResponseProperties,
    dead_letter_properties,
    final_message_id,
    format_of,
    retry_properties,
    routing_key,
    write_response_properties,
)
from penstock_jobs.queue.topology import dead_name, response_name
from penstock_jobs.queue.worker_connection import (
    JobDelivery,
    JobMessage,
    JobSettlement,
    WorkerConnection,
)
from penstock_jobs.worker.job import JobStage, WorkerJob
from penstock_jobs.worker.metrics import WorkerMetrics
from penstock_jobs.worker.slots import JobSlots

log = get_logger(__name__)

CANCELLED: Final = "it was cancelled"


class JobCompletion:
    def __init__(
        self,
        worker_connection: WorkerConnection,
        response_writer: JobResponseWriter,
        job_slots: JobSlots,
        worker_metrics: WorkerMetrics,
        backoff: JobRetryPolicy,
    ) -> None:
        self._worker_connection = worker_connection
        self._response_writer = response_writer
        self._job_slots = job_slots
        self._worker_metrics = worker_metrics
        self._backoff = backoff

    def told(
        self, job: WorkerJob, share: float, finish: datetime | None, results: tuple[VoteResult, ...]
    ) -> None:
        if job.stage is JobStage.RUNNING:
            job.share, job.finish, job.results = share, finish or job.finish, results
            job.announced = True
            self._worker_connection.tell(self._response_writer.progress(job))

    def announce(self, job: WorkerJob) -> None:
        """That it runs, if nothing was said of it yet."""
        if not job.announced:
            job.announced = True
            self._worker_connection.tell(self._response_writer.progress(job))

    def done(self, job: WorkerJob, outcome: JobOutcome) -> None:
        if job.stage is not JobStage.RUNNING:
            return
        seconds = asyncio.get_running_loop().time() - job.begun
        self._job_slots.took(seconds if outcome.seconds is None else outcome.seconds)
        self._worker_metrics.took(job.request.type, seconds)
        self._worker_metrics.done += 1
        self._answer(job, [self._response_writer.done(job, outcome)])

    def failed(self, job: WorkerJob, error: Exception) -> None:
        if job.stage is not JobStage.RUNNING:
            return
        if job.cancelled:
            self.cancelled(job)
            return
        words = error_text(error)
        attempts = job.request_properties.options.attempts or self._backoff.attempts
        if is_permanent(error) or job.request_properties.attempt >= attempts:
            self._bury(job, words)
        else:
            self._retry(job, words)

    def cancelled(self, job: WorkerJob) -> None:
        self._worker_metrics.cancelled += 1
        self._answer(job, [self._response_writer.failed(job, JobState.CANCELLED, CANCELLED)])

    def _bury(self, job: WorkerJob, error: str) -> None:
        """It failed, for good."""
        self._worker_metrics.failed += 1
        log.warning("job failed", job=job.id, reason=error[:500])
        answer = self._response_writer.failed(job, JobState.FAILED, error)
        self._answer(job, [answer, self._response_writer.dead(job, error)])

    def _retry(self, job: WorkerJob, error: str) -> None:
        self._worker_metrics.retried += 1
        due, milliseconds = self._backoff.pause(job.request_properties.attempt)
        log.warning(
            "attempt failed", job=job.id, attempt=job.request_properties.attempt, reason=error[:500]
        )
        job.messages = [self._response_writer.progress(job, JobState.RETRYING, error)]
        said = retry_properties(job.delivery.said, job.request_properties.attempt + 1, milliseconds)
        self._leave(job)
        self._worker_connection.delay(
            JobSettlement(job.delivery, job.messages, job),
            JobMessage("", "", job.delivery.body, said),
            due,
        )

    def _answer(self, job: WorkerJob, messages: list[JobMessage]) -> None:
        job.final = True
        job.messages = messages
        self._leave(job)
        self._worker_connection.settle(JobSettlement(job.delivery, messages, job))

    def _leave(self, job: WorkerJob) -> None:
        job.stage = JobStage.ANSWERED
        job.attempt = None
        self._job_slots.leave(job)


class JobAttemptListener:
    """Keeps `penstock_jobs.executors.executor.AttemptListener` for one job."""

    __slots__ = ("_completion", "_job")

    def __init__(self, completion: JobCompletion, job: WorkerJob) -> None:
        self._completion = completion
        self._job = job

    def told(
        self, share: float, finish: datetime | None = None, results: tuple[VoteResult, ...] = ()
    ) -> None:
        self._completion.told(self._job, share, finish, results)

    def done(self, outcome: JobOutcome) -> None:
        self._completion.done(self._job, outcome)

    def failed(self, error: Exception) -> None:
        self._completion.failed(self._job, error)


# The responses of a worker, as messages.


class JobResponseWriter:
    """`worker` is who says it; `exchange` replaces the usual one of the responses."""

    def __init__(self, worker: str, exchange: str | None = None) -> None:
        self._worker = worker
        self._exchange = exchange

    def progress(
        self, job: WorkerJob, state: JobState = JobState.RUNNING, error: str = ""
    ) -> JobMessage:
        response = JobResponse(
            job.id,
            job.request.type,
            # 1 is the last there will be: what has not ended is never quite there.
            min(job.share, 0.999) if state is JobState.RUNNING else 0.0,
            job.start,
            job.finish,
            results=job.results,
        )
        return self._message(response, job, state, error)

    def done(self, job: WorkerJob, outcome: JobOutcome) -> JobMessage:
        response = JobResponse(
            job.id,
            job.request.type,
            1.0,
            job.start,
            datetime.now(UTC),
            results=outcome.results,
            models=outcome.models,
            value=outcome.value,
        )
        return self._message(response, job, JobState.DONE)

    def failed(self, job: WorkerJob, state: JobState, error: str) -> JobMessage:
        now = datetime.now(UTC)
        response = JobResponse(job.id, job.request.type, 1.0, job.start or now, now, error)
        return self._message(response, job, state)

    def dead(self, job: WorkerJob, error: str) -> JobMessage:
        """The request, for a person to look at."""
        said = dead_letter_properties(job.delivery.said, error)
        return JobMessage("", dead_name(job.request.type), job.delivery.body, said)

    def refused(self, delivery: JobDelivery, error: str, identity: str = "") -> JobMessage:
        """To one whose request cannot be understood, as far as it can be told who that is."""
        said = delivery.said
        now = datetime.now(UTC)
        who = identity or said.reply_to or said.correlation_id or said.message_id or "unknown"
        response = JobResponse(who, delivery.kind, 1.0, now, now, error)
        written = write_response(response, format_of(said, delivery.body))
        request_properties = RequestProperties(
            said.reply_to or "", said.correlation_id, persistent=said.persistent
        )
        told = ResponseProperties(JobState.REFUSED, 1, 1, self._worker, again=delivery.redelivered)
        return JobMessage(
            self._exchange or response_name(delivery.kind),
            said.reply_to or routing_key(who),
            written.body,
            write_response_properties(
                written, request_properties, told, final_message_id(who, 1, digest(delivery.body))
            ),
        )

    def _message(
        self, response: JobResponse, job: WorkerJob, state: JobState, error: str = ""
    ) -> JobMessage:
        request_properties = job.request_properties
        try:
            written = write_response(response, job.form)
        except (JobFormatError, ValueError) as problem:  # a result that has no form
            now = datetime.now(UTC)
            plain: dict[str, Any] = {"error": f"the result cannot be sent: {problem}"}
            response = JobResponse(response.id, response.type, 1.0, response.start, now, **plain)
            written = write_response(response, MessageFormat.JSON)
        final = final_message_id(job.id, request_properties.run) if state.final else None
        again = state.final and job.delivery.redelivered
        told = ResponseProperties(
            state, request_properties.run, request_properties.attempt, self._worker, error, again
        )
        return JobMessage(
            self._exchange or response_name(job.request.type),
            request_properties.reply_to or routing_key(job.id),
            written.body,
            write_response_properties(written, request_properties, told, final),
        )


# When failed work is tried again: later each time, and not all at once.


@dataclass(frozen=True, slots=True)
class JobRetryPolicy:
    """Pauses double from `first` to `longest` seconds; each is between half and the whole of what
    is due."""

    attempts: int = ATTEMPTS
    first: int = 1
    longest: int = 300

    def pause(self, attempt: int, chance: Callable[[], float] = random.random) -> tuple[int, int]:
        """After so many attempts: what is due in seconds, and what it is to be, in milliseconds."""
        due = min(self.first * 2 ** min(attempt - 1, 30), self.longest)
        return due, max(1, math.ceil(due * 1000 * (0.5 + chance() / 2)))
