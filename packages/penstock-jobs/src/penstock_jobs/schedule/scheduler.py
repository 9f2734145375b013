"""The scheduler: publishes jobs whose time has come or whose predecessors have ended.

It runs beside the recorder of the history, in every worker with a database, in the HTTP API and in
the dashboards. Any number may run.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from penstock.core.errors import ContentTooLarge, PenstockError
from penstock.core.logs import get_logger
from penstock.core.retry import is_transient
from penstock_jobs.errors import JobFormatError
from penstock_jobs.formats import read_request, read_response
from penstock_jobs.formats.message import EncodedMessage
from penstock_jobs.history.repository import JobRepository
from penstock_jobs.model import JobState
from penstock_jobs.queue.properties import RequestProperties, write_request_properties
from penstock_jobs.queue.requester import JobRequester
from penstock_jobs.schedule.repository import PendingJob, ScheduleRepository
from penstock_jobs.schedule.workflow import fill

log = get_logger(__name__)

_POLL_SECONDS: Final = 0.5
#: Between looks for schedules that a clock has put too far into the future.
_CORRECTION_SECONDS: Final = 60.0
#: With many waiting jobs a look takes long: then it is taken less often.
_IDLE_SHARE: Final = 4.0


class JobScheduler:
    def __init__(
        self, requester: JobRequester, jobs: JobRepository, schedules: ScheduleRepository
    ) -> None:
        self._requester = requester
        self._jobs = jobs
        self._schedules = schedules
        self._task: asyncio.Task[None] | None = None
        self._problems: dict[str, str] = {}  # of schedules, by id

    async def open(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        correction = loop.time()  # when it is due
        while True:
            looked = 0.0  # for so long, without finding a job
            try:
                if loop.time() >= correction:
                    await self._correct_times()
                    correction = loop.time() + _CORRECTION_SECONDS
                self._warn(await asyncio.to_thread(self._schedules.start_occurrences))
                found = 1
                while found:
                    start = loop.time()
                    found = await self.release()
                looked = loop.time() - start
            except Exception as error:  # tried again: jobs wait in the database
                log.warning("scheduler interrupted", reason=str(error))
            await asyncio.sleep(max(_POLL_SECONDS, _IDLE_SHARE * looked))

    async def _correct_times(self) -> None:
        for name, moment in (await asyncio.to_thread(self._schedules.correct_times)).items():
            log.warning("schedule moved back", schedule=name, next=moment.isoformat())

    def _warn(self, problems: dict[str, str]) -> None:
        """Once about each schedule that does not start."""
        for name, reason in problems.items() - self._problems.items():
            log.warning("schedule not started", schedule=name, reason=reason)
        self._problems = problems

    async def release(self) -> int:
        """Start the jobs that can start. Returns how many."""
        claimed = await asyncio.to_thread(self._schedules.claim)
        ends = await asyncio.gather(
            *(self._start(pending, states) for pending, states in claimed), return_exceptions=True
        )
        published: list[str] = []
        failures: list[BaseException] = []
        for (pending, _), end in zip(claimed, ends, strict=True):
            if end is True:
                published.append(pending.id)
            elif isinstance(end, BaseException):
                failures.append(end)  # the others start; this one is tried again
                log.warning("job not started", job=pending.id, reason=str(end))
        if published:
            await asyncio.to_thread(self._schedules.remove_pending, published)
        for failure in failures:
            if is_transient(failure) or not isinstance(failure, Exception):
                raise failure  # the database or the broker is away
        return len(claimed)

    async def _start(self, pending: PendingJob, states: Mapping[str, JobState]) -> bool:
        """Whether it is published; otherwise it has ended."""
        try:
            _check_predecessors(pending, states)
            body = (
                await asyncio.to_thread(self._body, pending) if pending.template else pending.body
            )
            request, form = read_request(body)
        except PenstockError as error:
            if error.transient:
                raise
            await self._end(pending, error)
            return False
        given = RequestProperties(options=pending.options, scheduled=True)
        properties = write_request_properties(EncodedMessage(body, form.value), request.id, given)
        try:
            await self._requester.send(request.type, body, properties)
        except ContentTooLarge as error:
            await self._end(pending, error)
            return False
        return True

    async def _end(self, pending: PendingJob, error: PenstockError) -> None:
        """It cannot start: that is recorded, as a worker would report it."""
        state = JobState.CANCELLED if isinstance(error, PredecessorFailed) else JobState.FAILED
        await asyncio.to_thread(self._schedules.end_pending, pending.id, state, str(error))

    def _body(self, pending: PendingJob) -> bytes:
        """With the results of the jobs before it."""

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
