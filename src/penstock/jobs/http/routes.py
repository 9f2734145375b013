"""The routes: each asks the desk, and says what came of it."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from penstock.core.errors import AccessRefused, NotFound, PreconditionFailed
from penstock.jobs.forms import json
from penstock.jobs.history.records import JobState
from penstock.jobs.http import answering, description, intake
from penstock.jobs.http.answering import Kind
from penstock.jobs.http.description import problems
from penstock.jobs.http.desk import JobDesk
from penstock.jobs.http.guarding import Limits
from penstock.jobs.http.intake import Purpose
from penstock.jobs.http.models import (
    CheckedDataset,
    Counts,
    Happening,
    Job,
    JobId,
    Jobs,
    Replay,
    Replayed,
)
from penstock.jobs.http.problems import Cell
from penstock.jobs.http.streaming import last_seen, streamed
from penstock.jobs.http.submitting import submitted
from penstock.jobs.options import Options

PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]
PageSize = Annotated[int, Query(ge=1, le=500)]
LastEventId = Annotated[str | None, Header(description="The last event that was seen.")]
Seconds = Annotated[float | None, Query(gt=0, le=30 * 86_400)]


def jobs(desk: JobDesk, limits: Limits) -> APIRouter:
    router = APIRouter(tags=["jobs"])

    @router.post(
        "/jobs",
        status_code=202,
        responses=problems(400, 403, 409, 413, 415, 422),
        openapi_extra={"requestBody": description.REQUEST_BODY},
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
        request, form = await submitted(http)
        if request.type not in limits.kinds:
            allowed = ", ".join(sorted(limits.kinds))
            raise AccessRefused(f"{request.type} cannot be asked for here; there are {allowed}")
        options = Options(priority=priority, attempts=attempts, soft=soft, hard=hard)
        identity = await desk.submit(request, options=options, form=form)
        response.headers["Location"] = f"/jobs/{identity}"
        return Job.of(await desk.get(identity))

    @router.get("/jobs", responses=problems(422))
    async def list_jobs(
        state: JobState | None = None,
        kind: Annotated[str | None, Query(max_length=64)] = None,
        text: Annotated[str | None, Query(max_length=255, description="In the id.")] = None,
        page: PageNumber = 1,
        size: PageSize = 50,
    ) -> Jobs:
        """Jobs, the newest first."""
        return Jobs.of(await desk.list(page, size, state, kind, text))

    @router.get("/counts", responses=problems())
    async def counts() -> Counts:
        """How many jobs are in each state."""
        return Counts(counts=await desk.counts())

    @router.get("/changes", response_class=Response, responses=description.EVENTS | problems(422))
    async def changes(last_event_id: LastEventId = None) -> Response:
        """Changes of all jobs as they happen."""
        return streamed(desk.watch_all(last_seen(last_event_id)))

    @router.get("/jobs/{id}", responses=problems(404))
    async def job(id: JobId) -> Job:  # noqa: A002 - as the address has it
        """Where a job stands."""
        return Job.of(await desk.get(id))

    return router


def one_job(desk: JobDesk) -> APIRouter:
    """What can be done with a job that is there."""
    router = APIRouter(prefix="/jobs/{id}", tags=["jobs"])

    @router.get(
        "/progress", response_class=Response, responses=description.EVENTS | problems(404, 422)
    )
    async def progress(id: JobId, last_event_id: LastEventId = None) -> Response:  # noqa: A002
        """How far it is, as it goes; the stream ends when the job has."""
        after = last_seen(last_event_id) or 0
        await desk.get(id)
        return streamed(desk.watch(id, after))

    @router.get("/events", responses=problems(404))
    async def events(id: JobId) -> list[Happening]:  # noqa: A002
        """What happened to it so far."""
        await desk.get(id)
        return [Happening.of(event) for event in await desk.events(id)]

    @router.get(
        "/result", response_class=Response, responses=description.RESULT | problems(404, 409)
    )
    async def result(
        id: JobId,  # noqa: A002
        as_: Annotated[Kind | None, Query(alias="as")] = None,
        scheme: Annotated[str, Query(max_length=64, description="Of a CSV.")] = answering.SCHEME,
        accept: Annotated[str, Header()] = "*/*",
    ) -> Response:
        """What came of it."""
        record = await desk.get(id)
        if not record.state.final:
            raise PreconditionFailed(f"job {id} is {record.state}: there is no result yet")
        found = answering.written(await desk.result(id), as_ or answering.accepted(accept), scheme)
        named = {"Content-Disposition": f'attachment; filename="{found.file_name}"'}
        return Response(found.body, media_type=found.media_type, headers=named)

    @router.post("/cancel", responses=problems(403, 404, 409))
    async def cancel(id: JobId) -> Job:  # noqa: A002
        """End it, whether it waits or runs."""
        return Job.of(await desk.cancel(id))

    @router.post("/retry", responses=problems(403, 404, 409))
    async def retry(id: JobId) -> Job:  # noqa: A002
        """Try again what failed or was cancelled."""
        return Job.of(await desk.retry(id))

    return router


def dead_letters(desk: JobDesk) -> APIRouter:
    router = APIRouter(prefix="/dead-letters", tags=["dead letters"])

    @router.get("", responses=problems(422))
    async def dead(page: PageNumber = 1, size: PageSize = 50) -> Jobs:
        """Jobs that failed and are not tried again by themselves."""
        return Jobs.of(await desk.dead(page, size))

    @router.post("/replay", responses=problems(400, 403, 404, 409))
    async def replay(wanted: Replay) -> Replayed:
        """Send them again: all, or those that are named."""
        return Replayed(replayed=await desk.replay(wanted.ids))

    return router


def others() -> APIRouter:
    router = APIRouter()

    @router.post(
        "/datasets/check",
        tags=["data sets"],
        responses=problems(413, 422),
        openapi_extra={"requestBody": description.DATASET_BODY},
    )
    async def check(http: Request, purpose: Purpose = Purpose.PREDICT) -> CheckedDataset:
        """Look through a CSV: everything that is wrong with it, by row and column."""
        found = await asyncio.to_thread(intake.check, await http.body(), purpose)
        return CheckedDataset(
            usable=not found.problems,
            samples=found.samples,
            humans=found.humans,
            animals=found.animals,
            indicators=list(found.indicators),
            problems=[
                Cell(row=each.row, column=each.column, text=each.text) for each in found.problems
            ],
        )

    @router.get("/schemas/{name}", tags=["schemas"], responses=problems(404))
    async def schema(name: str) -> Any:
        """`jobs.json` (JSON Schema) and `ichnaea.xsd`: what requests and responses look like."""
        if name == "jobs.json":
            return json.schema()
        if name == "ichnaea.xsd":
            text = files("penstock.jobs.forms").joinpath("ichnaea.xsd").read_bytes()
            return Response(text, media_type="application/xml")
        raise NotFound(f"there is no schema {name!r}; there are jobs.json and ichnaea.xsd")

    @router.get("/health", tags=["service"])
    async def health() -> dict[str, str]:
        """Whether it answers."""
        return {"status": "ok"}

    return router
