"""What the API answers with, as its description shows it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from penstock_jobs.http.problems import MEDIA_TYPE, DatasetCell
from penstock_jobs.model import JobEvent, JobPage, JobRecord, JobRequest, JobState

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


class JobEventEntry(BaseModel):
    """One thing that happened to a job."""

    at: datetime
    state: JobState
    progress: float
    text: str = ""

    @classmethod
    def of(cls, event: JobEvent) -> JobEventEntry:
        return cls(at=event.at, state=event.state, progress=event.progress, text=event.text)


class JobCounts(BaseModel):
    """How many jobs are in each state."""

    counts: dict[JobState, int]


class DeadLetterReplay(BaseModel):
    """Which of the dead letters to send again."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"ids": ["a", "b"]}})

    ids: list[str] | None = Field(None, description="All of them, if none are named.")


class DeadLetterReplayResult(BaseModel):
    replayed: int


class CheckedDataset(BaseModel):
    """What a data set has, and everything that is wrong with it."""

    usable: bool
    samples: int
    humans: int
    animals: int
    indicators: list[str]
    problems: list[DatasetCell]


# What the API's description says of bodies that FastAPI does not read itself, with examples.

_COMPONENTS: Final = "#/components/schemas/{model}"

_EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "fake": {
        "summary": "Ten seconds of nothing, told once a second",
        "value": {"type": "fake", "id": "trial-1", "duration": 10, "interval": 1},
    },
    "build": {
        "summary": "Models from reference samples",
        "value": {
            "type": "build_models",
            "id": "build-2026-05-05",
            "dataset": {"CLASS": ["P1-HM01", "P1-CW01"], "FC": ["2,2E+07", "<20"]},
            "agings": {"FC": [{"position": 0.5, "trials": [[[0, 7.1], [24, 6.6]]]}]},
        },
    },
    "predict": {
        "summary": "Where samples come from; the models in base64",
        "value": {
            "type": "predict_models",
            "id": "river-7",
            "dataset": {"CLASS": ["P6-X01"], "FC": ["1,4E+05"], "GA17": ["310"]},
            "models": "UEsDBBQ=",
        },
    },
}
_XML: Final = '<request id="trial-1" type="fake" duration="10" interval="1"/>'
_FORM: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {"type": "string", "enum": ["fake", "build_models", "predict_models"]},
        "id": {"type": "string", "description": "Made up if there is none."},
        "dataset": {"type": "string", "format": "binary", "description": "A CSV."},
        "aging": {
            "type": "array",
            "items": {"type": "string", "format": "binary"},
            "description": "To build: files env<NAME>-<SEASON>.txt, or a zip of them.",
        },
        "models": {"type": "string", "format": "binary", "description": "To predict: the zip."},
        "duration": {"type": "number", "minimum": 0},
        "interval": {"type": "number", "exclusiveMinimum": 0},
    },
}

#: The body of `POST /jobs`.
REQUEST_BODY: Final[dict[str, Any]] = {
    "required": True,
    "description": "What is wanted. JSON, the XML and MIME of the Ichnaea clients, or a form.",
    "content": {
        "application/json": {
            "schema": {"$ref": "#/components/schemas/JobRequest"},
            "examples": _EXAMPLES,
        },
        "multipart/form-data": {"schema": _FORM},
        "text/xml": {"schema": {"type": "string"}, "example": _XML},
        "multipart/mixed": {"schema": {"type": "string", "format": "binary"}},
    },
}
#: The body of `POST /datasets/check`.
DATASET_BODY: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        "text/csv": {
            "schema": {"type": "string"},
            "example": "CLASS;FC;GA17\nP1-HM01;2,2E+07;310\nP1-CW01;8,1E+06;<20\n",
        }
    },
}
RESULT_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The result, as asked for by `as` or `Accept`.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/xml": {"schema": {"type": "string"}},
            "multipart/mixed": {"schema": {"type": "string", "format": "binary"}},
            "text/csv": {"schema": {"type": "string"}},
            "application/zip": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
EVENT_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Server-sent events `job`: the id is the revision, the data a Job.",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'id: 1204\nevent: job\ndata: {"id": "build-2026-05-05", …}\n\n',
            }
        },
    }
}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Responses with problem details, for the statuses a route may answer with."""
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    names = {
        400: "It cannot be read.",
        401: "The token is missing or wrong.",
        403: "It is not allowed here.",
        404: "There is no such job, or nothing of the kind.",
        409: "Its state does not allow it, or the id is taken.",
        413: "It is too large.",
        415: "The content type is not understood.",
        422: "It can be read and cannot be used: what is wrong, and where.",
        503: "The broker or the database does not answer; `Retry-After` says when to try again.",
    }
    return {
        status: {"description": names[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted({*statuses, 401, 422, 503})
    }


def add_request_schemas(description: dict[str, Any]) -> dict[str, Any]:
    """The description with what `REQUEST_BODY` refers to; an id may be left out over HTTP."""
    schema = TypeAdapter(JobRequest).json_schema(ref_template=_COMPONENTS)
    schemas = description["components"]["schemas"]
    for name, kind in schema.pop("$defs").items():
        if "const" in kind.get("properties", {}).get("type", {}):
            required = [each for each in kind.get("required", []) if each != "id"]
            kind["required"] = [*required, "type"]
        schemas[name] = kind
    schemas["JobRequest"] = schema
    return description
