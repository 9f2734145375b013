"""Concerns of a worker beside running jobs, attached through hooks: cancel requests, time limits,
progress, live output, retries."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from penstock.core.logs import get_logger
from penstock.core.retry import RetryPolicy
from penstock_jobs.executors.executor import error_text, is_permanent
from penstock_jobs.formats import MessageFormat
from penstock_jobs.model import JobState, VoteResult
from penstock_jobs.queue.properties import retry_properties
from penstock_jobs.queue.worker_connection import CancelRequest, JobMessage
from penstock_jobs.shells.shell import GRACE_SECONDS
from penstock_jobs.worker.job import JobStage, WorkerJob
from penstock_jobs.worker.metrics import WorkerMetrics
from penstock_jobs.worker.responses import JobResponseWriter

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class JobDecision:
    """How a job is settled: with a final response, or with a request to retry it later."""

    messages: list[JobMessage]
    retry: JobMessage | None = None
    delay: float = 0.0  #: seconds until the retry


class WorkerMiddleware:
    """Hooks around an attempt, all without effect. The first decision of a hook settles the job."""

    def before_queue(self, job: WorkerJob) -> JobDecision | None:
        """The request is new and not yet queued."""
        return None

    def before_attempt(self, job: WorkerJob) -> None:
        """The attempt is about to start."""

    def on_progress(
        self,
        job: WorkerJob,
        share: float,
        finish: datetime | None,
        results: tuple[VoteResult, ...],
    ) -> None:
        """The attempt reports a share of the work, 0 to 1, and an estimate of its end."""

    def on_output(self, job: WorkerJob, text: str) -> None:
        """The attempt prints something."""

    def on_long_attempt(self, job: WorkerJob, seconds: float) -> None:
        """The attempt takes longer than a moment; called several times a second."""

    def after_failure(self, job: WorkerJob, error: Exception) -> JobDecision | None:
        """The attempt failed."""
        return None


CANCELLED: Final = "it was cancelled"
#: Cancel requests to remember for requests that have not been delivered yet.
_MAX_CANCEL_REQUESTS: Final = 100_000


class CancellationMiddleware(WorkerMiddleware):
    """For jobs that wait, run, or have not been delivered yet."""

    def __init__(self, responses: JobResponseWriter, metrics: WorkerMetrics) -> None:
        self._responses = responses
        self._metrics = metrics
        self._requests: dict[str, CancelRequest] = {}

    def add(self, request: CancelRequest) -> None:
        self._requests.pop(request.cancel, None)
        self._requests[request.cancel] = request
        if len(self._requests) > _MAX_CANCEL_REQUESTS:
            del self._requests[next(iter(self._requests))]

    def applies_to(self, job: WorkerJob) -> bool:
        if not self._requests or (request := self._requests.get(job.id)) is None:
            return False
        return request.applies_to(job.properties.run, job.properties.submitted)

    def decide(self, job: WorkerJob) -> JobDecision:
        self._metrics.cancelled += 1
        return JobDecision([self._responses.failed(job, JobState.CANCELLED, CANCELLED)])

    def before_queue(self, job: WorkerJob) -> JobDecision | None:
        return self.decide(job) if self.applies_to(job) else None

    def after_failure(self, job: WorkerJob, error: Exception) -> JobDecision | None:
        return self.decide(job) if job.cancelled else None


class TimeLimitMiddleware(WorkerMiddleware):
    """The limits of the request, or the worker's defaults.

    At the soft limit an attempt is asked to end, at the hard limit it is ended; without a hard
    limit that is a grace after the soft one. The time that an attempt waits for a process does not
    count.
    """

    def __init__(self, soft: float | None, hard: float | None) -> None:
        self._soft = soft
        self._hard = hard

    def on_long_attempt(self, job: WorkerJob, seconds: float) -> None:
        options = job.properties.options
        soft, hard = options.soft or self._soft, options.hard or self._hard
        if soft is not None and hard is None:
            hard = soft + GRACE_SECONDS
        if job.attempt is None or job.cancelled:
            return
        if hard is not None and seconds >= hard:
            job.exceeded = job.exceeded or hard
            job.attempt.terminate(f"ended after {hard:g} seconds")
        elif soft is not None and seconds >= soft and not job.exceeded:
            job.exceeded = soft
            job.attempt.interrupt()


#: The shortest interval between two messages with output of a job.
_OUTPUT_SECONDS: Final = 0.2


class ProgressMiddleware(WorkerMiddleware):
    """Progress messages: what an attempt reports and prints, and one for a long attempt that
    reports nothing. The Ichnaea formats have no place for output; of a flood only the end is
    published."""

    def __init__(self, responses: JobResponseWriter, publish: Callable[[JobMessage], None]) -> None:
        self._responses = responses
        self._publish = publish

    def on_progress(
        self,
        job: WorkerJob,
        share: float,
        finish: datetime | None,
        results: tuple[VoteResult, ...],
    ) -> None:
        job.share, job.finish, job.results = share, finish or job.finish, results
        self._announce(job)

    def on_output(self, job: WorkerJob, text: str) -> None:
        log.info("job output", job=job.id, text=text.rstrip("\n"))
        if job.format is not MessageFormat.JSON:
            return
        if not job.output:
            loop = asyncio.get_running_loop()
            loop.call_later(_OUTPUT_SECONDS, self._send_output, job, job.attempt_number)
        job.output.add(text)

    def on_long_attempt(self, job: WorkerJob, seconds: float) -> None:
        if not job.announced:
            self._announce(job)

    def _send_output(self, job: WorkerJob, attempt: int) -> None:
        """What is left at the end of the attempt goes with its response."""
        if job.stage is JobStage.RUNNING and job.output and attempt == job.attempt_number:
            self._announce(job)

    def _announce(self, job: WorkerJob) -> None:
        job.announced = True
        self._publish(self._responses.progress(job))


class RetryMiddleware(WorkerMiddleware):
    """Exponential backoff; a dead letter after the last attempt or a permanent error."""

    def __init__(
        self,
        policy: RetryPolicy,
        policies: Mapping[str, RetryPolicy],
        responses: JobResponseWriter,
        metrics: WorkerMetrics,
    ) -> None:
        """`policies` are those of single types."""
        self._default_policy = policy
        self._policies = policies
        self._responses = responses
        self._metrics = metrics

    def after_failure(self, job: WorkerJob, error: Exception) -> JobDecision:
        text = error_text(error)
        policy = self._policies.get(job.request.type, self._default_policy)
        attempt = job.properties.attempt
        attempts = job.properties.options.attempts or policy.attempts
        if is_permanent(error) or (attempts is not None and attempt >= attempts):
            self._metrics.failed += 1
            log.warning("job failed", job=job.id, reason=text[:500])
            response = self._responses.failed(job, JobState.FAILED, text)
            return JobDecision([response, self._responses.dead_letter(job, text)])
        self._metrics.retried += 1
        log.warning("attempt failed", job=job.id, attempt=attempt, reason=text[:500])
        milliseconds = max(1, math.ceil(1000 * policy.delay(attempt)))
        properties = retry_properties(job.delivery.properties, attempt + 1, milliseconds)
        return JobDecision(
            [self._responses.progress(job, JobState.RETRYING, text)],
            JobMessage("", "", job.delivery.body, properties),
            policy.nominal_delay(attempt),
        )
