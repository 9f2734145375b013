"""The routes of the API, and the encoding of job changes as server-sent events."""

from __future__ import annotations

import asyncio
import json as json_module
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib.resources import files
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from starlette.responses import StreamingResponse

from penstock.core.errors import AccessRefused, ConfigurationError, NotFound, PreconditionFailed
from penstock.core.units import parse_count
from penstock_jobs.formats import json
from penstock_jobs.http import results, schemas
from penstock_jobs.http.guard import USER, ApiLimits
from penstock_jobs.http.results import ResultFormat
from penstock_jobs.http.schemas import (
    AuditRecord,
    DeadLetterReplay,
    DeadLetterReplayResult,
    Job,
    JobCounts,
    JobEventEntry,
    JobId,
    Jobs,
    NewSchedule,
    ScheduleEntry,
    WorkflowJobs,
    problem_responses,
)
from penstock_jobs.http.submission import read_submission
from penstock_jobs.model import JobOptions, JobRecord, JobState
from penstock_jobs.schedule.repository import JobSchedule, occurrence, workflow_jobs
from penstock_jobs.service import JobService
from penstock_jobs.users.user_jobs import UserJobs

PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]
PageSize = Annotated[int, Query(ge=1, le=500)]
LastEventId = Annotated[str | None, Header(description="The id of the last received event.")]
Seconds = Annotated[float | None, Query(gt=0, le=30 * 86_400)]


def _view(http: Request) -> JobService:
    """The jobs as the user of the request may see them."""
    jobs: JobService = http.app.state.jobs
    user = http.scope.get(USER)
    return jobs if user is None else UserJobs(jobs, user, http.app.state.users)


JobView = Annotated[JobService, Depends(_view)]


def job_routes(limits: ApiLimits) -> APIRouter:
    router = APIRouter(tags=["jobs"])

    @router.post(
        "/jobs",
        status_code=202,
        responses=problem_responses(400, 403, 409, 413, 415, 422),
        openapi_extra={"requestBody": schemas.REQUEST_BODY},
    )
    async def submit(
        jobs: JobView,
        http: Request,
        response: Response,
        priority: Annotated[int, Query(ge=0, le=9, description="Jobs with 9 run first.")] = 0,
        attempts: Annotated[int | None, Query(ge=1, le=100)] = None,
        soft: Seconds = None,
        hard: Seconds = None,
        keep: Annotated[float | None, Query(gt=0, le=3650 * 86_400)] = None,
        unique: Annotated[str | None, Query(min_length=1, max_length=255)] = None,
        at: datetime | None = None,
    ) -> Job:
        """Submit a job. `soft` and `hard` are time limits in seconds, `keep` is how long it is
        stored. A job with a `unique` key is refused while another one is unfinished. With `at` it
        starts at that time."""
        request, form = await read_submission(http, jobs)
        if request.type not in limits.kinds:
            allowed = ", ".join(sorted(limits.kinds))
            raise AccessRefused(f"type {request.type!r} is not allowed here; allowed are {allowed}")
        options = JobOptions(priority, attempts, soft, hard, keep, unique)
        due = None if at is None else at.astimezone(UTC)
        identity = await jobs.submit(request, options=options, form=form, at=due)
        response.headers["Location"] = f"/jobs/{identity}"
        return Job.of(await jobs.get(identity))

    @router.get("/jobs", responses=problem_responses(422))
    async def list_jobs(
        jobs: JobView,
        state: JobState | None = None,
        kind: Annotated[str | None, Query(max_length=64)] = None,
        text: Annotated[str | None, Query(max_length=255, description="A part of the id.")] = None,
        page: PageNumber = 1,
        size: PageSize = 50,
    ) -> Jobs:
        """List jobs, newest first."""
        return Jobs.of(await jobs.list(page, size, state, kind, text))

    return router


def overview_routes() -> APIRouter:
    """All jobs together."""
    router = APIRouter(tags=["jobs"])

    @router.get("/workers", responses=problem_responses())
    async def workers(jobs: JobView) -> dict[str, list[Job]]:
        """What each worker runs, the longest first."""
        found = await jobs.workers()
        return {name: [Job.of(each) for each in records] for name, records in found.items()}

    @router.get("/counts", responses=problem_responses())
    async def counts(jobs: JobView) -> JobCounts:
        """The number of jobs in each state."""
        return JobCounts(counts=await jobs.counts())

    @router.get(
        "/changes",
        response_class=Response,
        responses=schemas.EVENT_RESPONSES | problem_responses(422),
    )
    async def changes(jobs: JobView, last_event_id: LastEventId = None) -> Response:
        """Changes of all jobs as they happen."""
        return event_stream(jobs.watch_all(parse_last_event_id(last_event_id)))

    return router


def single_job_routes() -> APIRouter:
    router = APIRouter(prefix="/jobs/{id}", tags=["jobs"])

    @router.get("", responses=problem_responses(404))
    async def job(jobs: JobView, id: JobId) -> Job:  # noqa: A002 - the name in the path
        """A job."""
        return Job.of(await jobs.get(id))

    @router.get(
        "/progress",
        response_class=Response,
        responses=schemas.EVENT_RESPONSES | problem_responses(404, 422),
    )
    async def progress(jobs: JobView, id: JobId, last_event_id: LastEventId = None) -> Response:  # noqa: A002
        """Changes of a job as they happen; the stream ends with the job."""
        after = parse_last_event_id(last_event_id) or 0
        await jobs.get(id)
        return event_stream(jobs.watch(id, after))

    @router.get("/events", responses=problem_responses(404))
    async def events(jobs: JobView, id: JobId) -> list[JobEventEntry]:  # noqa: A002
        """The changes of a job so far."""
        await jobs.get(id)
        return [JobEventEntry.model_validate(event) for event in await jobs.events(id)]

    @router.get(
        "/result",
        response_class=Response,
        responses=schemas.RESULT_RESPONSES | problem_responses(404, 409),
    )
    async def result(
        jobs: JobView,
        id: JobId,  # noqa: A002
        as_: Annotated[ResultFormat | None, Query(alias="as")] = None,
        scheme: Annotated[str, Query(max_length=64, description="For a CSV.")] = results.SCHEME,
        accept: Annotated[str, Header()] = "*/*",
    ) -> Response:
        """The result of a job."""
        record = await jobs.get(id)
        if not record.state.final:
            raise PreconditionFailed(f"job {id} is {record.state}: there is no result yet")
        kind = as_ or results.accepted_format(accept)
        file = results.write_result(await jobs.result(id), kind, scheme)
        headers = {"Content-Disposition": f'attachment; filename="{file.file_name}"'}
        return Response(file.body, media_type=file.media_type, headers=headers)

    @router.get(
        "/output",
        response_class=Response,
        responses=schemas.OUTPUT_RESPONSES | problem_responses(404),
    )
    async def output(jobs: JobView, id: JobId, follow: bool = False) -> Response:  # noqa: A002
        """What the job has printed; with `follow`, what it prints up to its end, too."""
        await jobs.get(id)
        if follow:
            return StreamingResponse(
                jobs.follow_output(id), media_type="text/plain", headers=_HEADERS
            )
        return Response((await jobs.output(id)).text, media_type="text/plain")

    @router.post("/cancel", responses=problem_responses(403, 404, 409))
    async def cancel(jobs: JobView, id: JobId) -> Job:  # noqa: A002
        """Cancel a waiting or running job."""
        return Job.of(await jobs.cancel(id))

    @router.post("/retry", responses=problem_responses(403, 404, 409))
    async def retry(jobs: JobView, id: JobId) -> Job:  # noqa: A002
        """Submit a failed or cancelled job again."""
        return Job.of(await jobs.retry(id))

    return router


def schedule_routes(limits: ApiLimits) -> APIRouter:
    router = APIRouter()

    def check(kinds: Iterable[str]) -> None:
        if refused := set(kinds) - limits.kinds:
            allowed = ", ".join(sorted(limits.kinds))
            raise AccessRefused(f"type {min(refused)!r} is not allowed here; allowed are {allowed}")

    @router.post(
        "/workflows",
        status_code=202,
        tags=["workflows"],
        responses=problem_responses(400, 403, 409),
    )
    async def submit(jobs: JobView, workflow: dict[str, Any]) -> WorkflowJobs:
        """Submit jobs that start after others: `steps`, a `chain`, or a `group` with a `join`."""
        check(each.kind for each in workflow_jobs(workflow, JobOptions()))
        return WorkflowJobs(jobs=await jobs.submit_workflow(workflow))

    @router.get("/schedules", tags=["schedules"], responses=problem_responses())
    async def schedules(jobs: JobView) -> list[ScheduleEntry]:
        """List schedules."""
        return [ScheduleEntry.of(each) for each in await jobs.list_schedules()]

    @router.put("/schedules/{id}", tags=["schedules"], responses=problem_responses(400, 403, 422))
    async def put(jobs: JobView, id: JobId, schedule: NewSchedule) -> ScheduleEntry:  # noqa: A002
        """Submit a request again and again: every so many seconds, or by a cron expression."""
        jobs.check_operator("change schedules")
        body = json_module.dumps({**schedule.request, "id": id}).encode()
        options = JobOptions(
            schedule.priority, schedule.attempts, keep=schedule.keep, unique=schedule.unique
        )
        new = JobSchedule(id, body, schedule.every, schedule.cron, schedule.zone, options)
        check([occurrence(new, id).kind])
        return ScheduleEntry.of(await jobs.put_schedule(new))

    @router.delete(
        "/schedules/{id}", tags=["schedules"], status_code=204, responses=problem_responses(404)
    )
    async def delete(jobs: JobView, id: JobId) -> None:  # noqa: A002
        """Remove a schedule; jobs that it has started continue."""
        await jobs.remove_schedule(id)

    @router.post("/schedules/{id}/pause", tags=["schedules"], responses=problem_responses(403, 404))
    async def pause(jobs: JobView, id: JobId) -> ScheduleEntry:  # noqa: A002
        """Start no more jobs of a schedule."""
        return ScheduleEntry.of(await jobs.pause_schedule(id, paused=True))

    @router.post(
        "/schedules/{id}/resume", tags=["schedules"], responses=problem_responses(403, 404)
    )
    async def resume(jobs: JobView, id: JobId) -> ScheduleEntry:  # noqa: A002
        """Start jobs of a paused schedule again; missed ones are started once."""
        return ScheduleEntry.of(await jobs.pause_schedule(id, paused=False))

    return router


def dead_letter_routes() -> APIRouter:
    router = APIRouter(prefix="/dead-letters", tags=["dead letters"])

    @router.get("", responses=problem_responses(422))
    async def dead(jobs: JobView, page: PageNumber = 1, size: PageSize = 50) -> Jobs:
        """List jobs that failed permanently."""
        return Jobs.of(await jobs.dead(page, size))

    @router.post("/replay", responses=problem_responses(400, 403, 404, 409))
    async def replay(jobs: JobView, wanted: DeadLetterReplay) -> DeadLetterReplayResult:
        """Submit dead letters again, all or some."""
        return DeadLetterReplayResult(replayed=await jobs.replay(wanted.ids))

    return router


def audit_routes() -> APIRouter:
    router = APIRouter(tags=["users"])

    @router.get("/audit", responses=problem_responses(403))
    async def audit(
        http: Request,
        jobs: JobView,
        size: PageSize = 100,
        job: Annotated[str | None, Query(max_length=255)] = None,
    ) -> list[AuditRecord]:
        """Who did what, the newest first; for operators."""
        jobs.check_operator("read the audit log")
        entries = await asyncio.to_thread(http.app.state.users.audit, size, job)
        return [AuditRecord.model_validate(each) for each in entries]

    return router


def other_routes() -> APIRouter:
    router = APIRouter()

    @router.get("/schemas/{name}", tags=["schemas"], responses=problem_responses(404))
    async def schema(name: str) -> Any:
        """The schemas of requests and responses: `jobs.json` (JSON Schema) and `ichnaea.xsd`."""
        if name == "jobs.json":
            return json.schema()
        if name == "ichnaea.xsd":
            text = files("penstock_jobs.formats").joinpath("ichnaea.xsd").read_bytes()
            return Response(text, media_type="application/xml")
        raise NotFound(f"there is no schema {name!r}; the schemas are jobs.json and ichnaea.xsd")

    @router.get("/health", tags=["service"])
    async def health() -> dict[str, str]:
        """Responds while the API runs."""
        return {"status": "ok"}

    return router


Changes = AsyncIterator[JobRecord]

#: A comment is sent after so long without an event, so that no proxy closes the connection.
KEEPALIVE_SECONDS: Final = 15.0
#: The delay before a browser reconnects.
_RETRY_LINE: Final = b"retry: 2000\n\n"
_KEEPALIVE: Final = b": here\n\n"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def parse_last_event_id(header: str | None) -> int | None:
    if header is None or not header.strip():
        return None
    number = parse_count(header.strip())
    if number is None:
        raise ConfigurationError(f"Last-Event-ID {header!r}: must be the id of an event")
    return number


def event_stream(changes: Changes, keepalive: float = KEEPALIVE_SECONDS) -> StreamingResponse:
    return StreamingResponse(
        encode_events(changes, keepalive), media_type="text/event-stream", headers=_HEADERS
    )


async def encode_events(changes: Changes, keepalive: float) -> AsyncIterator[bytes]:
    """Each event has the revision of the job as its id, so a browser that reconnects gets the
    changes it missed."""
    yield _RETRY_LINE
    async with _closing(changes):
        # A task of its own, because a timeout must not end the iterator.
        coming = asyncio.ensure_future(anext(changes, None))
        try:
            while True:
                done, _ = await asyncio.wait([coming], timeout=keepalive)
                if not done:
                    yield _KEEPALIVE
                    continue
                record = coming.result()
                if record is None:
                    return
                yield _event(record)
                coming = asyncio.ensure_future(anext(changes, None))
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


def _event(record: JobRecord) -> bytes:
    data = Job.of(record).model_dump_json()
    return f"id: {record.revision}\nevent: job\ndata: {data}\n\n".encode()


@asynccontextmanager
async def _closing(changes: Changes) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if isinstance(changes, AsyncGenerator):
            await changes.aclose()
