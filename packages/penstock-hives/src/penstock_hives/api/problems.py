"""Errors as RFC 9457 says: `application/problem+json`, one table from names to statuses.

A problem has a `type` for programs, a `title` that is the same for all of its kind, a `detail`
about this one, and for requests that cannot be meant the `errors` by field. Whatever is not in the
table is a mistake of ours: it is logged with a number, and the caller gets the number.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from penstock.client import BrokerUnreachable, NoReply
from penstock.core.errors import (
    AccessRefused,
    AuthenticationFailed,
    ContentTooLarge,
    NotFound,
    PenstockError,
    PreconditionFailed,
)
from penstock.core.logs import get_logger
from penstock.core.retry import is_transient
from penstock_hives.encoding import encode_json
from penstock_hives.errors import (
    FieldError,
    IfMatchFailed,
    InvalidRequest,
    NotConfigured,
    NotReady,
    RequestConflict,
    TooManyRequests,
    UnsupportedImage,
)

log = get_logger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
#: Seconds after which it is worth while to try again, when nobody knows better.
RETRY_SECONDS: Final = 2

#: Name → status and title; the first that fits.
_STATUSES: Final[Sequence[tuple[type[Exception], int, str]]] = (
    (AuthenticationFailed, 401, "Sign in"),
    (AccessRefused, 403, "Not permitted"),
    (NotFound, 404, "Not found"),
    (RequestConflict, 409, "Conflict"),
    (IfMatchFailed, 412, "Changed meanwhile"),
    (PreconditionFailed, 409, "Conflict"),
    (ContentTooLarge, 413, "Too large"),
    (UnsupportedImage, 415, "Unsupported image"),
    (InvalidRequest, 422, "Invalid request"),
    (TooManyRequests, 429, "Too many requests"),
    (NotConfigured, 501, "Not configured"),
    (NotReady, 503, "Nothing yet"),
    (NoReply, 503, "Unavailable"),
    (BrokerUnreachable, 503, "Unavailable"),
)
_TITLES: Final = {status: title for _, status, title in reversed(_STATUSES)} | {
    400: "Bad request",
    405: "Method not allowed",
    500: "Our mistake",
}


class FieldProblem(BaseModel):
    """What is wrong with one field."""

    field: str
    reason: str


class Problem(BaseModel):
    """An error, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str | None = None
    instance: str | None = None
    errors: list[FieldProblem] | None = None


def problem_response(
    status: int,
    detail: str | None = None,
    *,
    title: str | None = None,
    faults: Sequence[FieldError] = (),
    instance: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A response any ASGI application may send."""
    named = title or _TITLES.get(status, "Error")
    content: dict[str, Any] = {
        "type": f"urn:penstock:problem:{named.lower().replace(' ', '-')}",
        "title": named,
        "status": status,
    }
    if detail:
        content["detail"] = detail
    if instance:
        content["instance"] = instance
    if faults:
        content["errors"] = [{"field": each.field, "reason": each.reason} for each in faults]
    return Response(encode_json(content), status, {**(headers or {})}, MEDIA_TYPE)


def problem_from_error(error: Exception) -> Response:
    """The problem an error is to who asked."""
    if is_transient(error):
        return problem_response(
            503,
            "the database is not to be had at the moment; nothing was changed",
            title="Unavailable",
            headers={"Retry-After": str(RETRY_SECONDS)},
        )
    for kind, status, title in _STATUSES:
        if isinstance(error, kind):
            faults = error.faults if isinstance(error, InvalidRequest) else ()
            return problem_response(
                status, str(error), title=title, faults=faults, headers=_headers(error, status)
            )
    number = secrets.token_hex(6)
    log.error("request failed", number=number, exc_info=error)
    return problem_response(500, f"this is our mistake; tell us the number {number}")


def install_problem_handlers(app: FastAPI) -> None:
    """Have the application answer every error so."""

    async def told(request: Request, error: Exception) -> Response:
        return problem_from_error(error)

    async def unreadable(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        faults = [FieldError(_path(each["loc"]), str(each["msg"])) for each in error.errors()]
        return problem_response(422, "the request is not as it should be", faults=faults)

    async def plain(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return problem_response(error.status_code, str(error.detail), headers=error.headers)

    app.add_exception_handler(PenstockError, told)
    app.add_exception_handler(RequestValidationError, unreadable)
    app.add_exception_handler(HTTPException, plain)
    app.add_exception_handler(Exception, told)


def _headers(error: Exception, status: int) -> dict[str, str]:
    if status == 401:
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, TooManyRequests):
        return {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
    if status == 503:
        return {"Retry-After": str(RETRY_SECONDS)}
    return {}


def _path(location: Sequence[Any]) -> str:
    """`body.address.zip`, as a person finds it in what they sent."""
    return ".".join(str(part) for part in location)
