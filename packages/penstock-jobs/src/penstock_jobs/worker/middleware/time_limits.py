"""Time limits: those of the request, or the worker's defaults.

At the soft limit an attempt is asked to end, at the hard limit it is ended; without a hard limit
that is a grace after the soft one. The time that an attempt waits for a process does not count.
"""

from __future__ import annotations

from penstock_jobs.shells.shell import GRACE_SECONDS
from penstock_jobs.worker.job import WorkerJob
from penstock_jobs.worker.middleware import WorkerMiddleware


class TimeLimitMiddleware(WorkerMiddleware):
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
