"""The application as one ASGI callable: routers, errors, limits, and what it says of itself.

Routers are listed, not discovered. Beside requests it has two periodic_tasks: what sensors are to
be told and the broker was not there for (`Commands.tend`), and files of pictures nobody has any
more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from itertools import count
from typing import Final

from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock import __version__
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.core.units import parse_count
from penstock_hives.alerts import endpoints as alerts
from penstock_hives.analytics import endpoints as analytics
from penstock_hives.api.openapi import install_openapi, render_docs
from penstock_hives.api.problems import PROBLEMS
from penstock_hives.billing import endpoints as payments
from penstock_hives.deals import endpoints as deals
from penstock_hives.identity import endpoints as identity
from penstock_hives.images import endpoints as images
from penstock_hives.messages import endpoints as messages
from penstock_hives.people import endpoints as accounts
from penstock_hives.people import endpoints as people
from penstock_hives.places import (
    endpoints as hive_settings,
)
from penstock_hives.places import (
    endpoints as hives,
)
from penstock_hives.places import (
    endpoints as places,
)
from penstock_hives.push import endpoints as push
from penstock_hives.resources import Resources
from penstock_hives.sensors import endpoints as sensors

log = get_logger(__name__)

PREFIX: Final = "/v1"
#: The page of the description is whole by itself.
DOCS_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
#: Seconds between two looks at what sensors are to be told.
MAINTENANCE_SECONDS: Final = 30.0
#: Looks at sensors between two at the files of pictures.
IMAGE_SWEEP_EVERY: Final = 120
ROUTERS: Final[Sequence[APIRouter]] = (
    *(
        hives.router,
        hive_settings.settings_router,
        deals.router,
        images.router,
        places.favourites_router,
        people.router,
    ),
    *(messages.router, accounts.accounts_router, sensors.router, analytics.router),
    *(identity.router, push.router, payments.router, alerts.router),
)


def create_app(resources: Resources, extra: Sequence[APIRouter] = ()) -> FastAPI:
    """The application over resources that are open."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        chore = asyncio.create_task(_maintain(resources))
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
    PROBLEMS.install(app)
    install_openapi(app, routers, PREFIX)
    _show_docs(app)
    limits = resources.settings
    app.add_middleware(BodySizeLimit, limit=limits.body_bytes, uploads=limits.image_bytes)
    return app


def _show_docs(app: FastAPI) -> None:
    """The description for people, made when it is first asked for."""
    page = cache(lambda: render_docs(app.openapi()))

    async def docs(request: Request) -> Response:
        return HTMLResponse(page(), headers={"Content-Security-Policy": DOCS_POLICY})

    app.add_route(f"{PREFIX}/docs", docs, include_in_schema=False)


async def _maintain(resources: Resources) -> None:
    for turn in count(1):
        try:
            await resources.services.commands.deliver_pending()
            if turn % IMAGE_SWEEP_EVERY == 0:
                await resources.services.images.sweep()
        except PenstockError as error:
            log.warning("periodic_tasks were not done", reason=str(error))
        await asyncio.sleep(MAINTENANCE_SECONDS)


# How large a request may be: counted as it comes, refused when it is too much.
#
# What a client says its length is is believed only to refuse early.


class BodySizeLimit:
    """A layer of ASGI in front of the application."""

    def __init__(self, app: ASGIApp, limit: int, uploads: int) -> None:
        """Uploads of pictures may be larger than other bodies."""
        self._app = app
        self._limit = limit
        self._uploads = uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # A form has a few hundred bytes beside the picture in it.
        upload = scope["method"] == "POST" and scope["path"].endswith("/images")
        limit = self._uploads + 4096 if upload else self._limit
        words = f"a body has at most {limit:,} bytes"
        if _content_length(scope) > limit:
            await PROBLEMS.response(413, words)(scope, receive, send)
            return
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > limit:
                    # FastAPI hands on no other kind from where it reads bodies.
                    raise HTTPException(413, words)
            return message

        await self._app(scope, counted, send)


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return parse_count(value.decode("latin-1")) or 0
    return 0
