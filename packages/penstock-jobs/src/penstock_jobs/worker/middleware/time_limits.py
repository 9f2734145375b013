"""Time limits: those of the request, or the worker's defaults."""

from __future__ import annotations

from penstock_jobs.shells.shell import TimeLimits
from penstock_jobs.worker.job import WorkerJob
from penstock_jobs.worker.middleware import WorkerMiddleware


class TimeLimitMiddleware(WorkerMiddleware):
    def __init__(self, soft: float | None, hard: float | None) -> None:
        self._soft = soft
        self._hard = hard

    def before_attempt(self, job: WorkerJob) -> None:
        options = job.properties.options
        job.limits = TimeLimits(options.soft or self._soft, options.hard or self._hard)
