"""Retries with exponential backoff; a dead letter after the last attempt or a permanent error."""

from __future__ import annotations

import math
from collections.abc import Mapping

from penstock.core.logs import get_logger
from penstock.core.retry import RetryPolicy
from penstock_jobs.executors.executor import error_text, is_permanent
from penstock_jobs.model import JobState
from penstock_jobs.queue.properties import retry_properties
from penstock_jobs.queue.worker_connection import JobMessage
from penstock_jobs.worker.job import WorkerJob
from penstock_jobs.worker.metrics import WorkerMetrics
from penstock_jobs.worker.middleware import JobDecision, WorkerMiddleware
from penstock_jobs.worker.responses import JobResponseWriter

log = get_logger(__name__)


class RetryMiddleware(WorkerMiddleware):
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
