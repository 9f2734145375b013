"""The scheduler: publishes jobs whose time has come or whose predecessors have ended.

It runs beside the recorder of the history, in every worker with a database, in the HTTP API and in
the dashboards. Any number may run.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import psycopg

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock_jobs.errors import JobFormatError
from penstock_jobs.formats import read_request, read_response
from penstock_jobs.formats.message import EncodedMessage, MessageFormat, detect_format
from penstock_jobs.history.changes import FINAL_RANK, JobChange
from penstock_jobs.history.repository import JobRepository
from penstock_jobs.model import JobState
from penstock_jobs.queue.properties import RequestProperties, write_request_properties
from penstock_jobs.queue.requester import JobRequester
from penstock_jobs.schedule.repository import PendingJob, ScheduleRepository
from penstock_jobs.schedule.workflow import fill

log = get_logger(__name__)

_POLL_SECONDS: Final = 0.5


class JobScheduler:
    def __init__(
        self, requester: JobRequester, jobs: JobRepository, schedules: ScheduleRepository
    ) -> None:
        self._requester = requester
        self._jobs = jobs
        self._schedules = schedules
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self._schedules.start_occurrences)
                while await self.release():
                    pass
            except (PenstockError, psycopg.Error, OSError) as error:
                log.warning("scheduler interrupted", reason=str(error))
            await asyncio.sleep(_POLL_SECONDS)

    async def release(self) -> int:
        """Start the jobs that can start. Returns how many."""
        claimed = await asyncio.to_thread(self._schedules.claim)
        for pending, states in claimed:
            await self._start(pending, states)
        return len(claimed)

    async def _start(self, pending: PendingJob, states: Mapping[str, JobState]) -> None:
        try:
            _check_predecessors(pending, states)
            body = await asyncio.to_thread(self._body, pending)
            request, form = read_request(body)
        except PenstockError as error:
            await self._end(pending, error)
        else:
            encoded = EncodedMessage(body, form.value)
            given = RequestProperties(options=pending.options, scheduled=True)
            properties = write_request_properties(encoded, request.id, given)
            await self._requester.send(request.type, body, properties)
        await asyncio.to_thread(self._schedules.remove_pending, pending.id)

    async def _end(self, pending: PendingJob, error: PenstockError) -> None:
        """It cannot start: that is recorded, as a worker would report it."""
        now = datetime.now(UTC)
        state = JobState.CANCELLED if isinstance(error, PredecessorFailed) else JobState.FAILED
        change = JobChange(
            pending.id, pending.kind, state, 1, FINAL_RANK, now, 1.0, end=now, error=str(error)
        )
        await asyncio.to_thread(self._jobs.add, [change])

    def _body(self, pending: PendingJob) -> bytes:
        if not pending.template or detect_format(pending.body) is not MessageFormat.JSON:
            return pending.body

        def result(identity: str) -> Any:
            response, _ = read_response(self._jobs.content(identity, "response").body)
            if response.models:
                return base64.b64encode(response.models).decode()
            return response.value

        def results() -> list[Any]:
            return [result(each) for each in pending.after]

        filled = fill(json.loads(pending.body), result, results)
        return json.dumps(filled, sort_keys=True, separators=(",", ":")).encode()


class PredecessorFailed(JobFormatError):
    """A job does not start because one before it has no result."""


def _check_predecessors(pending: PendingJob, states: Mapping[str, JobState]) -> None:
    for each in pending.after:
        state = states.get(each)
        if state is None:
            raise PredecessorFailed(f"it comes after {each}, which does not exist any more")
        if pending.when == "done" and state is not JobState.DONE:
            raise PredecessorFailed(f"it comes after {each}, which is {state}")
