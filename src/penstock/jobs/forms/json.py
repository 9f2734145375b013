"""Requests and responses as JSON, for clients that begin today. Binary data is in base64."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from penstock.jobs.errors import FormError
from penstock.jobs.forms.values import check_json
from penstock.jobs.model import Request, Response

T = TypeVar("T")

#: Fifty thousand samples have so many, in twenty columns.
VALUES: Final = 1_000_000

_REQUEST: Final[TypeAdapter[Request]] = TypeAdapter(Request)
_RESPONSE: Final = TypeAdapter(Response)


def read_request(data: bytes) -> Request:
    return _read(_REQUEST, data)


def read_response(data: bytes) -> Response:
    return _read(_RESPONSE, data)


def write_request(request: Request) -> bytes:
    return _REQUEST.dump_json(request, exclude_defaults=False)


def write_response(response: Response) -> bytes:
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
    check_json(data, VALUES)
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        raise FormError("; ".join(_sentence(each) for each in error.errors()[:5])) from error


def _sentence(error: Any) -> str:
    place = ".".join(str(step) for step in error["loc"])
    return f"{place}: {error['msg']}" if place else str(error["msg"])
