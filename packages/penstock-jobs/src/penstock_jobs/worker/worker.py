"""The worker: a state machine for jobs (`job.py` has its stages), with middleware for the rest.

It runs on one event loop and never does the work itself: executors do. A request is acknowledged
together with its final response; until then the broker can redeliver it. Jobs keep running when a
connection is lost; the request is redelivered, here or elsewhere, and its last receiver responds,
once. `admission.py` decides about requests, `slots.py` when a job starts; `middleware.py` has
retries, time limits, cancel requests and progress.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.core.retry import RetryPolicy
from penstock.core.telemetry import message_spans
from penstock_jobs.errors import JobTimeout
from penstock_jobs.executors.executor import JobExecutor, JobOutcome
from penstock_jobs.model import ATTEMPTS, VoteResult
from penstock_jobs.queue.worker_connection import (
    CancelRequest,
    JobDelivery,
    JobSettlement,
    WorkerConnection,
    WorkerListener,
)
from penstock_jobs.worker.admission import RequestAdmission
from penstock_jobs.worker.job import JobRegistry, JobStage, WorkerJob
from penstock_jobs.worker.metrics import WorkerMetrics
from penstock_jobs.worker.middleware import (
    CANCELLED,
    CancellationMiddleware,
    JobDecision,
    ProgressMiddleware,
    RetryMiddleware,
    TimeLimitMiddleware,
    WorkerMiddleware,
)
from penstock_jobs.worker.responses import JobResponseWriter
from penstock_jobs.worker.slots import JobSlots

if TYPE_CHECKING:
    from penstock_jobs.worker.history_check import HistoryCheck
    from penstock_jobs.worker.job_spans import JobSpans

log = get_logger(__name__)


#: Delays in whole seconds, because each has a queue of its own.
JOB_RETRIES: Final = RetryPolicy(first=1, longest=300, total=math.inf, attempts=ATTEMPTS)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    slots: int = 1  #: jobs at a time
    retry_policy: RetryPolicy = JOB_RETRIES
    #: By type, instead of `retry_policy`.
    retry_policies: Mapping[str, RetryPolicy] = field(default_factory=dict)
    #: By type, the most starts per second.
    rates: Mapping[str, float] = field(default_factory=dict)
    soft: float | None = None  #: seconds, for requests without a limit
    hard: float | None = None
    name: str = ""
    response_exchange: str | None = None  #: instead of the exchange of each type


class Worker:
    def __init__(
        self,
        connection: WorkerConnection,
        executors: Sequence[JobExecutor],
        settings: WorkerSettings | None = None,
        history_check: HistoryCheck | None = None,
        types: Sequence[str] | None = None,
    ) -> None:
        """`types` limits the types of the executors that requests are consumed for."""
        settings = settings or WorkerSettings()
        self.name = settings.name or f"{socket.gethostname()}:{os.getpid()}"
        self.metrics = WorkerMetrics()
        self._connection = connection
        self._all_executors = tuple(executors)
        self._executors: Mapping[str, JobExecutor] = {
            name: executor
            for executor in executors
            for name in executor.types
            if types is None or name in types
        }
        self._history_check = history_check
        self._registry = (
            JobRegistry() if history_check is None else JobRegistry(history_check.release)
        )
        self._slots = JobSlots(
            settings.slots,
            self._executors,
            connection,
            self.metrics,
            start=self._start_attempt,
            requeue=self._requeue,
            on_long=self._long,
            rates=settings.rates,
        )
        self._responses = responses = JobResponseWriter(self.name, settings.response_exchange)
        self._admission = RequestAdmission(
            connection, self.types, self._registry, responses, self.metrics, history_check
        )
        self._cancellation = CancellationMiddleware(responses, self.metrics)
        self._middleware: tuple[WorkerMiddleware, ...] = (
            self._cancellation,
            TimeLimitMiddleware(settings.soft, settings.hard),
            ProgressMiddleware(responses, connection.publish_progress),
            RetryMiddleware(
                settings.retry_policy, settings.retry_policies, responses, self.metrics
            ),
        )
        self._spans: JobSpans | None = None
        if (spans := message_spans()) is not None:
            from penstock_jobs.worker.job_spans import JobSpans

            self._spans = JobSpans(spans, self.name)
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self._executors)

    async def open(self) -> None:
        """Returns when requests are consumed; on an error everything is closed again."""
        async with AsyncExitStack() as opened:
            for executor in self._all_executors:
                opened.push_async_callback(executor.close)
                await executor.open()
            await self._connection.open(
                WorkerListener(
                    self._received,
                    self._settled,
                    self._unconfirmed,
                    self._connection_lost,
                    self._cancel_requested,
                )
            )
            opened.pop_all()
        log.info("worker ready", name=self.name, types=sorted(self._executors))

    async def run(self, stop: asyncio.Event, grace: float | None = None) -> None:
        """Until `stop` is set; then jobs are finished, or requeued after `grace` seconds."""
        stopped = asyncio.create_task(stop.wait())
        failed = asyncio.create_task(self._connection.failed())
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
        self._slots.stop()
        try:
            async with asyncio.timeout(grace):
                await self._slots.wait_idle()
        except TimeoutError:
            for job in self._slots.running:
                self._slots.release(job)
                self._requeue(job)
                if job.attempt is not None:
                    job.attempt.terminate("the worker stops")
        await self._connection.flush()
        self._slots.close()
        for task in list(self._tasks):
            task.cancel()
        for executor in self._all_executors:
            await executor.close()
        await self._connection.close()
        if self._history_check is not None:
            await self._history_check.close()

    # From request to attempt.

    def _received(self, deliveries: list[JobDelivery]) -> None:
        self.metrics.taken += len(deliveries)
        unchecked: list[WorkerJob] = []
        for delivery in deliveries:
            if self._stopping:
                self._connection.requeue(delivery)
            elif (job := self._admission.read(delivery)) is None:
                continue
            elif (decision := self._before_queue(job)) is not None:
                self._settle(job, decision)
            elif self._admission.needs_check(job):
                job.move(JobStage.CHECKING)
                unchecked.append(job)
            else:
                self._slots.enqueue(job)
        if unchecked:
            task = asyncio.create_task(self._check(unchecked))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._slots.start_waiting()

    def _before_queue(self, job: WorkerJob) -> JobDecision | None:
        for middleware in self._middleware:
            if (decision := middleware.before_queue(job)) is not None:
                return decision
        return None

    async def _check(self, jobs: list[WorkerJob]) -> None:
        for job in await self._admission.check(jobs):
            self._slots.enqueue(job)
        self._slots.start_waiting()

    def _start_attempt(self, job: WorkerJob, executor: JobExecutor) -> None:
        job.move(JobStage.RUNNING)
        job.started = asyncio.get_running_loop().time()
        job.start = datetime.now(UTC)
        for middleware in self._middleware:
            middleware.before_attempt(job)
        token = None if self._spans is None else self._spans.start(job)
        try:
            job.attempt = executor.start(job.request, JobAttemptListener(self, job))
        except Exception as error:
            if not isinstance(error, PenstockError):
                log.exception("attempt not started", job=job.id)
            self.failed(job, error)
        finally:
            if self._spans is not None:
                self._spans.detach(token)

    # From attempt to settlement. After an attempt was requeued its reports are ignored.

    def _long(self, job: WorkerJob, seconds: float) -> None:
        for middleware in self._middleware:
            middleware.on_long_attempt(job, seconds)

    def progress(
        self, job: WorkerJob, share: float, finish: datetime | None, results: tuple[VoteResult, ...]
    ) -> None:
        if job.stage is JobStage.RUNNING:
            for middleware in self._middleware:
                middleware.on_progress(job, share, finish, results)

    def output(self, job: WorkerJob, text: str) -> None:
        if job.stage is JobStage.RUNNING:
            for middleware in self._middleware:
                middleware.on_output(job, text)

    def done(self, job: WorkerJob, outcome: JobOutcome) -> None:
        if job.stage is JobStage.RUNNING:
            seconds = asyncio.get_running_loop().time() - job.started
            self._slots.record(seconds if outcome.seconds is None else outcome.seconds)
            self.metrics.observe(job.request.type, seconds)
            self.metrics.done += 1
            self._settle(job, JobDecision([self._responses.done(job, outcome)]))

    def failed(self, job: WorkerJob, error: Exception) -> None:
        if job.stage is JobStage.RUNNING:
            if job.exceeded:
                error = JobTimeout(f"ended after {job.exceeded:g} seconds")
            if self._spans is not None:
                self._spans.failed(job, error)
            for middleware in self._middleware:
                if (decision := middleware.after_failure(job, error)) is not None:
                    self._settle(job, decision)
                    return

    def _settle(self, job: WorkerJob, decision: JobDecision) -> None:
        job.move(JobStage.SETTLING)
        job.final = decision.retry is None
        if self._spans is not None:
            decision = self._spans.respond(job, decision)
        job.messages = decision.messages
        job.attempt = None
        self._slots.finish(job)
        settlement = JobSettlement(job.delivery, job.messages, job)
        if decision.retry is None:
            self._connection.settle(settlement)
        else:
            self._connection.retry_later(settlement, decision.retry, decision.delay)

    def _settled(self, settlements: list[JobSettlement]) -> None:
        for settlement in settlements:
            if (job := settlement.job) is None:
                continue
            self._registry.mark_settled(job)
            if job.delivery is not settlement.delivery:  # a copy arrived meanwhile
                self._connection.settle(JobSettlement(job.delivery, ()))

    # Lost connections, cancel requests, requeued jobs.

    def _connection_lost(self) -> None:
        """Waiting requests are redelivered by the broker; running jobs continue."""
        self.metrics.lost += 1
        for job in self._slots.clear_waiting():
            self._registry.close(job)

    def _unconfirmed(self, settlements: list[JobSettlement]) -> None:
        for settlement in settlements:
            if (job := settlement.job) is None:
                continue
            redelivered = job.delivery is not settlement.delivery
            if not job.final:
                self._registry.close(job)  # the redelivered request is the retry
                if redelivered:
                    self._connection.requeue(job.delivery)
            elif redelivered:
                self._connection.settle(JobSettlement(job.delivery, job.messages, job))
            else:
                self._registry.mark_unconfirmed(job)

    def _cancel_requested(self, request: CancelRequest) -> None:
        self._cancellation.add(request)
        job = self._registry.jobs.get(request.cancel)
        if job is None or not self._cancellation.applies_to(job):
            return
        if job.stage in (JobStage.CHECKING, JobStage.WAITING):
            self._slots.remove_waiting(job)
            self._settle(job, self._cancellation.decide(job))
        elif job.stage is JobStage.RUNNING and job.attempt is not None:
            job.cancelled = True
            job.attempt.terminate(CANCELLED)

    def _requeue(self, job: WorkerJob) -> None:
        self.metrics.returned += 1
        self._registry.close(job)
        self._connection.requeue(job.delivery)
        if self._spans is not None:
            self._spans.requeued(job)


class JobAttemptListener:
    """Implements `penstock_jobs.executors.executor.AttemptListener` for one job."""

    __slots__ = ("_job", "_worker")

    def __init__(self, worker: Worker, job: WorkerJob) -> None:
        self._worker = worker
        self._job = job

    def progress(
        self, share: float, finish: datetime | None = None, results: tuple[VoteResult, ...] = ()
    ) -> None:
        self._worker.progress(self._job, share, finish, results)

    def output(self, text: str) -> None:
        self._worker.output(self._job, text)

    def done(self, outcome: JobOutcome) -> None:
        self._worker.done(self._job, outcome)

    def failed(self, error: Exception) -> None:
        self._worker.failed(self._job, error)
