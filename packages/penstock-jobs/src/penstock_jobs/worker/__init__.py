"""A worker: takes requests, has the work done, and answers."""

from penstock_jobs.worker.worker import Worker, WorkerSettings

__all__ = ["Worker", "WorkerSettings"]
