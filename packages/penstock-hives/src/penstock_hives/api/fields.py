"""Types of what requests carry: text that can be kept, numbers that fit, moments with a zone."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from fastapi import Path, Query
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_serializer,
)

from penstock_hives.errors import FieldError, InvalidRequest

_LARGEST = (1 << 63) - 1
_MOST_DAYS = 1100


class RequestBody(BaseModel):
    """What bodies of requests have in common: names nobody knows are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class RequestPart(RequestBody):
    """A part of a body that is kept as one: what is not said in it is left out."""

    @model_serializer
    def _said(self) -> dict[str, Any]:
        return {name: value for name, value in self if value is not None}


def fields_set(body: RequestBody) -> dict[str, Any]:
    """What a request has named, to be different."""
    return body.model_dump(exclude_unset=True)


def _check_text(text: str) -> str:
    if "\0" in text:
        raise ValueError("may not hold U+0000")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half a surrogate pair") from None
    return text


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError("is no time zone; one would be Europe/Paris") from None
    if name != "UTC" and "/" not in name:
        raise ValueError("is no time zone by place; one would be Europe/Paris")
    return name


def _check_timestamp(at: datetime) -> datetime:
    if not 2000 <= at.year < 2200:
        raise ValueError("is too far away: years 2000 to 2199")
    return at


def _check_local_time(clock: time) -> time:
    if clock.tzinfo is not None:
        raise ValueError("is by the hive's own clock: no zone")
    return clock


PathId = Annotated[int, Path(ge=1, le=_LARGEST)]
ObjectId = Annotated[int, Field(ge=1, le=_LARGEST)]
ShortText = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200),
    AfterValidator(_check_text),
]
LongText = Annotated[
    str, StringConstraints(strip_whitespace=True, max_length=4000), AfterValidator(_check_text)
]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)]
TimeZoneName = Annotated[str, StringConstraints(min_length=3, max_length=64), AfterValidator(_zone)]
Locale = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")]
LocalTime = Annotated[time, AfterValidator(_check_local_time)]
FirstDay = Annotated[date, Query(alias="from", description="From this local day on,")]
LastDay = Annotated[date, Query(alias="to", description="before this one.")]
Timestamp = Annotated[AwareDatetime, AfterValidator(_check_timestamp)]


def whole_days(begin: date, end: date) -> None:
    """That there are days from the one on before the other, and not too many."""
    if end <= begin or (end - begin).days > _MOST_DAYS:
        raise InvalidRequest(
            "no such days", [FieldError("to", "is after `from`, by three years at most")]
        )


def check_span(begin: datetime, end: datetime, longest_days: int) -> None:
    """That a window is one, and not too wide."""
    if end <= begin:
        raise InvalidRequest(
            "the window ends before it begins", [FieldError("to", "must be after `from`")]
        )
    if (end - begin).days > longest_days:
        raise InvalidRequest(
            "the window is too wide", [FieldError("to", f"at most {longest_days} days")]
        )
