"""Errors over HTTP: problem details (RFC 9457), and in one table which error has which status.

A data set that cannot be used comes with all its problems, each with row and column.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from penstock.core.errors import (
    AccessRefused,
    AuthenticationFailed,
    ConfigurationError,
    ContentTooLarge,
    NotFound,
    PenstockError,
    PreconditionFailed,
    Unsupported,
)
from penstock.core.logs import get_logger
from penstock_jobs.errors import DatasetError, JobFormatError
from penstock_store import StoreTimeout

log = get_logger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
#: A client that comes back at once would find the same.
_RETRY_SECONDS: Final = "5"

#: The first class an error is an instance of decides: status, and what this kind is called.
_TABLE: Final[tuple[tuple[type[Exception], HTTPStatus, str], ...]] = (
    (DatasetError, HTTPStatus.UNPROCESSABLE_ENTITY, "data"),
    (JobFormatError, HTTPStatus.BAD_REQUEST, "form"),
    (ConfigurationError, HTTPStatus.UNPROCESSABLE_ENTITY, "values"),
    (NotFound, HTTPStatus.NOT_FOUND, "not-found"),
    (AuthenticationFailed, HTTPStatus.UNAUTHORIZED, "not-signed-in"),
    (AccessRefused, HTTPStatus.FORBIDDEN, "refused"),
    (PreconditionFailed, HTTPStatus.CONFLICT, "conflict"),
    (ContentTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large"),
    (Unsupported, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media-type"),
    (StoreTimeout, HTTPStatus.SERVICE_UNAVAILABLE, "unavailable"),
    (ConnectionError, HTTPStatus.SERVICE_UNAVAILABLE, "unavailable"),
)


class DatasetCell(BaseModel):
    """Something wrong at a place of a data set; the row as a person counts, names being row 1."""

    row: int = Field(description="0: of the whole")
    column: str
    text: str


class ProblemDetails(BaseModel):
    """What went wrong (RFC 9457)."""

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

    type: str
    title: str
    status: int
    detail: str
    instance: str
    problems: list[DatasetCell] | None = None


def install(app: FastAPI) -> None:
    app.add_exception_handler(PenstockError, _on_penstock_error)
    app.add_exception_handler(ConnectionError, _on_penstock_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_unexpected_error)


def problem_response(error: Exception, path: str) -> JSONResponse:
    status, name = next(
        ((status, name) for kind, status, name in _TABLE if isinstance(error, kind)),
        (HTTPStatus.INTERNAL_SERVER_ERROR, "internal"),
    )
    found = [
        {"row": each.row, "column": each.column, "text": each.text}
        for each in (error.problems if isinstance(error, DatasetError) else ())
    ]
    return _response(status, name, str(error), path, found or None)


def _response(
    status: HTTPStatus, name: str, detail: str, path: str, problems: list[Any] | None = None
) -> JSONResponse:
    content = {
        "type": f"urn:penstock:problem:{name}",
        "title": status.phrase,
        "status": int(status),
        "detail": detail,
        "instance": path,
    }
    headers = {}
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = _RETRY_SECONDS
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if problems is not None:
        return JSONResponse({**content, "problems": problems}, status, headers, MEDIA_TYPE)
    return JSONResponse(content, status, headers, MEDIA_TYPE)


async def _on_penstock_error(request: Request, error: Exception) -> JSONResponse:
    return problem_response(error, request.url.path)


async def _on_invalid_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    texts = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    return _response(status, "values", "; ".join(texts[:5]), request.url.path)


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    found = _response(status, "http", error.detail, request.url.path)
    found.headers.update(error.headers or {})
    return found


async def _on_unexpected_error(request: Request, error: Exception) -> JSONResponse:
    log.error("request failed", path=request.url.path, exc_info=error)
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return _response(status, "internal", "A mistake of ours; the log has it.", request.url.path)
