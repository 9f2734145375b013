"""What is measured, each as the engine's workers serve it.

`fast` is the site's own path for anonymous reads, with the check of host names and metrics,
`streams` its live figures. `plain` is what one would write first: FastAPI that returns the same
values and has them validated and encoded; `encoded` is FastAPI at its best, which returns what was
encoded before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Response

from benchmarks.hives.editions import edition
from penstock.core.host_policy import HostPolicy
from penstock_hives.encoding import encode_json
from penstock_hives.live.change_feed import ChangeFeed, EncodedOccupancy
from penstock_hives.live.endpoints import LIVE_PATH, live_endpoint
from penstock_hives.places.models import HiveDetail
from penstock_hives.public.reader import PublicReader, public_endpoint
from penstock_hives.public.view import PublicView
from penstock_hives.server.asgi import (
    AsgiApplication,
    Location,
    LocationRouter,
    Receive,
    Scope,
    Send,
    send_problem,
)
from penstock_hives.server.site import HivesSite

HIVES = 1000


async def _nobody(scope: Scope, receive: Receive, send: Send) -> None:
    await send_problem(send, 404, "not measured")


@asynccontextmanager
async def fast(options: dict[str, Any], draining: asyncio.Event) -> AsyncIterator[AsgiApplication]:
    view = PublicView()
    view.replace_snapshot(edition(HIVES))
    reader = PublicReader(view)
    answers = public_endpoint(reader, _nobody)
    router = LocationRouter([Location("public", "/v1/", answers)], {})
    yield HivesSite(router, HostPolicy(["hives"], setting="hosts"), reader, {})


@asynccontextmanager
async def plain(options: dict[str, Any], draining: asyncio.Event) -> AsyncIterator[AsgiApplication]:
    details = {each.id: each for each in edition(HIVES).hives.details}
    app = FastAPI()

    @app.get("/v1/hives/{hive}")
    async def detail(hive: int) -> HiveDetail:
        return details[hive]

    yield app


@asynccontextmanager
async def encoded(
    options: dict[str, Any], draining: asyncio.Event
) -> AsyncIterator[AsgiApplication]:
    details = {each.id: encode_json(each) for each in edition(HIVES).hives.details}
    app = FastAPI()

    @app.get("/v1/hives/{hive}")
    async def detail(hive: int) -> Response:
        return Response(details[hive], media_type="application/json")

    yield app


@asynccontextmanager
async def streams(
    options: dict[str, Any], draining: asyncio.Event
) -> AsyncIterator[AsgiApplication]:
    """Fifty hives, of which one changes so many times a second."""
    feed = ChangeFeed()
    feed.open()
    view = PublicView(feed.publish)
    view.replace_snapshot(edition(50))
    changing = asyncio.create_task(_change(feed, float(options["changes"])))
    yield LocationRouter([Location("live", LIVE_PATH, live_endpoint(feed))], {})
    changing.cancel()
    feed.close()


async def _change(feed: ChangeFeed, rate: float) -> None:
    version = 1
    while True:
        await asyncio.sleep(1 / rate)
        version += 1
        figure = feed.current(None)[version % 50]
        feed.publish(EncodedOccupancy(figure.hive, version, figure.body))
