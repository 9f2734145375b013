"""The HTTP API as an application: routes over a `JobService`, and its OpenAPI description."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from penstock import __version__
from penstock_jobs.http import routes
from penstock_jobs.http.dataset_routes import dataset_routes, matrix_routes
from penstock_jobs.http.guard import ApiLimits, RequestGuard
from penstock_jobs.http.schemas import PROBLEMS, ProblemDetails, add_request_schemas
from penstock_jobs.service import JobService
from penstock_jobs.users.repository import UserRepository
from penstock_store.http.problems import add_problem_schema

_ABOUT: Final = """\
Long-running jobs: submit them with one request and follow their progress.

    curl -F type=fake -F duration=10 http://127.0.0.1:8081/jobs
    curl -N http://127.0.0.1:8081/jobs/ID/progress
    curl http://127.0.0.1:8081/jobs/ID/result

If the server has a token, each request needs it: `-H 'Authorization: Bearer TOKEN'`.

Errors are problem details (RFC 9457). Those of a data set name the row and the column of each
problem.
"""


def create_app(
    jobs: JobService, limits: ApiLimits | None = None, users: UserRepository | None = None
) -> FastAPI:
    """With `users`, the audit log is served, and `limits` find the users of tokens."""
    limits = limits or ApiLimits()
    app = FastAPI(
        title="Penstock Jobs",
        summary="Submit, follow, cancel; results as JSON, XML, CSV or zip.",
        description=_ABOUT,
        version=__version__,
        docs_url=None,
        redoc_url=None,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    app.state.jobs, app.state.users = jobs, users
    PROBLEMS.install(app)
    for router in (
        routes.job_routes(limits),
        routes.overview_routes(),
        routes.single_job_routes(),
        routes.dead_letter_routes(),
        routes.schedule_routes(limits),
        *((routes.audit_routes(),) if users is not None else ()),
        matrix_routes(),
        dataset_routes(),
        routes.other_routes(),
    ):
        app.include_router(router)
    app.add_middleware(RequestGuard, limits=limits)
    if limits.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=sorted(limits.origins),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
            expose_headers=["Location", "Retry-After"],
        )
    _describe(app, secured=limits.token is not None or limits.find_user is not None)
    return app


def _describe(app: FastAPI, secured: bool) -> None:
    derived: Callable[[], dict[str, Any]] = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = derived()
            add_problem_schema(document, ProblemDetails)
            if secured:
                schemes = {"token": {"type": "http", "scheme": "bearer"}}
                document["components"]["securitySchemes"] = schemes
                document["security"] = [{"token": []}]
            app.openapi_schema = add_request_schemas(document)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
