"""Admission of requests: each becomes a new job, joins the job of its id, or is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock_jobs.formats import read_request
from penstock_jobs.queue.properties import read_request_properties, repeated_response
from penstock_jobs.queue.worker_connection import JobDelivery, JobSettlement, WorkerConnection
from penstock_jobs.worker.job import JobRegistry, JobStage, RequestMatch, WorkerJob
from penstock_jobs.worker.metrics import WorkerMetrics
from penstock_jobs.worker.responses import JobResponseWriter

if TYPE_CHECKING:
    from penstock_jobs.worker.history_check import HistoryCheck

log = get_logger(__name__)

#: Seconds before a request that runs on another worker is requeued.
_ELSEWHERE_SECONDS: Final = 1.0


class RequestAdmission:
    def __init__(
        self,
        connection: WorkerConnection,
        types: Collection[str],
        registry: JobRegistry,
        responses: JobResponseWriter,
        metrics: WorkerMetrics,
        history_check: HistoryCheck | None,
    ) -> None:
        self._connection = connection
        self._types = frozenset(types)
        self._registry = registry
        self._responses = responses
        self._metrics = metrics
        self._history_check = history_check

    def read(self, delivery: JobDelivery) -> WorkerJob | None:
        """The registered job of a new request; every other request is settled or joined here."""
        try:
            request, form = read_request(delivery.body)
            properties = read_request_properties(delivery.properties)
        except PenstockError as error:
            self._refuse(delivery, str(error))
            return None
        if request.type not in self._types:
            error_text = f"this worker does not run jobs of type {request.type!r}"
            self._refuse(delivery, error_text, request.id)
            return None
        job = WorkerJob(request, form, properties, delivery)
        match = self._registry.match(job, self._connection.epoch)
        if match is RequestMatch.NEW:
            self._registry.add(job)
            return job
        if match is RequestMatch.REDELIVERED:
            self._rejoin(job)
        elif match is RequestMatch.COPY and job.id in self._registry.jobs:
            self._join_copy(job)
        else:
            self._reject(job, match)
        return None

    def needs_check(self, job: WorkerJob) -> bool:
        return self._history_check is not None and self._history_check.concerns(job)

    async def check(self, jobs: Sequence[WorkerJob]) -> list[WorkerJob]:
        """The jobs that are new to the history as well; the others are settled."""
        assert self._history_check is not None
        matches = await self._history_check.check(jobs)
        new: list[WorkerJob] = []
        for job in jobs:
            match = matches.get(job.id, RequestMatch.NEW)
            if job.stage is not JobStage.CHECKING:
                continue  # cancelled meanwhile
            if job.delivery.epoch != self._connection.epoch:
                self._registry.close(job)  # the broker redelivers it
            elif match is RequestMatch.NEW:
                job.move(JobStage.WAITING)
                new.append(job)
            else:
                self._registry.close(job)
                self._reject(job, match)
        return new

    def _requeue(self, delivery: JobDelivery) -> None:
        if delivery.epoch == self._connection.epoch:
            self._connection.requeue(delivery)

    def _rejoin(self, job: WorkerJob) -> None:
        known = self._registry.jobs[job.id]
        known.delivery = job.delivery
        if known.stage is JobStage.UNCONFIRMED:
            self._registry.mark_settling(known)
            known.messages = [
                replace(message, properties=repeated_response(message.properties))
                for message in known.messages
            ]
            self._connection.settle(JobSettlement(known.delivery, known.messages, known))

    def _join_copy(self, job: WorkerJob) -> None:
        """A copy, or the same request: not all protocols report that a delivery was lost. Either
        way the newer delivery is acknowledged with the response."""
        self._metrics.copies += 1
        known = self._registry.jobs[job.id]
        former, known.delivery = known.delivery, job.delivery
        if known.stage is not JobStage.SETTLING:  # else the former goes with the response
            self._connection.settle(JobSettlement(former, ()))

    def _reject(self, job: WorkerJob, match: RequestMatch) -> None:
        if match is RequestMatch.ELSEWHERE and job.delivery.redelivered:
            # It may be the only copy, which its worker has lost. Requeued, it reaches that worker,
            # or this one after that worker is done or gone.
            loop = asyncio.get_running_loop()
            loop.call_later(_ELSEWHERE_SECONDS, self._requeue, job.delivery)
        elif match in (RequestMatch.COPY, RequestMatch.ELSEWHERE):
            self._metrics.copies += 1
            self._connection.settle(JobSettlement(job.delivery, ()))
        else:
            self._refuse(job.delivery, f"the id {job.id!r} belongs to another request", job.id)

    def _refuse(self, delivery: JobDelivery, error: str, identity: str = "") -> None:
        self._metrics.refused += 1
        log.info("request refused", kind=delivery.kind, reason=error)
        message = self._responses.refused(delivery, error, identity)
        self._connection.settle(JobSettlement(delivery, [message]))
