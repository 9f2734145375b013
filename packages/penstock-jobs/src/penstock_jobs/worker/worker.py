"""The worker: what it takes, and what becomes of it when connections break or somebody cancels.

It is one loop that never does the work itself. A request is acknowledged with its final response;
until then it is the broker's to hand out again. Work goes on when a connection breaks: the request
comes again, here or elsewhere, and whoever is handed it last answers, once. When a job is begun is
`slots.py`, what is made of its end `completion.py`, what is no job at all `admission.py`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock_jobs.executors.executor import JobExecutor
from penstock_jobs.queue.worker_connection import (
    CancelRequest,
    JobDelivery,
    JobSettlement,
    WorkerConnection,
    WorkerListener,
)
from penstock_jobs.shells.shell import TimeLimits
from penstock_jobs.worker.admission import RequestAdmission
from penstock_jobs.worker.completion import (
    CANCELLED,
    JobAttemptListener,
    JobCompletion,
    JobResponseWriter,
    JobRetryPolicy,
)
from penstock_jobs.worker.history_check import HistoryCheck
from penstock_jobs.worker.job import JobRegistry, JobStage, WorkerJob
from penstock_jobs.worker.metrics import WorkerMetrics
from penstock_jobs.worker.slots import JobSlots

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    slots: int = 1  #: jobs at a time
    backoff: JobRetryPolicy = field(default_factory=JobRetryPolicy)
    soft: float | None = None  #: seconds, for those who ask for no limit
    hard: float | None = None
    name: str = ""
    response_exchange: str | None = None  #: instead of the usual ones


class Worker:
    def __init__(
        self,
        worker_connection: WorkerConnection,
        kinds: Sequence[JobExecutor],
        settings: WorkerSettings | None = None,
        history_check: HistoryCheck | None = None,
        types: Sequence[str] | None = None,
    ) -> None:
        """`types` are those of the kinds that requests are taken for, if not all."""
        self.settings = settings = settings or WorkerSettings()
        self.name = settings.name or f"{socket.gethostname()}:{os.getpid()}"
        self.worker_metrics = worker_metrics = WorkerMetrics()
        self._worker_connection = worker_connection
        self._all_kinds = tuple(kinds)
        self._kinds: Mapping[str, JobExecutor] = {
            name: kind for kind in kinds for name in kind.types if types is None or name in types
        }
        self._history_check = history_check
        self._memory = (
            JobRegistry() if history_check is None else JobRegistry(history_check.release)
        )
        self._job_slots = JobSlots(
            settings.slots,
            self._kinds,
            worker_connection,
            worker_metrics,
            begin=self._begin,
            give_back=self._give_back,
            long=lambda job: self._completion.announce(job),
        )
        response_writer = JobResponseWriter(self.name, settings.response_exchange)
        self._completion = JobCompletion(
            worker_connection, response_writer, self._job_slots, worker_metrics, settings.backoff
        )
        self._admission = RequestAdmission(
            worker_connection,
            self.types,
            self._memory,
            response_writer,
            worker_metrics,
            history_check,
        )
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self._kinds)

    # A life.

    async def open(self) -> None:
        """Returns when requests are taken; if that cannot be, nothing is left open."""
        async with AsyncExitStack() as opened:
            for kind in self._all_kinds:
                opened.push_async_callback(kind.close)
                await kind.open()
            await self._worker_connection.open(
                WorkerListener(
                    self._taken, self._settled, self._unsettled, self._lost, self._cancel_requested
                )
            )
            opened.pop_all()
        log.info("worker ready", name=self.name, types=sorted(self._kinds))

    async def run(self, stop: asyncio.Event, grace: float | None = None) -> None:
        """Until told to stop; then jobs are finished, or after `grace` seconds given back."""
        stopped = asyncio.create_task(stop.wait())
        failed = asyncio.create_task(self._worker_connection.failed())
        try:
            await asyncio.wait((stopped, failed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self.close(0.0 if failed.done() else grace)
            for task in (stopped, failed):
                task.cancel()
        if failed.done() and not failed.cancelled():
            raise failed.result()

    async def close(self, grace: float | None = 0.0) -> None:
        self._stopping = True
        self._job_slots.stop()
        try:
            async with asyncio.timeout(grace):
                await self._job_slots.empty()
        except TimeoutError:
            for job in self._job_slots.running:
                self._hand_back(job)
        await self._worker_connection.flush()
        self._job_slots.close()
        for task in list(self._tasks):
            task.cancel()
        for kind in self._all_kinds:
            await kind.close()
        await self._worker_connection.close()
        if self._history_check is not None:
            await self._history_check.close()

    # Taking.

    def _taken(self, deliveries: list[JobDelivery]) -> None:
        self.worker_metrics.taken += len(deliveries)
        unsure: list[WorkerJob] = []
        for delivery in deliveries:
            if self._stopping:
                self._worker_connection.give_back(delivery)
            elif (job := self._admission.read(delivery)) is None:
                continue
            elif self._memory.unwanted(job):
                self._completion.cancelled(job)
            elif self._admission.doubts(job):
                unsure.append(job)
            else:
                self._job_slots.queue(job)
        if unsure:
            self._start(self._look_up(unsure))
        self._job_slots.fill()

    async def _look_up(self, jobs: list[WorkerJob]) -> None:
        for job in await self._admission.look_up(jobs):
            self._job_slots.queue(job)
        self._job_slots.fill()

    def _begin(self, job: WorkerJob, kind: JobExecutor) -> None:
        job.stage = JobStage.RUNNING
        job.begun = asyncio.get_running_loop().time()
        job.start = datetime.now(UTC)
        options = job.request_properties.options
        limits = TimeLimits(options.soft or self.settings.soft, options.hard or self.settings.hard)
        try:
            job.attempt = kind.begin(job.request, limits, JobAttemptListener(self._completion, job))
        except Exception as error:
            if not isinstance(error, PenstockError):
                log.exception("a job could not be begun", job=job.id)
            self._completion.failed(job, error)

    # What the carrier says.

    def _settled(self, settlements: list[JobSettlement]) -> None:
        for settlement in settlements:
            if (job := settlement.token) is None:
                continue
            self._memory.answered(job)
            if job.delivery is not settlement.delivery:  # a copy came while this was on its way
                self._worker_connection.settle(JobSettlement(job.delivery, ()))

    def _lost(self) -> None:
        """What waits is handed out again; what runs goes on, and its request may come again."""
        self.worker_metrics.lost += 1
        for job in self._job_slots.forget_waiting():
            self._memory.drop(job)

    def _unsettled(self, settlements: list[JobSettlement]) -> None:
        for settlement in settlements:
            job = settlement.token
            if not isinstance(job, WorkerJob):
                continue
            came = job.delivery is not settlement.delivery  # again, while this was on its way
            if not job.final:
                self._memory.drop(job)  # to be tried again anyway
                if came:
                    self._worker_connection.give_back(job.delivery)
            elif came:
                self._worker_connection.settle(JobSettlement(job.delivery, job.messages, job))
            else:
                self._memory.unsure(job)

    def _cancel_requested(self, cancel_request: CancelRequest) -> None:
        self._memory.cancel_request(cancel_request)
        job = self._memory.jobs.get(cancel_request.cancel)
        if job is None or not self._memory.unwanted(job):
            return
        if job.stage is JobStage.WAITING:
            self._job_slots.skip(job)
            self._completion.cancelled(job)
        elif job.stage is JobStage.RUNNING and job.attempt is not None:
            job.cancelled = True
            job.attempt.end(CANCELLED)

    # Giving back.

    def _give_back(self, job: WorkerJob) -> None:
        self.worker_metrics.returned += 1
        self._memory.drop(job)
        self._worker_connection.give_back(job.delivery)

    def _hand_back(self, job: WorkerJob) -> None:
        """End what runs, so that another may do it."""
        job.stage = JobStage.ANSWERED
        self._job_slots.vacate(job)
        self._give_back(job)
        if job.attempt is not None:
            job.attempt.end("the worker stops")

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
