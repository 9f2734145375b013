"""The models of the API, its errors, and the parts of its description FastAPI cannot derive."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from penstock.core.errors import (
    AccessRefused,
    AuthenticationFailed,
    ConfigurationError,
    ContentTooLarge,
    NotFound,
    PreconditionFailed,
    Unsupported,
)
from penstock_jobs.datasets.matrices import MAX_COLUMNS, CellKind, DataMatrix
from penstock_jobs.errors import DatasetError, JobFormatError
from penstock_jobs.model import JobPage, JobRecord, JobRequest, JobState
from penstock_jobs.schedule.repository import JobSchedule
from penstock_store.http.problems import Problem, ProblemMapper, ProblemRule

#: Ids that can be part of an address. Jobs of other programs may have others, and are listed.
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
    """A job."""

    model_config = ConfigDict(from_attributes=True, json_schema_extra={"example": _EXAMPLE})

    id: str
    kind: str = Field(description="The type of the request.")
    state: JobState
    progress: float = Field(ge=0, le=1, description="The share that is done, 0 to 1.")
    submitted: datetime
    changed: datetime = Field(description="When the last message about it arrived.")
    start: datetime | None
    end: datetime | None = Field(description="An estimate while the job runs.")
    error: str | None = Field(description="Of the last attempt, if it failed.")
    attempts: int = Field(description="Attempts so far.")
    worker: str | None
    priority: int
    summary: dict[str, Any] = Field(description="A few figures of the result.")
    revision: int = Field(description="Rises with each change of any job; the id of events.")
    owner: str | None = Field(None, description="Who submitted it, where that is known.")

    @classmethod
    def of(cls, record: JobRecord) -> Job:
        return cls.model_validate(record)


class Jobs(BaseModel):
    """A page of jobs, newest first."""

    jobs: list[Job]
    total: int = Field(description="Jobs on all pages.")
    page: int
    size: int

    @classmethod
    def of(cls, page: JobPage) -> Jobs:
        jobs = [Job.of(record) for record in page.records]
        return cls(jobs=jobs, total=page.total, page=page.page, size=page.size)


class AuditRecord(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    at: datetime
    who: str
    action: str
    job: str
    detail: str


class WorkflowJobs(BaseModel):
    """The ids of the jobs of a workflow."""

    jobs: list[str]


class NewSchedule(BaseModel):
    """A request and when it is submitted: `every` so many seconds, or by `cron` in a `zone`."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "request": {"type": "fake", "duration": 1},
                "cron": "0 2 * * *",
                "zone": "Europe/Madrid",
            }
        },
    )

    request: dict[str, Any]
    every: float | None = Field(None, ge=1, le=366 * 86_400)
    cron: str | None = Field(None, max_length=255)
    zone: str = Field("UTC", max_length=64)
    priority: int = Field(0, ge=0, le=9)
    attempts: int | None = Field(None, ge=1, le=100)
    keep: float | None = Field(None, gt=0, le=3650 * 86_400)
    unique: str | None = Field(None, min_length=1, max_length=255)


class ScheduleEntry(BaseModel):
    id: str
    every: float | None
    cron: str | None
    zone: str
    next: datetime | None
    paused: bool
    last_job: str | None

    @classmethod
    def of(cls, schedule: JobSchedule) -> ScheduleEntry:
        return cls(
            id=schedule.id,
            every=schedule.every,
            cron=schedule.cron,
            zone=schedule.zone,
            next=schedule.next,
            paused=schedule.paused,
            last_job=schedule.last_job,
        )


class JobEventEntry(BaseModel):
    """A change of a job."""

    model_config = ConfigDict(from_attributes=True)

    at: datetime
    state: JobState
    progress: float
    text: str = ""


class JobCounts(BaseModel):
    """The number of jobs in each state."""

    counts: dict[JobState, int]


class DeadLetterReplay(BaseModel):
    """The dead letters to submit again."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"ids": ["a", "b"]}})

    ids: list[str] | None = Field(None, description="All of them if there is no list.")


class DeadLetterReplayResult(BaseModel):
    replayed: int


class DatasetCell(BaseModel):
    """A problem of a data set; row 1 has the names of the columns."""

    model_config = ConfigDict(from_attributes=True)

    row: int = Field(description="0: the whole data set")
    column: str
    text: str


class ProblemDetails(Problem):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "urn:penstock:problem:data",
                "title": "Unprocessable Entity",
                "status": 422,
                "detail": "row 4, column FC: 'many' is not a number",
                "instance": "/jobs",
                "problems": [{"row": 4, "column": "FC", "text": "'many' is not a number"}],
            }
        }
    )

    problems: list[DatasetCell] | None = None


def _dataset_problems(error: Exception) -> dict[str, Any]:
    if not isinstance(error, DatasetError):
        return {}
    return {"problems": [DatasetCell.model_validate(each) for each in error.problems]}


PROBLEMS: Final = ProblemMapper(
    (
        ProblemRule(JobFormatError, 400, name="form"),
        ProblemRule(ConfigurationError, 422, name="values"),
        ProblemRule(DatasetError, 422, name="data"),
        ProblemRule(NotFound, 404, name="not-found"),
        ProblemRule(AuthenticationFailed, 401, name="not-signed-in"),
        ProblemRule(AccessRefused, 403, name="refused"),
        ProblemRule(PreconditionFailed, 409, name="conflict"),
        ProblemRule(ContentTooLarge, 413, name="too-large"),
        ProblemRule(Unsupported, 415, name="media-type"),
        ProblemRule(ConnectionError, 503, name="unavailable"),
    ),
    _dataset_problems,
    retry_seconds=5,
)


class CheckedDataset(BaseModel):
    """The contents of a data set, and all its problems."""

    model_config = ConfigDict(from_attributes=True)

    usable: bool
    samples: int
    humans: int
    animals: int
    indicators: list[str]
    problems: list[DatasetCell]


class MatrixColumn(BaseModel):
    name: str
    kind: CellKind


class MatrixEntry(BaseModel):
    """A predefined matrix."""

    name: str
    title: str
    columns: list[MatrixColumn]
    built_in: bool

    @classmethod
    def of(cls, matrix: DataMatrix) -> MatrixEntry:
        columns = [
            MatrixColumn(name=name, kind=kind)
            for name, kind in zip(matrix.columns, matrix.kinds, strict=True)
        ]
        return cls(name=matrix.name, title=matrix.title, columns=columns, built_in=matrix.built_in)


ColumnName = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f]+$")]


class NewMatrix(BaseModel):
    """The columns of a data set; `CLASS` has the ids of samples."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"title": "River Ter", "columns": ["CLASS", "season", "FC", "GA17", "pH"]}
        },
    )

    title: str = Field("", max_length=200, pattern=r"^[^\x00]*$")
    columns: list[ColumnName] = Field(min_length=2, max_length=MAX_COLUMNS)


class NewDataset(BaseModel):
    """Rows of cells, in the order of the columns of a matrix."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"matrix": "phages", "rows": [["P6-X01", "1,4E+05", "820", "<20"]]}
        },
    )

    matrix: str = Field(max_length=100)
    rows: list[list[str]] = Field(max_length=100_000)


class DatasetVersion(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    name: str
    version: int
    matrix: str
    samples: int
    saved_by: str
    saved_at: datetime
    reference: str = Field(description="`NAME@VERSION`, for the field `dataset` of a form.")


_COMPONENTS: Final = "#/components/schemas/{model}"

_EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "fake": {
        "summary": "Ten seconds of waiting, with progress every second",
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
        "summary": "The origin of samples; the models are in base64",
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
        "id": {"type": "string", "description": "Generated if there is none."},
        "dataset": {"type": "string", "format": "binary", "description": "A CSV, or NAME@VERSION."},
        "aging": {
            "type": "array",
            "items": {"type": "string", "format": "binary"},
            "description": "To build: files env<NAME>-<SEASON>.txt, or a zip of them.",
        },
        "models": {
            "type": "string",
            "format": "binary",
            "description": "To predict: the zip, or the id of a job.",
        },
        "duration": {"type": "number", "minimum": 0},
        "interval": {"type": "number", "exclusiveMinimum": 0},
    },
}

#: The body of `POST /jobs`.
REQUEST_BODY: Final[dict[str, Any]] = {
    "required": True,
    "description": "The request: JSON, the XML or MIME of the Ichnaea clients, or a form.",
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
#: The body of `PUT /datasets/{name}`.
NEW_DATASET_BODY: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        "application/json": {"schema": {"$ref": "#/components/schemas/NewDataset"}},
        **DATASET_BODY["content"],
    },
}
CSV_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "A CSV with `;` between cells.",
        "content": {"text/csv": {"schema": {"type": "string"}}},
    }
}
RESULT_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The result, in the format of `as` or `Accept`.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/xml": {"schema": {"type": "string"}},
            "multipart/mixed": {"schema": {"type": "string", "format": "binary"}},
            "text/csv": {"schema": {"type": "string"}},
            "application/zip": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
OUTPUT_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Text, as the job has printed it.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
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
    """The error responses of a route; their content is added to the OpenAPI document."""
    descriptions = {
        400: "The request cannot be read.",
        401: "The token is missing or wrong.",
        403: "The server does not allow this type of job.",
        404: "The job or the resource does not exist.",
        409: "The state of the job does not allow it, or the id exists already.",
        413: "The request is too large.",
        415: "The content type is not supported.",
        422: "A value is invalid; `errors` or `problems` tell which.",
        503: "The broker or the database is unavailable; retry after `Retry-After` seconds.",
    }
    return {
        status: {"description": descriptions[status]}
        for status in sorted({*statuses, 401, 422, 503})
    }


def add_request_schemas(description: dict[str, Any]) -> dict[str, Any]:
    """Add the schemas that `REQUEST_BODY` refers to; over HTTP the id is optional."""
    schema = TypeAdapter(JobRequest).json_schema(ref_template=_COMPONENTS)
    schemas = description["components"]["schemas"]
    for name, kind in schema.pop("$defs").items():
        if "const" in kind.get("properties", {}).get("type", {}):
            required = [each for each in kind.get("required", []) if each != "id"]
            kind["required"] = [*required, "type"]
        schemas[name] = kind
    schemas["JobRequest"] = schema
    schemas["NewDataset"] = NewDataset.model_json_schema(ref_template=_COMPONENTS)
    return description
