"""Types of request fields: storable text, ids that fit a bigint, timestamps with a zone."""

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

from penstock_hives.errors import invalid_field

_MAX_ID = (1 << 63) - 1
_MAX_DAYS = 1100


class RequestBody(BaseModel):
    """The base of request bodies: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class RequestPart(RequestBody):
    """A part of a body that is stored as one JSON object, without its null fields."""

    @model_serializer
    def _without_nulls(self) -> dict[str, Any]:
        return {name: value for name, value in self if value is not None}


def fields_set(body: RequestBody) -> dict[str, Any]:
    """The fields that the request contains."""
    return body.model_dump(exclude_unset=True)


def _check_text(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain U+0000")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("contains an unpaired surrogate") from None
    return text


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError("must be a time zone such as Europe/Paris") from None
    if name != "UTC" and "/" not in name:
        raise ValueError("must be a time zone by place, such as Europe/Paris")
    return name


def _check_timestamp(at: datetime) -> datetime:
    if not 2000 <= at.year < 2200:
        raise ValueError("must be in the years 2000 to 2199")
    return at


def _check_local_time(clock: time) -> time:
    if clock.tzinfo is not None:
        raise ValueError("must have no zone: it is in the hive's local time")
    return clock


PathId = Annotated[int, Path(ge=1, le=_MAX_ID)]
ObjectId = Annotated[int, Field(ge=1, le=_MAX_ID)]
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
FirstDay = Annotated[date, Query(alias="from", description="The first local day.")]
LastDay = Annotated[date, Query(alias="to", description="The local day after the last.")]
Timestamp = Annotated[AwareDatetime, AfterValidator(_check_timestamp)]


def check_days(begin: date, end: date) -> None:
    if end <= begin or (end - begin).days > _MAX_DAYS:
        raise invalid_field("to", f"must be after `from`, by at most {_MAX_DAYS} days")


def check_span(begin: datetime, end: datetime, longest_days: int) -> None:
    if end <= begin or (end - begin).days > longest_days:
        raise invalid_field("to", f"must be after `from`, by at most {longest_days} days")
