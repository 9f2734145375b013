"""The application as one ASGI callable: routers, errors, limits, and what it says of itself.

Routers are listed, not discovered. Beside requests it has two chores: what sensors are to be told
and the broker was not there for (`Commands.tend`), and files of pictures nobody has any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from itertools import count
from typing import Final

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from penstock import __version__
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.hives.app.api import (
    accounts,
    alerts,
    analytics,
    deals,
    hive_settings,
    hives,
    identity,
    images,
    messages,
    payments,
    people,
    places,
    problems,
    push,
    sensors,
)
from penstock.hives.app.api.bodies import BodyLimit
from penstock.hives.app.api.description import describe
from penstock.hives.app.api.docs_page import render
from penstock.hives.app.resources import Resources

log = get_logger(__name__)

PREFIX: Final = "/v1"
#: The page of the description is whole by itself.
DOCS_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
#: Seconds between two looks at what sensors are to be told.
TEND_SECONDS: Final = 30.0
#: Looks at sensors between two at the files of pictures.
SWEEP_EVERY: Final = 120
ROUTERS: Final[Sequence[APIRouter]] = (
    *(
        hives.router,
        hive_settings.router,
        deals.router,
        images.router,
        places.router,
        people.router,
    ),
    *(messages.router, accounts.router, sensors.router, analytics.router),
    *(identity.router, push.router, payments.router, alerts.router),
)


def create_app(resources: Resources, extra: Sequence[APIRouter] = ()) -> FastAPI:
    """The application over resources that are open."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        chore = asyncio.create_task(_tend(resources))
        yield
        chore.cancel()
        with suppress(asyncio.CancelledError):
            await chore

    app = FastAPI(
        title="Hives",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{PREFIX}/openapi.json",
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.resources = resources
    routers = (*ROUTERS, *extra)
    for router in routers:
        app.include_router(router, prefix=PREFIX)
    problems.install(app)
    describe(app, routers, PREFIX)
    _show_docs(app)
    limits = resources.settings
    app.add_middleware(BodyLimit, limit=limits.body_bytes, uploads=limits.image_bytes)
    return app


def _show_docs(app: FastAPI) -> None:
    """The description for people, made when it is first asked for."""
    page = cache(lambda: render(app.openapi()))

    async def docs(request: Request) -> Response:
        return HTMLResponse(page(), headers={"Content-Security-Policy": DOCS_POLICY})

    app.add_route(f"{PREFIX}/docs", docs, include_in_schema=False)


async def _tend(resources: Resources) -> None:
    for turn in count(1):
        try:
            await resources.services.commands.tend()
            if turn % SWEEP_EVERY == 0:
                await resources.services.images.sweep()
        except PenstockError as error:
            log.warning("chores were not done", reason=str(error))
        await asyncio.sleep(TEND_SECONDS)
