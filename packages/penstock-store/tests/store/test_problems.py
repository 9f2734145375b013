"""Errors as problem details over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from penstock.core.errors import AuthenticationFailed, NotFound
from penstock_store import StoreUnavailable
from penstock_store.http.problems import (
    MEDIA_TYPE,
    ProblemMapper,
    ProblemRule,
    add_problem_schema,
)


class Refused(Exception):
    """Not a PenstockError."""


@pytest.fixture
def app() -> FastAPI:
    app = FastAPI()
    errors: dict[str, Exception] = {
        "sign-in": AuthenticationFailed("the token has expired"),
        "missing": NotFound("no job 7"),
        "refused": Refused("host 10.0.0.1"),
        "database": StoreUnavailable("no database at secret.example"),
        "bug": ZeroDivisionError("secret"),
    }

    @app.get("/raise/{name}")
    async def fail(name: str, count: int = 0) -> None:
        raise errors[name]

    ProblemMapper(
        (
            ProblemRule(AuthenticationFailed, 401, "Sign in"),
            ProblemRule(NotFound, 404, name="no-job"),
            ProblemRule(Refused, 503, "Unavailable"),
        ),
        lambda error: {"job": 7} if isinstance(error, NotFound) else {},
        retry_seconds=5,
    ).install(app)
    return app


def ask(app: FastAPI, path: str) -> tuple[dict[str, str], dict[str, Any]]:
    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path)

    answer = asyncio.run(get())
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert answer.status_code == answer.json()["status"]
    return dict(answer.headers), answer.json()


def test_a_title_is_the_type_unless_the_rule_names_it(app: FastAPI) -> None:
    headers, problem = ask(app, "/raise/sign-in")
    assert problem == {
        "type": "urn:penstock:problem:sign-in",
        "title": "Sign in",
        "status": 401,
        "detail": "the token has expired",
        "instance": "/raise/sign-in",
    }
    assert headers["www-authenticate"] == "Bearer"
    _, problem = ask(app, "/raise/missing")
    assert problem["type"] == "urn:penstock:problem:no-job"
    assert problem["title"] == "Not Found"
    assert problem["job"] == 7


def test_an_unavailable_service_says_when_to_try_again(app: FastAPI) -> None:
    headers, problem = ask(app, "/raise/refused")
    assert (problem["status"], headers["retry-after"]) == (503, "5")
    headers, problem = ask(app, "/raise/database")
    assert (problem["status"], headers["retry-after"]) == (503, "5")
    assert "secret" not in str(problem)


def test_an_unknown_error_is_an_id_and_nothing_else(app: FastAPI) -> None:
    _, problem = ask(app, "/raise/bug")
    assert problem["status"] == 500
    assert "id " in problem["detail"]
    assert "secret" not in str(problem)


def test_invalid_fields_are_named(app: FastAPI) -> None:
    _, problem = ask(app, "/raise/bug?count=many")
    assert problem["status"] == 422
    assert [each["field"] for each in problem["errors"]] == ["query.count"]
    assert problem["detail"].startswith("query.count: ")


def test_unknown_paths_are_problems(app: FastAPI) -> None:
    _, problem = ask(app, "/nothing")
    assert problem["type"] == "urn:penstock:problem:no-job"


def test_openapi_has_problems_for_every_error(app: FastAPI) -> None:
    document = app.openapi()
    add_problem_schema(document)
    answers = document["paths"]["/raise/{name}"]["get"]["responses"]
    schema = {"$ref": "#/components/schemas/Problem"}
    assert answers["422"]["content"] == {MEDIA_TYPE: {"schema": schema}}
    assert {"Problem", "FieldProblem"} <= set(document["components"]["schemas"])
    assert "HTTPValidationError" not in document["components"]["schemas"]
