"""The site of one worker, put together: pages, fast path, live figures, pictures, the API.

    async with application(options, draining) as site: ...

What is owned is a tree: tasks end before what they use is closed, in the reverse of the order here.
Nothing needs the database, the cache or the broker to be there when it is opened: each is found
when it is back, and until then the site answers with what it has.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from penstock.core.errors import ConfigurationError
from penstock.core.host_policy import ANY, HostCheck, HostPolicy
from penstock.core.logs import get_logger
from penstock.hives.app.api.app import create_app
from penstock.hives.app.configuration import SiteSettings
from penstock.hives.app.domain.analytics import Interest, Recent
from penstock.hives.app.engine.asgi import Application, Receive, Scope, Send, respond
from penstock.hives.app.engine.disk import DiskCache
from penstock.hives.app.identity.opening import open_identity
from penstock.hives.app.identity.settings import IdentitySettings
from penstock.hives.app.live.bulletin import Bulletin
from penstock.hives.app.live.delays import Delays
from penstock.hives.app.live.desk import PATH as LIVE
from penstock.hives.app.live.desk import live
from penstock.hives.app.live.feed import Feed
from penstock.hives.app.page.files import INDEX, page
from penstock.hives.app.page.files import read as read_page
from penstock.hives.app.public import pictures
from penstock.hives.app.public.answers import ROOT, Answers
from penstock.hives.app.public.editions import Edition
from penstock.hives.app.public.fast import fast_path
from penstock.hives.app.public.questions import MOST
from penstock.hives.app.public.refresher import CatchingUp, Refresher
from penstock.hives.app.public.window import Window
from penstock.hives.app.repositories.pool import Pool
from penstock.hives.app.resources import Resources, open_resources
from penstock.hives.app.services.analytics import Analytics
from penstock.hives.app.services.hives import Hives
from penstock.hives.app.services.plans import Plans
from penstock.hives.app.settings import Settings
from penstock.hives.app.site import Location, Site

log = get_logger(__name__)

#: Which of the database's advisory locks is for making editions.
_LOCK: Final = 0x68697673
HEALTH: Final = "/health"


@asynccontextmanager
async def application(
    options: dict[str, Any], draining: asyncio.Event
) -> AsyncIterator[Application]:
    try:
        given = SiteSettings.model_validate(options)
        settings = Settings(**given.application)
        identity = IdentitySettings(**given.identity)
    except ValidationError as error:
        raise ConfigurationError(str(error)) from error
    async with AsyncExitStack() as stack:
        vouching = open_identity(identity, production=settings.production, environment=os.environ)
        identify = await stack.enter_async_context(vouching)
        bulletin = Bulletin()
        window = Window(bulletin.tell, bulletin.forget)
        answers = Answers(window)
        resources = await stack.enter_async_context(
            open_resources(settings, identify, public=answers)
        )
        disk = await stack.enter_async_context(DiskCache(given.pictures))
        api = create_app(resources)
        await stack.enter_async_context(api.router.lifespan_context(api))
        delays = Delays(resources.clock)

        def heard(document: Mapping[str, Any]) -> None:
            delays.note(document)
            window.heard(document)

        feed = Feed(given.brokers, heard)
        bulletin.open()
        stack.callback(bulletin.close)
        for chore in _chores(given, resources, window, feed, bulletin, draining):
            await stack.enter_async_context(_running(chore))
        health = _health(window, feed, delays)
        site = _site(given, resources, window, answers, api, bulletin, disk, health)
        # Live figures are for pages of all sites.
        policy = HostPolicy(given.hosts, [ANY], setting="hosts in [site]")
        yield HostCheck(site, policy)


def _site(
    given: SiteSettings,
    resources: Resources,
    window: Window,
    answers: Answers,
    api: Application,
    bulletin: Bulletin,
    disk: DiskCache,
    health: Application,
) -> Site:
    images = pictures.pictures(window.image, resources.services.images.content, disk, api)
    guarded = Site([Location("/", api, most=given.api_requests)], {})
    return Site(
        [
            Location(LIVE, live(bulletin), quick=True),
            Location(pictures.PREFIX, images, quick=True),
            Location(ROOT, fast_path(answers, guarded), quick=True),
            Location(HEALTH, health, quick=True),
            Location("/", page(read_page()), quick=True),
        ],
        {"/": INDEX, "/favicon.ico": "/icon.svg"},
    )


def _chores(
    given: SiteSettings,
    resources: Resources,
    window: Window,
    feed: Feed,
    bulletin: Bulletin,
    draining: asyncio.Event,
) -> list[Coroutine[Any, Any, None]]:
    @asynccontextmanager
    async def alone() -> AsyncIterator[None]:
        async with resources.pool.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            yield

    async def end_streams() -> None:
        await draining.wait()
        bulletin.close()

    settings = resources.settings
    shared = None if settings.cache is None else resources.cache
    refresher = Refresher(
        window.show,
        lambda: asyncio.to_thread(_edition, settings, resources.clock),
        alone,
        shared,
        resources.clock,
        every=given.refresh,
        retry=given.retry,
    )
    catching = CatchingUp(
        *(resources.cache, lambda: window.hives, window.heard, feed.listening.is_set),
        every=given.catch_up,
    )
    chores = [refresher.run(), catching.run(), end_streams()]
    return [*chores, feed.run()] if given.brokers else chores


def _edition(settings: Settings, clock: Callable[[], datetime]) -> Edition:
    """All the public may see, read in a thread with a loop of its own.

    There may be thousands of hives, and to make values of their rows takes a while in which the
    worker's own loop is to go on.
    """

    async def read() -> Edition:
        wait, longest = settings.pool_wait, settings.statement_seconds
        async with Pool(settings.database, 1, wait, longest) as pool:
            snapshot = await Hives(pool, clock).snapshot()
            plans, found = Plans(pool, clock), Analytics(pool, clock)
            popular = {
                each
                for days in Recent
                for by in Interest
                for each in await found.popular(days, by, MOST)
            }
            ranked = sorted(popular, key=lambda each: (each.window_days, each.rank))
            return Edition(snapshot, tuple(await plans.plans()), tuple(ranked))

    return asyncio.run(read())


@asynccontextmanager
async def _running(chore: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """A task for the length of the block. One that fails is a mistake of ours, and is told."""
    task = asyncio.create_task(chore)
    task.add_done_callback(_told)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def _told(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a chore has failed", exc_info=error)


def _health(window: Window, feed: Feed, delays: Delays) -> Application:
    """For whoever balances load: 200 while there is something to show."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        shows = window.shows
        told = {
            "edition": shows,
            "live": feed.listening.is_set(),
            "figures": feed.figures,
            "delay_s": delays.summary(),
        }
        body = json.dumps(told, separators=(",", ":")).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
        ]
        await respond(send, 200 if shows else 503, headers, body)

    return application
