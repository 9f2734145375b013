"""The routes: each asks the desk, and says what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.responses import StreamingResponse

from penstock.core.errors import AccessRefused, ConfigurationError, NotFound, PreconditionFailed
from penstock.core.units import parse_count
from penstock_jobs.formats import json
from penstock_jobs.http import results, schemas, submission
from penstock_jobs.http.guard import ApiLimits
from penstock_jobs.http.problems import DatasetCell
from penstock_jobs.http.results import ResultFormat
from penstock_jobs.http.schemas import (
    CheckedDataset,
    DeadLetterReplay,
    DeadLetterReplayResult,
    Job,
    JobCounts,
    JobEventEntry,
    JobId,
    Jobs,
    problem_responses,
)
from penstock_jobs.http.submission import DatasetPurpose, read_submission
from penstock_jobs.model import JobOptions, JobRecord, JobState
from penstock_jobs.service import JobBackend

PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]
PageSize = Annotated[int, Query(ge=1, le=500)]
LastEventId = Annotated[str | None, Header(description="The last event that was seen.")]
Seconds = Annotated[float | None, Query(gt=0, le=30 * 86_400)]


def job_routes(backend: JobBackend, limits: ApiLimits) -> APIRouter:
    router = APIRouter(tags=["jobs"])

    @router.post(
        "/jobs",
        status_code=202,
        responses=problem_responses(400, 403, 409, 413, 415, 422),
        openapi_extra={"requestBody": schemas.REQUEST_BODY},
    )
    async def submit(
        http: Request,
        response: Response,
        priority: Annotated[int, Query(ge=0, le=9, description="9 goes first.")] = 0,
        attempts: Annotated[int | None, Query(ge=1, le=100)] = None,
        soft: Seconds = None,
        hard: Seconds = None,
    ) -> Job:
        """Ask for work. `soft` and `hard` are limits in seconds: asked to end, and ended."""
        request, form = await read_submission(http)
        if request.type not in limits.kinds:
            allowed = ", ".join(sorted(limits.kinds))
            raise AccessRefused(f"{request.type} cannot be asked for here; there are {allowed}")
        options = JobOptions(priority=priority, attempts=attempts, soft=soft, hard=hard)
        identity = await backend.submit(request, options=options, form=form)
        response.headers["Location"] = f"/jobs/{identity}"
        return Job.of(await backend.get(identity))

    @router.get("/jobs", responses=problem_responses(422))
    async def list_jobs(
        state: JobState | None = None,
        kind: Annotated[str | None, Query(max_length=64)] = None,
        text: Annotated[str | None, Query(max_length=255, description="In the id.")] = None,
        page: PageNumber = 1,
        size: PageSize = 50,
    ) -> Jobs:
        """Jobs, the newest first."""
        return Jobs.of(await backend.list(page, size, state, kind, text))

    @router.get("/counts", responses=problem_responses())
    async def counts() -> JobCounts:
        """How many jobs are in each state."""
        return JobCounts(counts=await backend.counts())

    @router.get(
        "/changes",
        response_class=Response,
        responses=schemas.EVENT_RESPONSES | problem_responses(422),
    )
    async def changes(last_event_id: LastEventId = None) -> Response:
        """Changes of all jobs as they happen."""
        return event_stream(backend.watch_all(parse_last_event_id(last_event_id)))

    @router.get("/jobs/{id}", responses=problem_responses(404))
    async def job(id: JobId) -> Job:  # noqa: A002 - as the address has it
        """Where a job stands."""
        return Job.of(await backend.get(id))

    return router


def single_job_routes(backend: JobBackend) -> APIRouter:
    """What can be done with a job that is there."""
    router = APIRouter(prefix="/jobs/{id}", tags=["jobs"])

    @router.get(
        "/progress",
        response_class=Response,
        responses=schemas.EVENT_RESPONSES | problem_responses(404, 422),
    )
    async def progress(id: JobId, last_event_id: LastEventId = None) -> Response:  # noqa: A002
        """How far it is, as it goes; the stream ends when the job has."""
        after = parse_last_event_id(last_event_id) or 0
        await backend.get(id)
        return event_stream(backend.watch(id, after))

    @router.get("/events", responses=problem_responses(404))
    async def events(id: JobId) -> list[JobEventEntry]:  # noqa: A002
        """What happened to it so far."""
        await backend.get(id)
        return [JobEventEntry.of(event) for event in await backend.events(id)]

    @router.get(
        "/result",
        response_class=Response,
        responses=schemas.RESULT_RESPONSES | problem_responses(404, 409),
    )
    async def result(
        id: JobId,  # noqa: A002
        as_: Annotated[ResultFormat | None, Query(alias="as")] = None,
        scheme: Annotated[str, Query(max_length=64, description="Of a CSV.")] = results.SCHEME,
        accept: Annotated[str, Header()] = "*/*",
    ) -> Response:
        """What came of it."""
        record = await backend.get(id)
        if not record.state.final:
            raise PreconditionFailed(f"job {id} is {record.state}: there is no result yet")
        found = results.write_result(
            await backend.result(id), as_ or results.accepted_format(accept), scheme
        )
        named = {"Content-Disposition": f'attachment; filename="{found.file_name}"'}
        return Response(found.body, media_type=found.media_type, headers=named)

    @router.post("/cancel", responses=problem_responses(403, 404, 409))
    async def cancel(id: JobId) -> Job:  # noqa: A002
        """End it, whether it waits or runs."""
        return Job.of(await backend.cancel(id))

    @router.post("/retry", responses=problem_responses(403, 404, 409))
    async def retry(id: JobId) -> Job:  # noqa: A002
        """Try again what failed or was cancelled."""
        return Job.of(await backend.retry(id))

    return router


def dead_letter_routes(backend: JobBackend) -> APIRouter:
    router = APIRouter(prefix="/dead-letters", tags=["dead letters"])

    @router.get("", responses=problem_responses(422))
    async def dead(page: PageNumber = 1, size: PageSize = 50) -> Jobs:
        """Jobs that failed and are not tried again by themselves."""
        return Jobs.of(await backend.dead(page, size))

    @router.post("/replay", responses=problem_responses(400, 403, 404, 409))
    async def replay(wanted: DeadLetterReplay) -> DeadLetterReplayResult:
        """Send them again: all, or those that are named."""
        return DeadLetterReplayResult(replayed=await backend.replay(wanted.ids))

    return router


def other_routes() -> APIRouter:
    router = APIRouter()

    @router.post(
        "/datasets/check",
        tags=["data sets"],
        responses=problem_responses(413, 422),
        openapi_extra={"requestBody": schemas.DATASET_BODY},
    )
    async def check(
        http: Request, purpose: DatasetPurpose = DatasetPurpose.PREDICT
    ) -> CheckedDataset:
        """Look through a CSV: everything that is wrong with it, by row and column."""
        found = await asyncio.to_thread(submission.check_dataset, await http.body(), purpose)
        return CheckedDataset(
            usable=not found.problems,
            samples=found.samples,
            humans=found.humans,
            animals=found.animals,
            indicators=list(found.indicators),
            problems=[
                DatasetCell(row=each.row, column=each.column, text=each.text)
                for each in found.problems
            ],
        )

    @router.get("/schemas/{name}", tags=["schemas"], responses=problem_responses(404))
    async def schema(name: str) -> Any:
        """`jobs.json` (JSON Schema) and `ichnaea.xsd`: what requests and responses look like."""
        if name == "jobs.json":
            return json.schema()
        if name == "ichnaea.xsd":
            text = files("penstock_jobs.formats").joinpath("ichnaea.xsd").read_bytes()
            return Response(text, media_type="application/xml")
        raise NotFound(f"there is no schema {name!r}; there are jobs.json and ichnaea.xsd")

    @router.get("/health", tags=["service"])
    async def health() -> dict[str, str]:
        """Whether it answers."""
        return {"status": "ok"}

    return router


# Changes of jobs as server-sent events: each has the revision as its id.
#
# A browser that lost its connection comes back with the last id it saw, and is told what it missed.
# In silence a comment goes out now and then, so that nobody on the way takes the stream for dead.

Changes = AsyncIterator[JobRecord]

KEEPALIVE_SECONDS: Final = 15.0
#: How soon a browser comes back.
_RETRY_LINE: Final = b"retry: 2000\n\n"
_KEEPALIVE: Final = b": here\n\n"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def parse_last_event_id(header: str | None) -> int | None:
    """Of the header `Last-Event-ID`."""
    if header is None or not header.strip():
        return None
    number = parse_count(header.strip())
    if number is None:
        raise ConfigurationError(f"Last-Event-ID: {header!r} is no id of an event from here")
    return number


def event_stream(changes: Changes, quiet: float = KEEPALIVE_SECONDS) -> StreamingResponse:
    return StreamingResponse(
        encode_events(changes, quiet), media_type="text/event-stream", headers=_HEADERS
    )


async def encode_events(changes: Changes, quiet: float) -> AsyncIterator[bytes]:
    yield _RETRY_LINE
    # The next change is waited for by a task of its own: a time limit must not end the iterator.
    async with _closing(changes):
        coming = asyncio.ensure_future(anext(changes, None))
        try:
            while True:
                done, _ = await asyncio.wait([coming], timeout=quiet)
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
    """Whoever watches for us is told that nobody does any more."""
    try:
        yield
    finally:
        if isinstance(changes, AsyncGenerator):
            await changes.aclose()
