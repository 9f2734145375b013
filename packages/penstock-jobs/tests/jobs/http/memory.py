"""Jobs in memory, which a test moves along."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from dataclasses import replace as dataclass_replace
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.core.errors import NotFound, PreconditionFailed
from penstock_jobs.datasets.matrices import BUILT_IN, DataMatrix, check_name, dataset_of
from penstock_jobs.datasets.repository import DatasetRepository, SavedDataset
from penstock_jobs.formats import MessageFormat
from penstock_jobs.formats.csv import write_csv
from penstock_jobs.history.feed import JobChangeWatcher
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
from penstock_jobs.schedule.repository import JobSchedule, PendingJob, ScheduleRepository
from penstock_jobs.schedule.timing import parse_timing
from penstock_jobs.service import JobService


def now() -> datetime:
    return datetime.now(UTC)


AGAIN = (JobState.FAILED, JobState.CANCELLED)


class MemorySchedules(ScheduleRepository):
    def __init__(self) -> None:
        self.added: dict[str, JobSchedule] = {}
        self.pending: list[PendingJob] = []

    def add_pending(self, pending: Sequence[PendingJob]) -> None:
        self.pending += pending

    def schedules(self) -> list[JobSchedule]:
        return list(self.added.values())

    def add_schedule(self, schedule: JobSchedule, *, replace: bool = False) -> JobSchedule:
        timing = parse_timing(schedule.every, schedule.cron, schedule.zone)
        self.added[schedule.id] = new = dataclass_replace(schedule, next=timing.after(now(), now()))
        return new

    def pause_schedule(self, identity: str, paused: bool) -> JobSchedule:
        if identity not in self.added:
            raise NotFound(f"there is no schedule {identity!r}")
        self.added[identity] = dataclass_replace(self.added[identity], paused=paused)
        return self.added[identity]

    def remove_schedule(self, identity: str) -> None:
        if self.added.pop(identity, None) is None:
            raise NotFound(f"there is no schedule {identity!r}")


class MemoryDatasets(DatasetRepository):
    def __init__(self) -> None:
        self.own: dict[str, DataMatrix] = {}
        self.saved: dict[str, list[tuple[SavedDataset, str]]] = {}

    def matrices(self) -> list[DataMatrix]:
        return [*BUILT_IN.values(), *self.own.values()]

    def add_matrix(self, matrix: DataMatrix) -> None:
        if matrix.name in BUILT_IN:
            raise PreconditionFailed(f"the matrix {matrix.name!r} is built in")
        self.own[matrix.name] = matrix

    def remove_matrix(self, name: str) -> None:
        if self.own.pop(name, None) is None:
            raise NotFound(f"there is no matrix {name!r}")

    def save(
        self, name: str, matrix: DataMatrix, rows: Sequence[Sequence[str]], who: str = ""
    ) -> SavedDataset:
        check_name(name)
        text = write_csv(dataset_of(matrix, rows))
        versions = self.saved.setdefault(name, [])
        samples = text.count("\n") - 1
        new = SavedDataset(name, len(versions) + 1, matrix.name, samples, who, now())
        versions.append((new, text))
        return new

    def datasets(self) -> list[SavedDataset]:
        return [versions[-1][0] for versions in self.saved.values()]

    def versions(self, name: str) -> list[SavedDataset]:
        if name not in self.saved:
            raise NotFound(f"there is no data set {name!r}")
        return [saved for saved, _ in reversed(self.saved[name])]

    def text(self, reference: str) -> str:
        for versions in self.saved.values():
            for saved, text in reversed(versions):
                if reference in (saved.name, saved.reference):
                    return text
        raise NotFound(f"there is no data set {reference!r}")

    def remove(self, name: str) -> None:
        if self.saved.pop(name, None) is None:
            raise NotFound(f"there is no data set {name!r}")


class MemoryJobs(JobService):
    """A test moves a job by `change` and ends it by `finish`."""

    def __init__(self) -> None:
        self.schedules = MemorySchedules()
        self.datasets = MemoryDatasets()
        self.records: dict[str, JobRecord] = {}
        self.requests: dict[str, JobRequest] = {}
        self.options: dict[str, JobOptions] = {}
        self.forms: dict[str, MessageFormat] = {}
        self.results: dict[str, JobResponse] = {}
        self.happened: dict[str, list[JobEvent]] = {}
        self.printed: dict[str, str] = {}
        self.watching = asyncio.Event()
        self._revision = 0
        self._changes: list[JobRecord] = []
        self._changed = asyncio.Condition()
        self._watchers: list[JobChangeWatcher] = []

    async def submit(
        self,
        request: JobRequest,
        options: JobOptions | None = None,
        form: MessageFormat = MessageFormat.JSON,
        *,
        at: datetime | None = None,
        owner: str | None = None,
    ) -> str:
        if request.id in self.records:
            raise PreconditionFailed(f"there is a job {request.id!r}")
        key = None if options is None else options.unique
        for record in self.records.values():
            if key and not record.state.final and self.options[record.id].unique == key:
                raise PreconditionFailed(f"the job {record.id!r} has the unique key {key!r}")
        self.requests[request.id] = request
        self.options[request.id] = options or JobOptions()
        self.forms[request.id] = form
        state = JobState.WAITING if at is None or at <= now() else JobState.SCHEDULED
        record = JobRecord(request.id, request.type, state, now(), now(), owner=owner)
        record = replace(record, priority=self.options[request.id].priority)
        await self._store(record)
        return request.id

    async def change(self, identity: str, **fields: Any) -> JobRecord:
        return await self._store(replace(self.records[identity], **fields))

    async def finish(self, identity: str, response: JobResponse) -> JobRecord:
        self.results[identity] = response
        end = now() + timedelta(minutes=3)
        return await self.change(identity, state=JobState.DONE, progress=1.0, start=now(), end=end)

    async def get(self, identity: str) -> JobRecord:
        if identity not in self.records:
            raise NotFound(f"there is no job {identity!r}")
        return self.records[identity]

    async def events(self, identity: str) -> tuple[JobEvent, ...]:
        return tuple(self.happened.get(identity, ()))

    async def list(
        self,
        page: int = 1,
        size: int = 50,
        state: JobState | None = None,
        kind: str | None = None,
        text: str | None = None,
        owner: str | None = None,
    ) -> JobPage:
        found = [
            record
            for record in reversed(self.records.values())
            if state in (None, record.state)
            and kind in (None, record.kind)
            and (text is None or text in record.id)
            and owner in (None, record.owner)
        ]
        begin = (page - 1) * size
        return JobPage(tuple(found[begin : begin + size]), len(found), page, size)

    async def watch(self, identity: str, after: int = 0) -> AsyncIterator[JobRecord]:
        record = await self.get(identity)
        if record.revision > after:
            yield record
        if record.state.final:
            return
        async for change in self.watch_all(max(record.revision, after)):
            if change.id == identity:
                yield change
                if change.state.final:
                    return

    async def watch_all(self, after: int | None = None) -> AsyncIterator[JobRecord]:
        seen = self._revision if after is None else after
        while True:
            async with self._changed:
                self.watching.set()
                while self._revision <= seen:
                    await self._changed.wait()
                news = [record for record in self._changes if record.revision > seen]
            for record in news:
                seen = record.revision
                yield record

    @contextmanager
    def watcher(self, owner: str | None = None) -> Iterator[JobChangeWatcher]:
        watcher = JobChangeWatcher(None, owner)
        self._watchers.append(watcher)
        yield watcher
        self._watchers.remove(watcher)

    async def result(self, identity: str) -> JobResponse:
        if identity not in self.results:
            raise NotFound(f"there is no result of job {identity!r}")
        return self.results[identity]

    async def workers(self, owner: str | None = None) -> dict[str, Sequence[JobRecord]]:
        found: dict[str, tuple[JobRecord, ...]] = {}
        for each in self.records.values():
            if each.state is JobState.RUNNING and each.worker and owner in (None, each.owner):
                found[each.worker] = (*found.get(each.worker, ()), each)
        return dict(found)

    async def request(self, identity: str) -> JobRequest:
        return self.requests[identity]

    async def output(self, identity: str, after: JobOutput = JobOutput()) -> JobOutput:  # noqa: B008
        text = self.printed.get(identity, "")
        return JobOutput(text[after.end :], len(text), (1, 1))

    async def cancel(self, identity: str) -> JobRecord:
        if (await self.get(identity)).state.final:
            raise PreconditionFailed(f"job {identity} has ended")
        return await self.change(identity, state=JobState.CANCELLED)

    async def retry(self, identity: str) -> JobRecord:
        record = await self.get(identity)
        if record.state not in AGAIN:
            raise PreconditionFailed(f"job {identity} is {record.state}")
        return await self.change(identity, state=JobState.WAITING, progress=0.0, error=None)

    async def dead(self, page: int = 1, size: int = 50) -> JobPage:
        return await self.list(page, size, JobState.FAILED)

    async def replay(self, ids: Collection[str] | None = None) -> int:
        chosen = ids
        if chosen is None:
            chosen = [record.id for record in (await self.dead(size=500)).records]
        for each in chosen:
            await self.retry(each)
        return len(chosen)

    async def counts(self, owner: str | None = None) -> dict[JobState, int]:
        shown = [each for each in self.records.values() if owner in (None, each.owner)]
        states = [record.state for record in shown]
        return {state: states.count(state) for state in JobState}

    async def _store(self, record: JobRecord) -> JobRecord:
        async with self._changed:
            self._revision += 1
            stored = replace(record, revision=self._revision)
            self.records[record.id] = stored
            self._changes.append(stored)
            for watcher in self._watchers:
                watcher.add(stored)
            event = JobEvent(now(), record.state, record.progress, record.error or "")
            self.happened.setdefault(record.id, []).append(event)
            self._changed.notify_all()
        return stored
