"""What becomes of a request when it is taken: a job to begin, or an answer at once.

What cannot be understood, or has an id that is another's, is refused; what is there already is
acknowledged, and what was handed out to us before is joined to the job we have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock_jobs.formats import read_request
from penstock_jobs.queue.properties import read_request_properties, repeated_response
from penstock_jobs.queue.worker_connection import JobDelivery, JobSettlement, WorkerConnection
from penstock_jobs.worker.completion import JobResponseWriter
from penstock_jobs.worker.history_check import HistoryCheck
from penstock_jobs.worker.job import JobRegistry, JobStage, RequestMatch, WorkerJob
from penstock_jobs.worker.metrics import WorkerMetrics

log = get_logger(__name__)

#: So long a request that another worker is at stays here before it is handed out again.
_OTHER_WORKER_SECONDS: Final = 1.0


class RequestAdmission:
    def __init__(
        self,
        worker_connection: WorkerConnection,
        types: Collection[str],
        memory: JobRegistry,
        response_writer: JobResponseWriter,
        worker_metrics: WorkerMetrics,
        history_check: HistoryCheck | None,
    ) -> None:
        self._worker_connection = worker_connection
        self._types = frozenset(types)
        self._memory = memory
        self._response_writer = response_writer
        self._worker_metrics = worker_metrics
        self._history_check = history_check

    def read(self, delivery: JobDelivery) -> WorkerJob | None:
        """The job, if it is new, which is remembered then; all else is answered."""
        try:
            request, form = read_request(delivery.body)
            request_properties = read_request_properties(delivery.said)
        except PenstockError as error:
            self._refuse(delivery, str(error))
            return None
        if request.type not in self._types:
            self._refuse(delivery, f"work of type {request.type!r} is not done here", request.id)
            return None
        job = WorkerJob(request, form, request_properties, delivery)
        request_match = self._memory.meet(job, self._worker_connection.epoch)
        if request_match is RequestMatch.NEW:
            self._memory.keep(job)
            return job
        if request_match is RequestMatch.AGAIN:
            self._join(job)
        elif request_match is RequestMatch.COPY and job.id in self._memory.jobs:
            self._hold(job)
        else:
            self._turn_away(job, request_match)
        return None

    def doubts(self, job: WorkerJob) -> bool:
        """Whether the history should be asked before it is begun."""
        return self._history_check is not None and self._history_check.concerns(job)

    async def look_up(self, jobs: Sequence[WorkerJob]) -> list[WorkerJob]:
        """Those that are new to the history as well; the others are answered."""
        assert self._history_check is not None
        verdicts = await self._history_check.look_up(jobs)
        new: list[WorkerJob] = []
        for job in jobs:
            request_match = verdicts.get(job.id, RequestMatch.NEW)
            if job.delivery.epoch != self._worker_connection.epoch:
                self._memory.drop(job)  # it comes again
            elif job.stage is not JobStage.WAITING:
                continue  # it was cancelled meanwhile
            elif request_match is RequestMatch.NEW:
                new.append(job)
            else:
                self._memory.drop(job)
                self._turn_away(job, request_match)
        return new

    def _give_back(self, delivery: JobDelivery) -> None:
        if delivery.epoch == self._worker_connection.epoch:
            self._worker_connection.give_back(delivery)

    def _join(self, job: WorkerJob) -> None:
        """The request of a job we have, handed out to us again."""
        there = self._memory.jobs[job.id]
        there.delivery = job.delivery
        if there.stage is JobStage.UNSURE:
            there.stage = JobStage.ANSWERED
            there.messages = [
                replace(each, said=repeated_response(each.said)) for each in there.messages
            ]
            self._worker_connection.settle(JobSettlement(there.delivery, there.messages, there))

    def _hold(self, job: WorkerJob) -> None:
        """A copy of one we have; or the same, for not all protocols tell that a delivery was lost.
        Either way the newer of the two is held until the answer is safe."""
        self._worker_metrics.copies += 1
        there = self._memory.jobs[job.id]
        former, there.delivery = there.delivery, job.delivery
        if there.stage is not JobStage.ANSWERED:  # else it goes with its answer
            self._worker_connection.settle(JobSettlement(former, ()))

    def _turn_away(self, job: WorkerJob, request_match: RequestMatch) -> None:
        if request_match is RequestMatch.ELSEWHERE and job.delivery.redelivered:
            # Perhaps the one request there is, which its worker has lost: it gets it again, or we
            # do, when that worker is gone or done.
            loop = asyncio.get_running_loop()
            loop.call_later(_OTHER_WORKER_SECONDS, self._give_back, job.delivery)
        elif request_match in (RequestMatch.COPY, RequestMatch.ELSEWHERE):
            self._worker_metrics.copies += 1
            self._worker_connection.settle(JobSettlement(job.delivery, ()))
        else:
            self._refuse(job.delivery, f"the id {job.id!r} is another request's", job.id)

    def _refuse(self, delivery: JobDelivery, error: str, identity: str = "") -> None:
        self._worker_metrics.refused += 1
        log.info("request refused", kind=delivery.kind, reason=error)
        message = self._response_writer.refused(delivery, error, identity)
        self._worker_connection.settle(JobSettlement(delivery, [message]))
