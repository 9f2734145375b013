"""HTTP errors as problem details (RFC 9457, `application/problem+json`), and their OpenAPI schema.

An application has one `ProblemMapper` with its table from error classes to statuses. `type` and
`title` are the same for all problems of a kind; `detail` describes the one at hand. An error
that is not in the table is logged with an id, and the response contains only the id. Transient
errors are 503 with `Retry-After`, and their text, which may name a server, stays in the log.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.core.retry import is_transient

log = get_logger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
_REFERENCE: Final = "#/components/schemas/{model}"


class FieldProblem(BaseModel):
    """An invalid field of a request."""

    field: str
    reason: str


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str | None = None
    instance: str | None = None
    errors: list[FieldProblem] | None = None


class ProblemRule(NamedTuple):
    error: type[Exception]
    status: int
    title: str = ""  #: the phrase of the status unless given
    name: str = ""  #: the last part of the type; made from the title unless given


def problem_response(
    status: int,
    detail: str | None = None,
    *,
    title: str = "",
    name: str = "",
    instance: str | None = None,
    members: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A response that any ASGI application can send."""
    title = title or HTTPStatus(status).phrase
    content: dict[str, Any] = {
        "type": f"urn:penstock:problem:{name or title.lower().replace(' ', '-')}",
        "title": title,
        "status": int(status),
    }
    if detail:
        content["detail"] = detail
    if instance:
        content["instance"] = instance
    content.update(members or {})
    given = {"Cache-Control": "no-store", **(headers or {})}
    return Response(to_json(content), status, given, MEDIA_TYPE)


class ProblemMapper:
    """The errors of an application as responses; the first rule that fits an error applies.

    `members` returns further members for an error, such as the invalid fields.
    """

    def __init__(
        self,
        rules: Sequence[ProblemRule],
        members: Callable[[Exception], Mapping[str, Any]] = lambda error: {},
        retry_seconds: int = 2,
    ) -> None:
        self._rules = rules
        self._members = members
        self._retry_seconds = retry_seconds
        self._by_status = {int(rule.status): rule for rule in reversed(rules)}

    def response(
        self,
        status: int,
        detail: str | None = None,
        *,
        instance: str | None = None,
        members: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """A problem by its status, with the title that the rules have for it."""
        rule = self._by_status.get(status, ProblemRule(Exception, status))
        return problem_response(
            status,
            detail,
            title=rule.title,
            name=rule.name,
            instance=instance,
            members=members,
            headers=headers,
        )

    def from_error(self, error: Exception, instance: str | None = None) -> Response:
        if is_transient(error):
            log.warning("service unavailable", path=instance, error=str(error))
            return self.response(
                503,
                "a service that the request needs is unavailable; try again later",
                instance=instance,
                headers={"Retry-After": str(self._retry_seconds)},
            )
        for rule in self._rules:
            if isinstance(error, rule.error):
                return problem_response(
                    rule.status,
                    str(error),
                    title=rule.title,
                    name=rule.name,
                    instance=instance,
                    members=self._members(error),
                    headers=self._headers(error, rule.status),
                )
        number = secrets.token_hex(6)
        log.error("request failed", path=instance, id=number, exc_info=error)
        return self.response(
            500, f"internal error, id {number}; the server's log has details", instance=instance
        )

    def install(self, app: FastAPI) -> None:
        async def on_error(request: Request, error: Exception) -> Response:
            return self.from_error(error, request.url.path)

        async def on_invalid_request(request: Request, error: Exception) -> Response:
            assert isinstance(error, RequestValidationError)
            errors = [
                {"field": ".".join(map(str, each["loc"])), "reason": str(each["msg"])}
                for each in error.errors()
            ]
            detail = "; ".join(f"{each['field']}: {each['reason']}" for each in errors[:5])
            return self.response(422, detail, instance=request.url.path, members={"errors": errors})

        async def on_http_error(request: Request, error: Exception) -> Response:
            assert isinstance(error, HTTPException)
            return self.response(
                error.status_code,
                str(error.detail),
                instance=request.url.path,
                headers=error.headers,
            )

        kinds: set[type[Exception]] = {PenstockError, Exception}
        for kind in kinds.union(rule.error for rule in self._rules):
            app.add_exception_handler(kind, on_error)
        app.add_exception_handler(RequestValidationError, on_invalid_request)
        app.add_exception_handler(HTTPException, on_http_error)

    def _headers(self, error: Exception, status: int) -> dict[str, str]:
        if status == 401:
            return {"WWW-Authenticate": "Bearer"}
        after = getattr(error, "retry_after", self._retry_seconds if status == 503 else None)
        return {} if after is None else {"Retry-After": str(max(1, math.ceil(after)))}


def add_problem_schema(document: dict[str, Any], model: type[BaseModel] = Problem) -> None:
    """Have every error of an OpenAPI document be a problem, in place of FastAPI's own schema."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schema = model.model_json_schema(ref_template=_REFERENCE)
    schemas.update(schema.pop("$defs", {}))
    schemas[model.__name__] = schema
    content = {MEDIA_TYPE: {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}}
    for path in document["paths"].values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                if status >= "400":
                    response["content"] = content
