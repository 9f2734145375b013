"""Requests, responses and records of jobs, independent of their encoding.

A data set is columns of text, possibly of different lengths, as received. Each type of job parses
the cells, and reports the row and the column of what it cannot parse.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    WithJsonSchema,
    with_config,
)

from penstock.core.errors import PreconditionFailed
from penstock.core.trace_context import TRACEPARENT

#: An unknown name is more likely a mistake than a newer version.
_STRICT: Final = ConfigDict(extra="forbid")


def _decoded(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Binary = Annotated[
    bytes,
    BeforeValidator(_decoded),
    PlainSerializer(_encoded, when_used="json"),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]
Id = Annotated[str, Field(min_length=1, max_length=255)]
#: `module:name`
Function = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$", max_length=255)]
#: In the folder of the job, not elsewhere.
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")]
#: Text, column by column.
Dataset = Mapping[str, tuple[str, ...]]


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class Aging:
    """How an indicator decays: trials of (hours, log10 of the value), in a season."""

    trials: tuple[tuple[tuple[Finite, Finite], ...], ...]
    position: Finite | None = None  #: in the year: 0.0 winter, 0.5 summer


Agings = Mapping[str, tuple[Aging, ...]]


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class Fake:
    """A job that only takes time and reports progress."""

    id: Id
    duration: NotNegative = 10.0
    interval: Positive = 1.0
    type: Literal["fake"] = "fake"


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class BuildModels:
    id: Id
    dataset: Dataset = field(default_factory=dict)
    agings: Agings = field(default_factory=dict)
    #: Only take time, in seconds, to test the way through the queues.
    duration: NotNegative | None = None
    interval: Positive | None = None
    type: Literal["build_models"] = "build_models"


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class PredictModels:
    id: Id
    dataset: Dataset = field(default_factory=dict)
    models: Binary = b""  #: the zip of a `build_models` response
    #: Only take time, in seconds, to test the way through the queues.
    duration: NotNegative | None = None
    interval: Positive | None = None
    type: Literal["predict_models"] = "predict_models"


def as_fake(request: JobRequest) -> Fake | None:
    """The trial run that a build or a prediction with a duration is."""
    if isinstance(request, BuildModels | PredictModels) and request.duration is not None:
        return Fake(request.id, request.duration, request.interval or 1.0)
    return None


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A Python function that is allowed on the worker."""

    id: Id
    function: Function
    arguments: tuple[JsonValue, ...] = ()
    keywords: Mapping[str, JsonValue] = field(default_factory=dict)
    type: Literal["call"] = "call"


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class SparkCall:
    """A function whose first argument is a Spark session."""

    id: Id
    function: Function
    arguments: tuple[JsonValue, ...] = ()
    keywords: Mapping[str, JsonValue] = field(default_factory=dict)
    type: Literal["spark"] = "spark"


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class CommandRun:
    """A program that is allowed on the worker, its arguments, and files for its folder."""

    id: Id
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    files: Mapping[FileName, Binary] = field(default_factory=dict)
    type: Literal["command"] = "command"


JobRequest = Annotated[
    Fake | BuildModels | PredictModels | FunctionCall | SparkCall | CommandRun,
    Field(discriminator="type"),
]


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class VoteResult:
    """The prediction of one voting scheme; in progress responses only the two counts."""

    name: str
    total_samples: Count
    predicted_samples: Count
    test_error: Share | None = None
    dataset: Dataset | None = None
    #: Predicted class → the number of samples of each real class, in the order of the columns.
    confusion: Mapping[str, tuple[Count, ...]] | None = None


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class JobResponse:
    """The progress of a job, or its end: a `progress` of 1 marks the final response."""

    id: Id
    type: Annotated[str, Field(min_length=1)]
    progress: Share = 1.0
    start: datetime | None = None
    end: datetime | None = None  #: an estimate while the job runs
    error: str | None = None
    results: tuple[VoteResult, ...] = ()
    models: Binary = b""
    #: The value of a function; of a command its status, output and errors. Not in XML.
    value: JsonValue = None
    #: What the job has printed since the last response. Not in XML.
    output: str | None = None
    output_start: Count | None = None  #: characters of output before it, in this attempt

    @property
    def final(self) -> bool:
        return self.progress >= 1.0


#: Attempts, the first included: a random failure seldom happens four times.
ATTEMPTS: Final = 4
#: The number of levels the queues are declared with.
PRIORITIES: Final = 10

_ATTEMPTS_HEADER: Final = "job-attempts"
_SOFT_LIMIT_HEADER: Final = "job-soft"
_HARD_LIMIT_HEADER: Final = "job-hard"
_KEEP_HEADER: Final = "job-keep"
_UNIQUE_HEADER: Final = "job-unique"


_OPTION_HEADERS: Final = (
    _ATTEMPTS_HEADER,
    _SOFT_LIMIT_HEADER,
    _HARD_LIMIT_HEADER,
    _KEEP_HEADER,
    _UNIQUE_HEADER,
)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of a request; they travel as headers, so every format has them."""

    priority: int = 0  #: 0 to 9; the highest first
    attempts: int | None = None  #: at most; None: the worker's default
    soft: float | None = None  #: seconds after which the job is asked to end
    hard: float | None = None  #: seconds after which it is ended
    keep: float | None = None  #: seconds that the history stores it; None: the recorder's default
    unique: str | None = None  #: a key that one unfinished job at a time may have
    traceparent: str | None = None  #: the trace of a job that is submitted later than it was asked

    def __post_init__(self) -> None:
        if not 0 <= self.priority < PRIORITIES:
            raise PreconditionFailed(f"priority {self.priority}: must be 0 to {PRIORITIES - 1}")
        if self.attempts is not None and not 1 <= self.attempts <= 100:
            raise PreconditionFailed(f"attempts {self.attempts}: must be 1 to 100")
        for limit in (self.soft, self.hard, self.keep):
            if limit is not None and not 0 < limit < float("inf"):
                raise PreconditionFailed(f"time limit {limit}: must be positive, in seconds")
        if self.unique is not None and not 1 <= len(self.unique) <= 255:
            raise PreconditionFailed("a unique key has 1 to 255 characters")


def write_options(options: JobOptions) -> dict[str, Any]:
    """The headers; the priority is a property."""
    headers: dict[str, Any] = {}
    if options.attempts is not None:
        headers[_ATTEMPTS_HEADER] = options.attempts
    if options.soft is not None:
        headers[_SOFT_LIMIT_HEADER] = str(options.soft)
    if options.hard is not None:
        headers[_HARD_LIMIT_HEADER] = str(options.hard)
    if options.keep is not None:
        headers[_KEEP_HEADER] = str(options.keep)
    if options.unique is not None:
        headers[_UNIQUE_HEADER] = options.unique
    if options.traceparent is not None:
        headers[TRACEPARENT] = options.traceparent
    return headers


def read_options(headers: Mapping[str, Any], priority: int | None = None) -> JobOptions:
    """An unreadable option is an error, because ignoring a limit is worse than a refusal."""
    try:
        attempts, soft, hard, keep, unique = (headers.get(name) for name in _OPTION_HEADERS)
        return JobOptions(
            min(priority or 0, PRIORITIES - 1),
            None if attempts is None else int(attempts),
            None if soft is None else float(soft),
            None if hard is None else float(hard),
            None if keep is None else float(keep),
            None if unique is None else str(unique),
        )
    except (TypeError, ValueError) as error:
        raise PreconditionFailed(f"invalid job option: {error}") from error


class JobState(StrEnum):
    SCHEDULED = "scheduled"  #: The request waits for a time, or for other jobs.
    WAITING = "waiting"  #: The request is in its queue.
    RUNNING = "running"  #: A worker runs an attempt.
    RETRYING = "retrying"  #: An attempt failed, and another will follow.
    DONE = "done"  #: The result is available.
    FAILED = "failed"  #: The last attempt failed; the request is a dead letter.
    CANCELLED = "cancelled"  #: A user cancelled it.
    REFUSED = "refused"  #: The request is invalid, so the job never started.

    @property
    def final(self) -> bool:
        return self in FINAL_STATES


FINAL_STATES: Final = frozenset(
    (JobState.DONE, JobState.FAILED, JobState.CANCELLED, JobState.REFUSED)
)


@dataclass(frozen=True, slots=True)
class JobRecord:
    id: str
    kind: str  #: the type of the request
    state: JobState
    submitted: datetime
    changed: datetime  #: when the last message about it arrived
    progress: float = 0.0
    start: datetime | None = None
    end: datetime | None = None  #: an estimate while it runs
    error: str | None = None  #: of the last attempt, if it failed
    attempts: int = 0
    worker: str | None = None
    priority: int = 0
    #: A few figures of the result.
    summary: Mapping[str, Any] = field(default_factory=dict)
    #: Rises with each change of any job.
    revision: int = 0
    owner: str | None = None  #: who submitted it, where that is known


@dataclass(frozen=True, slots=True)
class JobEvent:
    at: datetime
    state: JobState
    progress: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class JobOutput:
    text: str = ""
    end: int = 0  #: characters up to its end
    attempt: tuple[int, int] = (0, 0)  #: the run and the attempt that printed it


@dataclass(frozen=True, slots=True)
class JobPage:
    records: tuple[JobRecord, ...]
    total: int  #: of all pages
    page: int  #: the first is 1
    size: int
