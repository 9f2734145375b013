"""What is measured, each as the engine's workers serve it.

`fast` is the site's own path for anonymous reads, `streams` its live figures. `plain` is what one
would write first: FastAPI that returns the same values and has them validated and encoded; `bytes`
is FastAPI at its best, which returns what was encoded before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Response

from benchmarks.hives.editions import edition
from penstock.hives.app.api.encoding import encode
from penstock.hives.app.domain.hives import HiveDetail
from penstock.hives.app.engine.asgi import Application, Receive, Scope, Send, problem
from penstock.hives.app.live.bulletin import Bulletin, Figure
from penstock.hives.app.live.desk import PATH, live
from penstock.hives.app.public.answers import Answers
from penstock.hives.app.public.fast import fast_path
from penstock.hives.app.public.window import Window
from penstock.hives.app.site import Location, Site

HIVES = 1000


async def _nobody(scope: Scope, receive: Receive, send: Send) -> None:
    await problem(send, 404, "not measured")


@asynccontextmanager
async def fast(options: dict[str, Any], draining: asyncio.Event) -> AsyncIterator[Application]:
    window = Window()
    window.show(edition(HIVES))
    answers = fast_path(Answers(window), _nobody)
    yield Site([Location("/v1/", answers, quick=True)], {})


@asynccontextmanager
async def plain(options: dict[str, Any], draining: asyncio.Event) -> AsyncIterator[Application]:
    details = {each.id: each for each in edition(HIVES).snapshot.details}
    app = FastAPI()

    @app.get("/v1/hives/{hive}")
    async def detail(hive: int) -> HiveDetail:
        return details[hive]

    yield app


@asynccontextmanager
async def encoded(options: dict[str, Any], draining: asyncio.Event) -> AsyncIterator[Application]:
    details = {each.id: encode(each) for each in edition(HIVES).snapshot.details}
    app = FastAPI()

    @app.get("/v1/hives/{hive}")
    async def detail(hive: int) -> Response:
        return Response(details[hive], media_type="application/json")

    yield app


@asynccontextmanager
async def streams(options: dict[str, Any], draining: asyncio.Event) -> AsyncIterator[Application]:
    """Fifty hives, of which one changes so many times a second."""
    bulletin = Bulletin()
    bulletin.open()
    window = Window(bulletin.tell)
    window.show(edition(50))
    changing = asyncio.create_task(_change(window, bulletin, float(options["changes"])))
    yield Site([Location(PATH, live(bulletin), quick=True)], {})
    changing.cancel()
    bulletin.close()


async def _change(window: Window, bulletin: Bulletin, rate: float) -> None:
    version = 1
    while True:
        await asyncio.sleep(1 / rate)
        version += 1
        figure = window.figures()[version % 50]
        bulletin.tell(Figure(figure.hive, version, figure.body))
