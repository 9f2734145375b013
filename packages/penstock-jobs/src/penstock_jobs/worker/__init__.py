"""A worker: consumes requests, has executors do the work, and publishes responses."""

from penstock_jobs.worker.worker import Worker, WorkerSettings

__all__ = ["Worker", "WorkerSettings"]
