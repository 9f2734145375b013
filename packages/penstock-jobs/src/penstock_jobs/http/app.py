"""The API as an application: routes over a desk, errors as problem details, its own description.

Who runs it opens the desk and hands it in; nothing here knows of brokers or databases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from penstock import __version__
from penstock_jobs.http import routes
from penstock_jobs.http.guard import ApiLimits, RequestGuard
from penstock_jobs.http.problems import ProblemDetails, install
from penstock_jobs.http.schemas import add_request_schemas
from penstock_jobs.service import JobBackend

_ABOUT: Final = """\
Long computations, asked for by one request and followed while they run.

    curl -F type=fake -F duration=10 http://127.0.0.1:8081/jobs
    curl -N http://127.0.0.1:8081/jobs/ID/progress
    curl http://127.0.0.1:8081/jobs/ID/result

Where a token is set, each has to have it: `-H 'Authorization: Bearer TOKEN'`.

Errors are problem details (RFC 9457); a data set that cannot be used comes with the row and the
column of all that is wrong with it.
"""


def create_app(backend: JobBackend, limits: ApiLimits | None = None) -> FastAPI:
    bounds = limits or ApiLimits()
    app = FastAPI(
        title="Jobs of Penstock",
        summary="Submit, follow, cancel; results as JSON, XML, CSV or zip.",
        description=_ABOUT,
        version=__version__,
        docs_url=None,
        redoc_url=None,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    install(app)
    for router in (
        routes.job_routes(backend, bounds),
        routes.single_job_routes(backend),
        routes.dead_letter_routes(backend),
        routes.other_routes(),
    ):
        app.include_router(router)
    app.add_middleware(RequestGuard, limits=bounds)
    if bounds.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=sorted(bounds.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
            expose_headers=["Location", "Retry-After"],
        )
    _describe(app, secured=bounds.token is not None)
    return app


def _describe(app: FastAPI, secured: bool) -> None:
    plain: Callable[[], dict[str, Any]] = app.openapi

    def whole() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = plain()
            schemas = found.setdefault("components", {}).setdefault("schemas", {})
            schemas["ProblemDetails"] = ProblemDetails.model_json_schema(
                ref_template="#/components/schemas/{model}"
            )
            schemas |= schemas["ProblemDetails"].pop("$defs", {})
            if secured:
                schemes = {"token": {"type": "http", "scheme": "bearer"}}
                found["components"]["securitySchemes"] = schemes
                found["security"] = [{"token": []}]
            app.openapi_schema = add_request_schemas(found)
        return app.openapi_schema

    app.openapi = whole  # type: ignore[method-assign]
