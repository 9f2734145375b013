"""Live output: what an attempt prints, published a few times a second, and logged by a verbose
worker.

The Ichnaea formats have no place for it. Of a flood only the end is published.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.core.logs import get_logger
from penstock_jobs.formats import MessageFormat
from penstock_jobs.queue.worker_connection import JobMessage
from penstock_jobs.worker.job import JobStage, WorkerJob
from penstock_jobs.worker.middleware import WorkerMiddleware
from penstock_jobs.worker.responses import JobResponseWriter

log = get_logger(__name__)

#: The shortest interval between two messages of a job.
_SECONDS: Final = 0.2


class OutputMiddleware(WorkerMiddleware):
    def __init__(self, responses: JobResponseWriter, publish: Callable[[JobMessage], None]) -> None:
        self._responses = responses
        self._publish = publish

    def on_output(self, job: WorkerJob, text: str) -> None:
        log.info("job output", job=job.id, text=text.rstrip("\n"))
        if job.format is not MessageFormat.JSON:
            return
        if not job.output:
            asyncio.get_running_loop().call_later(_SECONDS, self._send, job, job.attempt_number)
        job.output.add(text)

    def _send(self, job: WorkerJob, attempt: int) -> None:
        """What is left at the end of the attempt goes with its response."""
        if job.stage is JobStage.RUNNING and job.output and attempt == job.attempt_number:
            job.announced = True
            self._publish(self._responses.progress(job))
