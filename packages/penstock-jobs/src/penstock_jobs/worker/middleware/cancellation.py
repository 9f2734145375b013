"""Cancel requests: for jobs that wait, run, or have not been delivered yet."""

from __future__ import annotations

from typing import Final

from penstock_jobs.model import JobState
from penstock_jobs.queue.worker_connection import CancelRequest
from penstock_jobs.worker.job import WorkerJob
from penstock_jobs.worker.metrics import WorkerMetrics
from penstock_jobs.worker.middleware import JobDecision, WorkerMiddleware
from penstock_jobs.worker.responses import JobResponseWriter

CANCELLED: Final = "it was cancelled"
#: Cancel requests to remember for requests that have not been delivered yet.
_MAX_CANCEL_REQUESTS: Final = 100_000


class CancellationMiddleware(WorkerMiddleware):
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
