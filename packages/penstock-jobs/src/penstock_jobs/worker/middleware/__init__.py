"""Concerns of a worker beside running jobs: one short module each, attached through hooks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock_jobs.model import VoteResult
from penstock_jobs.queue.worker_connection import JobMessage
from penstock_jobs.worker.job import WorkerJob


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
