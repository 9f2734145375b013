"""Jobs for the HTTP API and the pages: submitted through the broker, read from the history.

A job that does not exist is `NotFound`, an operation its state does not allow `PreconditionFailed`.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

from penstock.core.errors import PenstockError, PreconditionFailed
from penstock.core.telemetry import message_spans
from penstock.core.trace_context import TRACEPARENT
from penstock_jobs.datasets.matrices import DataMatrix
from penstock_jobs.datasets.repository import DatasetRepository, SavedDataset
from penstock_jobs.formats import MessageFormat, read_request, read_response, write_request
from penstock_jobs.history.changes import waiting_change
from penstock_jobs.history.feed import JobChangeFeed, JobChangeWatcher
from penstock_jobs.history.recorder import JobRecorder
from penstock_jobs.history.repository import RETENTION_SECONDS, JobRepository
from penstock_jobs.model import (
    JobEvent,
    JobOptions,
    JobOutput,
    JobPage,
    JobRecord,
    JobRequest,
    JobResponse,
    JobState,
)
from penstock_jobs.queue.properties import RequestProperties, write_request_properties
from penstock_jobs.queue.requester import job_requester, send_request
from penstock_jobs.schedule.repository import (
    JobSchedule,
    PendingJob,
    ScheduleRepository,
    occurrence,
    workflow_jobs,
)
from penstock_jobs.schedule.scheduler import JobScheduler
from penstock_store import Database


class JobService:
    def __init__(
        self,
        broker_url: str,
        database: Database,
        retry_seconds: float = 0.0,
        retention: float = RETENTION_SECONDS,
    ) -> None:
        self._repository = JobRepository(database, retention)
        self.schedules = ScheduleRepository(database, self._repository)
        self.datasets = DatasetRepository(database)
        self._requester = job_requester(broker_url, retry_seconds=retry_seconds)
        self._recorder = JobRecorder(broker_url, self._repository, retry_seconds=retry_seconds)
        self._feed = JobChangeFeed(self._repository)
        self._scheduler = JobScheduler(self._requester, self._repository, self.schedules)

    async def open(self) -> Self:
        await self._requester.open()
        await self._recorder.open()
        await self._feed.open()
        await self._scheduler.open()
        return self

    async def close(self) -> None:
        await self._scheduler.close()
        await self._feed.close()
        await self._recorder.close()
        await self._requester.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def submit(
        self,
        request: JobRequest,
        options: JobOptions | None = None,
        form: MessageFormat = MessageFormat.JSON,
        *,
        at: datetime | None = None,
        owner: str | None = None,
    ) -> str:
        """Returns when the broker has confirmed it, or when it is stored for its time."""
        options = options or JobOptions()
        encoded = write_request(request, form)
        now = datetime.now(UTC)
        if at is not None and at > now:
            options = self._with_trace(options, request.type)
            pending = PendingJob(
                request.id, request.type, encoded.body, options, at, owner=owner or ""
            )
            await asyncio.to_thread(self.schedules.add_pending, [pending])
            return request.id
        change = waiting_change(
            request, encoded.body, encoded.content_type, now, now, options=options, owner=owner
        )
        await asyncio.to_thread(self._repository.add_new, change)
        try:
            properties = write_request_properties(
                encoded, request.id, RequestProperties(options=options)
            )
            await self._requester.send(request.type, encoded.body, properties)
        except PenstockError:
            await asyncio.to_thread(self._repository.forget, request.id)
            raise
        return request.id

    async def submit_workflow(
        self, document: Mapping[str, Any], options: JobOptions | None = None, owner: str = ""
    ) -> list[str]:
        """The ids of its jobs, all stored; they start when those before them have ended."""
        options = self._with_trace(options or JobOptions(), "workflow")
        pending = workflow_jobs(document, options, owner)
        await asyncio.to_thread(self.schedules.add_pending, pending)
        return [each.id for each in pending]

    async def put_matrix(self, matrix: DataMatrix) -> None:
        """Add it, or replace the one with its name."""
        await asyncio.to_thread(self.datasets.add_matrix, matrix)

    async def remove_matrix(self, name: str) -> None:
        """Data sets that were entered with it stay."""
        await asyncio.to_thread(self.datasets.remove_matrix, name)

    async def list_schedules(self) -> builtins.list[JobSchedule]:
        return await asyncio.to_thread(self.schedules.schedules)

    async def put_schedule(self, schedule: JobSchedule) -> JobSchedule:
        """Add it, or replace the one with its id."""
        occurrence(schedule, schedule.id)  # refuses an invalid request
        return await asyncio.to_thread(self.schedules.add_schedule, schedule, replace=True)

    async def pause_schedule(self, identity: str, *, paused: bool) -> JobSchedule:
        return await asyncio.to_thread(self.schedules.pause_schedule, identity, paused)

    async def remove_schedule(self, identity: str) -> None:
        """Jobs that it has started continue."""
        await asyncio.to_thread(self.schedules.remove_schedule, identity)

    @staticmethod
    def _with_trace(options: JobOptions, what: str) -> JobOptions:
        """Jobs that are submitted later, and those of a workflow, belong to the present trace."""
        spans = message_spans()
        if spans is None:
            return options
        span, headers = spans.publish(what, operation="schedule")
        span.end()
        return replace(options, traceparent=headers.get(TRACEPARENT))

    async def save_dataset(
        self, name: str, matrix: DataMatrix, rows: Sequence[Sequence[str]], owner: str = ""
    ) -> SavedDataset:
        """Returns its version; raises `DatasetError` with the problems of all cells."""
        return await asyncio.to_thread(self.datasets.save, name, matrix, rows, owner)

    async def cancel(self, identity: str) -> JobRecord:
        """Cancel a waiting or running job. Returns the present record: a worker reports the end."""
        record = await self.get(identity)
        if record.state.final:
            raise PreconditionFailed(f"job {identity!r} has ended: it is {record.state}")
        if await asyncio.to_thread(self.schedules.cancel_pending, identity):
            return await self.get(identity)
        run = await asyncio.to_thread(self._repository.run, identity)
        await self._requester.cancel(identity, run)
        return record

    async def retry(self, identity: str) -> JobRecord:
        """Submit a failed or cancelled job again."""
        record = await self.get(identity)
        if record.state not in (JobState.FAILED, JobState.CANCELLED):
            raise PreconditionFailed(
                f"job {identity!r} is {record.state}: only failed and cancelled jobs can be retried"
            )
        if record.state is JobState.FAILED and await self._requester.replay({identity}):
            return await self._next_record(identity, record)
        stored = await asyncio.to_thread(self._repository.content, identity, "request")
        request, form = read_request(stored.body)
        run = await asyncio.to_thread(self._repository.run, identity)
        options = await asyncio.to_thread(self._repository.options, identity)
        properties = RequestProperties(run=run + 1, options=options)
        await send_request(self._requester, request, form, properties)
        return await self._next_record(identity, record)

    async def replay(self, ids: Collection[str] | None = None) -> int:
        """Submit dead letters again, all or some. Returns how many."""
        return len(await self._requester.replay(ids))

    async def _next_record(self, identity: str, before: JobRecord) -> JobRecord:
        with self._feed.watcher(identity) as watcher:
            record = await self.get(identity)
            while record.revision <= before.revision:
                record = (await watcher.next_batch())[-1]
            return record

    async def get(self, identity: str) -> JobRecord:
        return await asyncio.to_thread(self._repository.get, identity)

    async def list(
        self,
        page: int = 1,
        size: int = 50,
        state: JobState | None = None,
        kind: str | None = None,
        text: str | None = None,
        owner: str | None = None,
    ) -> JobPage:
        """Newest first; `text` is part of an id."""
        return await asyncio.to_thread(self._repository.page, page, size, state, kind, text, owner)

    async def dead(self, page: int = 1, size: int = 50) -> JobPage:
        return await self.list(page, size, JobState.FAILED)

    async def events(self, identity: str) -> tuple[JobEvent, ...]:
        return await asyncio.to_thread(self._repository.events, identity)

    async def counts(self, owner: str | None = None) -> dict[JobState, int]:
        return await asyncio.to_thread(self._repository.counts, owner)

    async def result(self, identity: str) -> JobResponse:
        """The final response; `NotFound` if there is none yet, or it has expired."""
        stored = await asyncio.to_thread(self._repository.content, identity, "response")
        return (await asyncio.to_thread(read_response, stored.body))[0]

    async def output(self, identity: str, after: JobOutput = JobOutput()) -> JobOutput:  # noqa: B008
        """What the last attempt has printed, without what was read before."""
        return await asyncio.to_thread(self._repository.output, identity, after)

    async def follow_output(self, identity: str) -> AsyncIterator[str]:
        """What the job prints, up to its end. Another attempt begins anew."""
        seen = JobOutput()
        async for _ in self.watch(identity):
            seen = await self.output(identity, seen)
            if seen.text:
                yield seen.text

    async def workers(self, owner: str | None = None) -> dict[str, Sequence[JobRecord]]:
        """What each worker runs, the longest first."""
        found: dict[str, builtins.list[JobRecord]] = {}
        for record in await asyncio.to_thread(self._repository.running, owner):
            found.setdefault(record.worker or "", []).append(record)
        return {name: tuple(each) for name, each in found.items()}

    async def request(self, identity: str) -> JobRequest:
        stored = await asyncio.to_thread(self._repository.content, identity, "request")
        return (await asyncio.to_thread(read_request, stored.body))[0]

    async def watch(self, identity: str, after: int = 0) -> AsyncIterator[JobRecord]:
        """The present record, if its revision is later than `after`, then each change up to the
        end of the job."""
        with self._feed.watcher(identity) as watcher:
            record = await self.get(identity)
            if record.revision > after:
                yield record
                after = record.revision
            if record.state.final:
                return
            async for record in watcher:
                if record.revision > after:
                    yield record
                    after = record.revision
                    if record.state.final:
                        return

    async def watch_all(self, after: int | None = None) -> AsyncIterator[JobRecord]:
        """Changes of all jobs, from now on or since a revision."""
        with self._feed.watcher() as watcher:
            if after is not None:
                while records := await asyncio.to_thread(self._repository.since, after):
                    for record in records:
                        yield record
                        after = record.revision
            async for record in watcher:
                if after is None or record.revision > after:
                    yield record

    def watcher(self, owner: str | None = None) -> AbstractContextManager[JobChangeWatcher]:
        """Of all jobs, or those of an owner, from now on."""
        return self._feed.watcher(owner=owner)

    def may_submit(self) -> bool:
        """Whether the user of this view may submit jobs and save data sets."""
        return True

    def may_change(self, record: JobRecord) -> bool:
        """Whether the user of this view may cancel and retry the job."""
        return True

    def may_operate(self) -> bool:
        """Whether the user of this view may do what operators do."""
        return True

    def check_operator(self, what: str) -> None:
        """Raises `AccessRefused` if the user of this view may not do that."""

    async def log_action(self, action: str, detail: str) -> None:
        """For the audit log, if this view has a user."""
