"""The API as an ASGI application: routers, problems, request size limit, OpenAPI and its page.

Beside requests it runs maintenance: delivery of sensor commands that the broker did not take, and
deletion of image files without an image.
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
from penstock_hives.billing import endpoints as billing
from penstock_hives.deals import endpoints as deals
from penstock_hives.identity import endpoints as identity
from penstock_hives.images import endpoints as images
from penstock_hives.messages import endpoints as messages
from penstock_hives.people import endpoints as people
from penstock_hives.places import endpoints as places
from penstock_hives.push import endpoints as push
from penstock_hives.resources import Resources
from penstock_hives.sensors import endpoints as sensors

log = get_logger(__name__)

PREFIX: Final = "/v1"
#: The page of `render_docs` loads nothing.
DOCS_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
MAINTENANCE_SECONDS: Final = 30.0
#: Maintenance runs between two sweeps of image files.
IMAGE_SWEEP_EVERY: Final = 120
ROUTERS: Final[Sequence[APIRouter]] = (
    *(places.public_router, places.settings_router, places.favourites_router),
    *(deals.public_router, deals.router, images.public_router, images.router),
    *(people.router, people.accounts_router, billing.public_router, billing.plans_router),
    *(messages.router, sensors.router, analytics.public_router, analytics.router),
    *(identity.router, push.router, billing.router, alerts.router, alerts.settings_router),
)


def create_app(resources: Resources, extra: Sequence[APIRouter] = ()) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        maintenance = asyncio.create_task(_maintain(resources))
        yield
        maintenance.cancel()
        with suppress(asyncio.CancelledError):
            await maintenance

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
    page = cache(lambda: render_docs(app.openapi()))

    async def docs(request: Request) -> Response:
        return HTMLResponse(page(), headers={"Content-Security-Policy": DOCS_POLICY})

    app.add_route(f"{PREFIX}/docs", docs, include_in_schema=False)


async def _maintain(resources: Resources) -> None:
    for number in count(1):
        try:
            await resources.services.commands.deliver_pending()
            if number % IMAGE_SWEEP_EVERY == 0:
                await resources.services.images.sweep()
        except PenstockError as error:
            log.warning("maintenance failed", reason=str(error))
        await asyncio.sleep(MAINTENANCE_SECONDS)


class BodySizeLimit:
    """ASGI middleware that limits request bodies; image uploads may be larger than others.

    Content-Length only serves to refuse early: the received bytes are counted.
    """

    def __init__(self, app: ASGIApp, limit: int, uploads: int) -> None:
        self._app = app
        self._limit = limit
        self._uploads = uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # A form has a few hundred bytes beside the image.
        upload = scope["method"] == "POST" and scope["path"].endswith("/images")
        limit = self._uploads + 4096 if upload else self._limit
        detail = f"a request body may have at most {limit:,} bytes"
        if _content_length(scope) > limit:
            await PROBLEMS.response(413, detail)(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > limit:
                    # FastAPI passes on no other exception while it reads a body.
                    raise HTTPException(413, detail)
            return message

        await self._app(scope, counted, send)


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return parse_count(value.decode("latin-1")) or 0
    return 0
