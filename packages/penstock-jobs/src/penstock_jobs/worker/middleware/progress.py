"""Progress messages: what an attempt reports, and one for a long attempt that reports nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from penstock_jobs.model import VoteResult
from penstock_jobs.queue.worker_connection import JobMessage
from penstock_jobs.worker.job import WorkerJob
from penstock_jobs.worker.middleware import WorkerMiddleware
from penstock_jobs.worker.responses import JobResponseWriter


class ProgressMiddleware(WorkerMiddleware):
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
        job.announced = True
        self._publish(self._responses.progress(job))

    def on_long_attempt(self, job: WorkerJob, seconds: float) -> None:
        if not job.announced:
            job.announced = True
            self._publish(self._responses.progress(job))
