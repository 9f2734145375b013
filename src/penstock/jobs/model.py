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
from typing import Annotated, Final, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    WithJsonSchema,
    with_config,
)

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
class Call:
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
class Command:
    """A program and its arguments, of those that the worker was told it may run; with files that
    are there when it begins."""

    id: Id
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    files: Mapping[FileName, Binary] = field(default_factory=dict)
    type: Literal["command"] = "command"


Request = Annotated[
    Fake | BuildModels | PredictModels | Call | SparkCall | Command, Field(discriminator="type")
]


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class Result:
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
class Response:
    """How far it is, or how it ended: `progress` 1 is the last one there will be."""

    id: Id
    type: Annotated[str, Field(min_length=1)]
    progress: Share = 1.0
    start: datetime | None = None
    end: datetime | None = None  #: of the work; an estimate while it goes on
    error: str | None = None
    results: tuple[Result, ...] = ()
    models: Binary = b""
    #: What a function returned; of a command its status, output and errors. Not in XML.
    value: JsonValue = None

    @property
    def final(self) -> bool:
        return self.progress >= 1.0
