"""Requests and responses as JSON, for clients that begin today. Binary data is in base64."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from penstock_jobs.errors import JobFormatError
from penstock_jobs.model import JobRequest, JobResponse

T = TypeVar("T")

#: Fifty thousand samples have so many, in twenty columns.
MAX_VALUES: Final = 1_000_000

_REQUEST: Final[TypeAdapter[JobRequest]] = TypeAdapter(JobRequest)
_RESPONSE: Final = TypeAdapter(JobResponse)


def read_request(data: bytes) -> JobRequest:
    return _read(_REQUEST, data)


def read_response(data: bytes) -> JobResponse:
    return _read(_RESPONSE, data)


def write_request(request: JobRequest) -> bytes:
    return _REQUEST.dump_json(request, exclude_defaults=False)


def write_response(response: JobResponse) -> bytes:
    return _RESPONSE.dump_json(response, exclude_none=True)


def schema() -> dict[str, Any]:
    """What is valid, as a JSON Schema: a request or a response."""
    _, both = TypeAdapter.json_schemas(
        [("request", "validation", _REQUEST), ("response", "validation", _RESPONSE)],
        title="Jobs of Penstock",
        description="Requests for long computations, and the responses to them.",
    )
    for kind in both["$defs"].values():
        if "const" in kind.get("properties", {}).get("type", {}):
            kind["required"].append("type")  # it is what tells one kind from another
    return both


def _read(adapter: TypeAdapter[T], data: bytes) -> T:
    check_json(data, MAX_VALUES)
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        raise JobFormatError("; ".join(_sentence(each) for each in error.errors()[:5])) from error


def _sentence(error: Any) -> str:
    place = ".".join(str(step) for step in error["loc"])
    return f"{place}: {error['msg']}" if place else str(error["msg"])


# How many values a text in JSON has, before any of them is made.
#
# A value of two bytes becomes an object of fifty and more: the size of a text says little of what
# it takes to read it.

#: A string is passed over as one, even if nothing ends it: what is in it is no value.
_SEPARATOR: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[,\[{]', re.DOTALL)


def check_json(data: bytes, most: int) -> None:
    """Refused if it has more values than that; whether it is JSON at all is not looked at."""
    if len(data) <= most:
        return  # a value and its separator have two bytes
    separators = 0
    for found in _SEPARATOR.finditer(data):
        separators += data[found.start()] != 0x22
        if separators > most:
            raise JobFormatError(f"more than {most:,} values")
