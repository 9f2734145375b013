"""Requests and responses as JSON, for new clients. Binary data is in base64."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from penstock_jobs.errors import JobFormatError
from penstock_jobs.model import JobRequest, JobResponse

T = TypeVar("T")

#: Fifty thousand samples in twenty columns.
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
    """The JSON Schema of requests and responses."""
    _, both = TypeAdapter.json_schemas(
        [("request", "validation", _REQUEST), ("response", "validation", _RESPONSE)],
        title="Penstock Jobs",
        description="Requests of long-running jobs, and their responses.",
    )
    for kind in both["$defs"].values():
        if "const" in kind.get("properties", {}).get("type", {}):
            kind["required"].append("type")  # the discriminator
    return both


def _read(adapter: TypeAdapter[T], data: bytes) -> T:
    check_json(data, MAX_VALUES)
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        raise JobFormatError("; ".join(_error_text(each) for each in error.errors()[:5])) from error


def _error_text(error: Any) -> str:
    path = ".".join(str(step) for step in error["loc"])
    return f"{path}: {error['msg']}" if path else str(error["msg"])


#: A string matches as a whole, even an unterminated one: separators in it do not count.
_SEPARATOR: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[,\[{]', re.DOTALL)


def check_json(data: bytes, most: int) -> None:
    """Limit the number of values before parsing: two bytes can become an object of fifty or more.
    The syntax is not checked."""
    if len(data) <= most:
        return  # a value and its separator take two bytes
    separators = 0
    for found in _SEPARATOR.finditer(data):
        separators += data[found.start()] != 0x22
        if separators > most:
            raise JobFormatError(f"more than {most:,} values")
