"""The jobs as one user may see and change them; what changes them is in the audit log.

A job that a user may not see does not exist for them.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from typing import Any

from penstock.core.errors import AccessRefused, NotFound
from penstock_jobs.datasets.matrices import DataMatrix
from penstock_jobs.datasets.repository import SavedDataset
from penstock_jobs.formats import MessageFormat
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
from penstock_jobs.schedule.repository import JobSchedule
from penstock_jobs.service import JobService
from penstock_jobs.users.repository import JobUser, UserRepository


class UserJobs(JobService):
    def __init__(self, jobs: JobService, user: JobUser, users: UserRepository) -> None:
        self.schedules = jobs.schedules
        self.datasets = jobs.datasets
        self._jobs = jobs
        self._user = user
        self._users = users

    @property
    def _owner(self) -> str | None:
        return None if self._user.sees_all else self._user.name

    async def submit(
        self,
        request: JobRequest,
        options: JobOptions | None = None,
        form: MessageFormat = MessageFormat.JSON,
        *,
        at: datetime | None = None,
        owner: str | None = None,
    ) -> str:
        self._check(self.may_submit(), "submit jobs")
        identity = await self._jobs.submit(request, options, form, at=at, owner=self._user.name)
        await self._log("submitted", identity, request.type)
        return identity

    async def submit_workflow(
        self, document: Mapping[str, Any], options: JobOptions | None = None, owner: str = ""
    ) -> list[str]:
        self._check(self.may_submit(), "submit jobs")
        ids = await self._jobs.submit_workflow(document, options, self._user.name)
        await self._log("submitted workflow", ids[0].rpartition(".")[0], f"{len(ids)} jobs")
        return ids

    async def save_dataset(
        self, name: str, matrix: DataMatrix, rows: Sequence[Sequence[str]], owner: str = ""
    ) -> SavedDataset:
        self._check(self.may_submit(), "save data sets")
        saved = await self._jobs.save_dataset(name, matrix, rows, self._user.name)
        await self._log("saved data set", detail=saved.reference)
        return saved

    async def put_matrix(self, matrix: DataMatrix) -> None:
        self.check_operator("change matrices")
        await self._jobs.put_matrix(matrix)
        await self._log("changed matrix", detail=matrix.name)

    async def remove_matrix(self, name: str) -> None:
        self.check_operator("change matrices")
        await self._jobs.remove_matrix(name)
        await self._log("removed matrix", detail=name)

    async def list_schedules(self) -> builtins.list[JobSchedule]:
        self.check_operator("read schedules")
        return await self._jobs.list_schedules()

    async def put_schedule(self, schedule: JobSchedule) -> JobSchedule:
        self.check_operator("change schedules")
        stored = await self._jobs.put_schedule(replace(schedule, owner=self._user.name))
        await self._log("changed schedule", detail=schedule.id)
        return stored

    async def pause_schedule(self, identity: str, *, paused: bool) -> JobSchedule:
        self.check_operator("change schedules")
        stored = await self._jobs.pause_schedule(identity, paused=paused)
        await self._log("paused schedule" if paused else "resumed schedule", detail=identity)
        return stored

    async def remove_schedule(self, identity: str) -> None:
        self.check_operator("change schedules")
        await self._jobs.remove_schedule(identity)
        await self._log("removed schedule", detail=identity)

    async def cancel(self, identity: str) -> JobRecord:
        await self._check_change(identity, "cancel")
        record = await self._jobs.cancel(identity)
        await self._log("cancelled", identity)
        return record

    async def retry(self, identity: str) -> JobRecord:
        await self._check_change(identity, "retry")
        record = await self._jobs.retry(identity)
        await self._log("retried", identity)
        return record

    async def replay(self, ids: Collection[str] | None = None) -> int:
        self._check(self.may_operate(), "replay dead letters")
        count = await self._jobs.replay(ids)
        await self._log("replayed", detail=f"{count} dead letters")
        return count

    async def get(self, identity: str) -> JobRecord:
        record = await self._jobs.get(identity)
        if not self._sees(record):
            raise NotFound(f"there is no job {identity!r}")
        return record

    async def list(
        self,
        page: int = 1,
        size: int = 50,
        state: JobState | None = None,
        kind: str | None = None,
        text: str | None = None,
        owner: str | None = None,
    ) -> JobPage:
        return await self._jobs.list(page, size, state, kind, text, self._owner or owner)

    async def counts(self, owner: str | None = None) -> dict[JobState, int]:
        return await self._jobs.counts(self._owner or owner)

    async def workers(self, owner: str | None = None) -> dict[str, Sequence[JobRecord]]:
        return await self._jobs.workers(self._owner or owner)

    async def events(self, identity: str) -> tuple[JobEvent, ...]:
        await self.get(identity)
        return await self._jobs.events(identity)

    async def result(self, identity: str) -> JobResponse:
        await self.get(identity)
        return await self._jobs.result(identity)

    async def request(self, identity: str) -> JobRequest:
        await self.get(identity)
        return await self._jobs.request(identity)

    async def output(self, identity: str, after: JobOutput = JobOutput()) -> JobOutput:  # noqa: B008
        await self.get(identity)
        return await self._jobs.output(identity, after)

    async def watch(self, identity: str, after: int = 0) -> AsyncIterator[JobRecord]:
        await self.get(identity)
        async for record in self._jobs.watch(identity, after):
            yield record

    async def watch_all(self, after: int | None = None) -> AsyncIterator[JobRecord]:
        async for record in self._jobs.watch_all(after):
            if self._sees(record):
                yield record

    def watcher(self, owner: str | None = None) -> AbstractContextManager[JobChangeWatcher]:
        return self._jobs.watcher(self._owner or owner)

    def may_submit(self) -> bool:
        return self._user.may_submit

    def may_change(self, record: JobRecord) -> bool:
        own = record.owner == self._user.name and self._user.may_submit
        return own or self._user.is_operator

    def may_operate(self) -> bool:
        return self._user.is_operator

    def check_operator(self, what: str) -> None:
        self._check(self.may_operate(), what)

    async def log_action(self, action: str, detail: str) -> None:
        await self._log(action, detail=detail)

    def _sees(self, record: JobRecord) -> bool:
        return self._owner is None or record.owner == self._owner

    def _check(self, allowed: bool, what: str) -> None:
        if not allowed:
            raise AccessRefused(f"{self._user.name} is a {self._user.role} and may not {what}")

    async def _check_change(self, identity: str, verb: str) -> None:
        record = await self.get(identity)
        self._check(self.may_change(record), f"{verb} the job {identity}")

    async def _log(self, action: str, job: str = "", detail: str = "") -> None:
        await asyncio.to_thread(self._users.log, self._user.name, action, job, detail)
