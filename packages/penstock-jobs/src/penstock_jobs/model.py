"""What is asked for and what is answered, whatever it looks like on the wire.

A data set is columns of text, not all of one length, as they came: what a cell means is for the
work to say, with the row and the column of what it cannot read.
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

#: A name that is not known is more likely a mistake than a message from the future.
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
#: Where a function is: the module and the name in it.
Function = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$", max_length=255)]
#: In the folder of the work, not elsewhere.
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")]
#: Text, column by column.
Dataset = Mapping[str, tuple[str, ...]]


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class Aging:
    """How an indicator fades: trials of (hours, log10 of the value), at a time of the year."""

    trials: tuple[tuple[tuple[Finite, Finite], ...], ...]
    position: Finite | None = None  #: in the year: 0.0 winter, 0.5 summer


Agings = Mapping[str, tuple[Aging, ...]]


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class Fake:
    """Work that only takes time, and tells how much of it has gone."""

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
    type: Literal["build_models"] = "build_models"


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class PredictModels:
    id: Id
    dataset: Dataset = field(default_factory=dict)
    models: Binary = b""  #: the zip that building them gave
    type: Literal["predict_models"] = "predict_models"


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A Python function, `module:name`, of those that the worker was told it may call."""

    id: Id
    function: Function
    arguments: tuple[JsonValue, ...] = ()
    keywords: Mapping[str, JsonValue] = field(default_factory=dict)
    type: Literal["call"] = "call"


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class SparkCall:
    """The same for a function whose first argument is a Spark session."""

    id: Id
    function: Function
    arguments: tuple[JsonValue, ...] = ()
    keywords: Mapping[str, JsonValue] = field(default_factory=dict)
    type: Literal["spark"] = "spark"


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class CommandRun:
    """A program and its arguments, of those that the worker was told it may run; with files that
    are there when it begins."""

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
    """What one way of voting made of the samples; while it goes on, the two counts alone."""

    name: str
    total_samples: Count
    predicted_samples: Count
    test_error: Share | None = None
    dataset: Dataset | None = None
    #: Predicted class → how many of each real class, in the order of the columns.
    confusion: Mapping[str, tuple[Count, ...]] | None = None


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class JobResponse:
    """How far it is, or how it ended: `progress` 1 is the last one there will be."""

    id: Id
    type: Annotated[str, Field(min_length=1)]
    progress: Share = 1.0
    start: datetime | None = None
    end: datetime | None = None  #: of the work; an estimate while it goes on
    error: str | None = None
    results: tuple[VoteResult, ...] = ()
    models: Binary = b""
    #: What a function returned; of a command its status, output and errors. Not in XML.
    value: JsonValue = None

    @property
    def final(self) -> bool:
        return self.progress >= 1.0


# How a job should be done, beside what: by headers, so that every form of request has them.

#: The first and three more: what fails by chance seldom fails four times.
ATTEMPTS: Final = 4
#: As many levels as the queues are declared with.
PRIORITIES: Final = 10

_ATTEMPTS_HEADER: Final = "job-attempts"
_SOFT_LIMIT_HEADER: Final = "job-soft"
_HARD_LIMIT_HEADER: Final = "job-hard"


@dataclass(frozen=True, slots=True)
class JobOptions:
    priority: int = 0  #: 0 to 9; the highest first
    attempts: int | None = None  #: at most so many, or as the worker has it
    soft: float | None = None  #: seconds after which it is asked to end
    hard: float | None = None  #: seconds after which it is ended

    def __post_init__(self) -> None:
        if not 0 <= self.priority < PRIORITIES:
            raise PreconditionFailed(f"priority {self.priority}: 0 to {PRIORITIES - 1} there are")
        if self.attempts is not None and not 1 <= self.attempts <= 100:
            raise PreconditionFailed(f"attempts {self.attempts}: 1 to 100 may be made")
        for limit in (self.soft, self.hard):
            if limit is not None and not 0 < limit < float("inf"):
                raise PreconditionFailed(f"a limit of {limit} seconds")


def write_options(options: JobOptions) -> dict[str, Any]:
    """As headers; the priority is a property of its own."""
    headers: dict[str, Any] = {}
    if options.attempts is not None:
        headers[_ATTEMPTS_HEADER] = options.attempts
    if options.soft is not None:
        headers[_SOFT_LIMIT_HEADER] = str(options.soft)
    if options.hard is not None:
        headers[_HARD_LIMIT_HEADER] = str(options.hard)
    return headers


def read_options(headers: Mapping[str, Any], priority: int | None = None) -> JobOptions:
    """What cannot be read is an error: a limit that is ignored is worse than a refusal."""
    try:
        attempts, soft, hard = (
            headers.get(name) for name in (_ATTEMPTS_HEADER, _SOFT_LIMIT_HEADER, _HARD_LIMIT_HEADER)
        )
        return JobOptions(
            min(priority or 0, PRIORITIES - 1),
            None if attempts is None else int(attempts),
            None if soft is None else float(soft),
            None if hard is None else float(hard),
        )
    except (TypeError, ValueError) as error:
        raise PreconditionFailed(f"options that cannot be read: {error}") from error


# A job as those see it who ask about it: where it stands, and what came of it.


class JobState(StrEnum):
    WAITING = "waiting"  #: in its queue; nobody has begun
    RUNNING = "running"  #: a worker is at it
    RETRYING = "retrying"  #: it failed, and will be tried again
    DONE = "done"  #: there is a result
    FAILED = "failed"  #: it will not be tried again by itself; it lies with the dead letters
    CANCELLED = "cancelled"  #: somebody did not want it any more
    REFUSED = "refused"  #: it was never begun: what was asked cannot be understood

    @property
    def final(self) -> bool:
        return self in FINAL_STATES


FINAL_STATES: Final = frozenset(
    (JobState.DONE, JobState.FAILED, JobState.CANCELLED, JobState.REFUSED)
)


@dataclass(frozen=True, slots=True)
class JobRecord:
    id: str
    kind: str  #: the request's type: fake, build_models, predict_models, call, command, spark
    state: JobState
    submitted: datetime
    changed: datetime  #: the last time anything was heard of it
    progress: float = 0.0
    start: datetime | None = None
    end: datetime | None = None  #: expected while it runs; when it was, afterwards
    error: str | None = None  #: of the last attempt, if that failed
    attempts: int = 0  #: how often it was begun
    worker: str | None = None
    priority: int = 0
    #: What came of it in a few figures; the whole is `Jobs.result`.
    summary: Mapping[str, Any] = field(default_factory=dict)
    #: Rises with each change of any job: what a watcher has seen, it need not see again.
    revision: int = 0


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One thing that happened to a job."""

    at: datetime
    state: JobState
    progress: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class JobPage:
    records: tuple[JobRecord, ...]
    total: int  #: of all that match, on all pages
    page: int  #: the first is 1
    size: int
