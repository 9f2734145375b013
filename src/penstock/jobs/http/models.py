"""What the API answers with, as its description shows it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from penstock.jobs.history.records import Event, JobPage, JobRecord, JobState
from penstock.jobs.http.problems import Cell

#: Ids that can be part of an address; others' jobs may have any, and are found by listing.
ID_PATTERN = r"^[A-Za-z0-9_~@:+\-][A-Za-z0-9_.~@:+\-]{0,254}$"
JobId = Annotated[str, Path(description="The job's id.", examples=["build-2026-05-05"])]

_EXAMPLE: dict[str, Any] = {
    "id": "build-2026-05-05",
    "kind": "build_models",
    "state": "running",
    "progress": 0.42,
    "submitted": "2026-05-05T10:00:00Z",
    "changed": "2026-05-05T10:04:12Z",
    "start": "2026-05-05T10:00:01Z",
    "end": "2026-05-05T10:10:32Z",
    "error": None,
    "attempts": 1,
    "worker": "tethys-4711",
    "priority": 0,
    "summary": {},
    "revision": 1_204,
}


class Job(BaseModel):
    """Where a job stands."""

    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLE})

    id: str
    kind: str = Field(description="The request's type.")
    state: JobState
    progress: float = Field(ge=0, le=1, description="Of the work, 0 to 1.")
    submitted: datetime
    changed: datetime = Field(description="The last time anything was heard of it.")
    start: datetime | None
    end: datetime | None = Field(description="Expected while it runs; when it was, afterwards.")
    error: str | None = Field(description="Of the last attempt, if that failed.")
    attempts: int = Field(description="How often it was begun.")
    worker: str | None
    priority: int
    summary: dict[str, Any] = Field(description="What came of it, in a few figures.")
    revision: int = Field(description="Rises with each change of any job; the id of events.")

    @classmethod
    def of(cls, record: JobRecord) -> Job:
        return cls(
            id=record.id,
            kind=record.kind,
            state=record.state,
            progress=record.progress,
            submitted=record.submitted,
            changed=record.changed,
            start=record.start,
            end=record.end,
            error=record.error,
            attempts=record.attempts,
            worker=record.worker,
            priority=record.priority,
            summary=dict(record.summary),
            revision=record.revision,
        )


class Jobs(BaseModel):
    """A page of jobs, the newest first."""

    jobs: list[Job]
    total: int = Field(description="Of all that match, on all pages.")
    page: int
    size: int

    @classmethod
    def of(cls, found: JobPage) -> Jobs:
        jobs = [Job.of(record) for record in found.records]
        return cls(jobs=jobs, total=found.total, page=found.page, size=found.size)


class Happening(BaseModel):
    """One thing that happened to a job."""

    at: datetime
    state: JobState
    progress: float
    text: str = ""

    @classmethod
    def of(cls, event: Event) -> Happening:
        return cls(at=event.at, state=event.state, progress=event.progress, text=event.text)


class Counts(BaseModel):
    """How many jobs are in each state."""

    counts: dict[JobState, int]


class Replay(BaseModel):
    """Which of the dead letters to send again."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"ids": ["a", "b"]}})

    ids: list[str] | None = Field(None, description="All of them, if none are named.")


class Replayed(BaseModel):
    replayed: int


class CheckedDataset(BaseModel):
    """What a data set has, and everything that is wrong with it."""

    usable: bool
    samples: int
    humans: int
    animals: int
    indicators: list[str]
    problems: list[Cell]
