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
from penstock.core.host_policy import ANY_HOST, HostPolicy, HostPolicyMiddleware
from penstock.core.logs import get_logger
from penstock_hives.analytics.models import PopularityDays, PopularityMeasure
from penstock_hives.analytics.service import AnalyticsService
from penstock_hives.api.app import create_app
from penstock_hives.billing.service import PlanService
from penstock_hives.database import DatabasePool
from penstock_hives.identity.service import open_identity
from penstock_hives.identity.settings import IdentitySettings
from penstock_hives.live.change_feed import ChangeFeed
from penstock_hives.live.endpoints import LIVE_PATH as LIVE
from penstock_hives.live.endpoints import live_endpoint
from penstock_hives.live.subscriber import LatencyTracker, OccupancySubscriber
from penstock_hives.places.service import HiveService
from penstock_hives.public import images as pictures
from penstock_hives.public.page import INDEX, static_files
from penstock_hives.public.page import read_files as read_page
from penstock_hives.public.reader import MAX_LIMIT, ROOT, PublicReader, public_endpoint
from penstock_hives.public.snapshot import LiveFallback, PublicSnapshot, SnapshotRefresher
from penstock_hives.public.view import PublicView
from penstock_hives.resources import Resources, open_resources
from penstock_hives.server.asgi import (
    AsgiApplication,
    Location,
    LocationRouter,
    Receive,
    Scope,
    Send,
    send_response,
)
from penstock_hives.server.configuration import SiteSettings
from penstock_hives.server.disk_cache import DiskCache
from penstock_hives.settings import HivesSettings

log = get_logger(__name__)

#: Which of the database's advisory locks is for making editions.
_LOCK: Final = 0x68697673
HEALTH: Final = "/health"


@asynccontextmanager
async def application(
    options: dict[str, Any], draining: asyncio.Event
) -> AsyncIterator[AsgiApplication]:
    try:
        given = SiteSettings.model_validate(options)
        settings = HivesSettings(**given.application)
        identity = IdentitySettings(**given.identity)
    except ValidationError as error:
        raise ConfigurationError(str(error)) from error
    async with AsyncExitStack() as stack:
        vouching = open_identity(identity, production=settings.production, environment=os.environ)
        identify = await stack.enter_async_context(vouching)
        bulletin = ChangeFeed()
        window = PublicView(bulletin.tell, bulletin.forget)
        answers = PublicReader(window)
        resources = await stack.enter_async_context(
            open_resources(settings, identify, public=answers)
        )
        disk = await stack.enter_async_context(DiskCache(given.pictures))
        api = create_app(resources)
        await stack.enter_async_context(api.router.lifespan_context(api))
        delays = LatencyTracker(resources.clock)

        def heard(document: Mapping[str, Any]) -> None:
            delays.note(document)
            window.heard(document)

        feed = OccupancySubscriber(given.brokers, heard)
        bulletin.open()
        stack.callback(bulletin.close)
        for chore in _chores(given, resources, window, feed, bulletin, draining):
            await stack.enter_async_context(_running(chore))
        health = _health(window, feed, delays)
        site = _site(given, resources, window, answers, api, bulletin, disk, health)
        # Live figures are for pages of all sites.
        policy = HostPolicy(given.hosts, [ANY_HOST], setting="hosts in [site]")
        yield HostPolicyMiddleware(site, policy)


def _site(
    given: SiteSettings,
    resources: Resources,
    window: PublicView,
    answers: PublicReader,
    api: AsgiApplication,
    bulletin: ChangeFeed,
    disk: DiskCache,
    health: AsgiApplication,
) -> LocationRouter:
    images = pictures.image_endpoint(window.image, resources.services.images.content, disk, api)
    guarded = LocationRouter([Location("/", api, most=given.api_requests)], {})
    return LocationRouter(
        [
            Location(LIVE, live_endpoint(bulletin), quick=True),
            Location(pictures.PREFIX, images, quick=True),
            Location(ROOT, public_endpoint(answers, guarded), quick=True),
            Location(HEALTH, health, quick=True),
            Location("/", static_files(read_page()), quick=True),
        ],
        {"/": INDEX, "/favicon.ico": "/icon.svg"},
    )


def _chores(
    given: SiteSettings,
    resources: Resources,
    window: PublicView,
    feed: OccupancySubscriber,
    bulletin: ChangeFeed,
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
    refresher = SnapshotRefresher(
        window.show,
        lambda: asyncio.to_thread(_edition, settings, resources.clock),
        alone,
        shared,
        resources.clock,
        every=given.refresh,
        retry=given.retry,
    )
    catching = LiveFallback(
        *(resources.cache, lambda: window.hives, window.heard, feed.listening.is_set),
        every=given.catch_up,
    )
    periodic_tasks = [refresher.run(), catching.run(), end_streams()]
    return [*periodic_tasks, feed.run()] if given.brokers else periodic_tasks


def _edition(settings: HivesSettings, clock: Callable[[], datetime]) -> PublicSnapshot:
    """All the public may see, read in a thread with a loop of its own.

    There may be thousands of hives, and to make values of their rows takes a while in which the
    worker's own loop is to go on.
    """

    async def read() -> PublicSnapshot:
        wait, longest = settings.pool_wait, settings.statement_seconds
        async with DatabasePool(settings.database, 1, wait, longest) as pool:
            snapshot = await HiveService(pool, clock).snapshot()
            plans, found = PlanService(pool, clock), AnalyticsService(pool, clock)
            popular = {
                each
                for days in PopularityDays
                for by in PopularityMeasure
                for each in await found.popular(days, by, MAX_LIMIT)
            }
            ranked = sorted(popular, key=lambda each: (each.window_days, each.rank))
            return PublicSnapshot(snapshot, tuple(await plans.plans()), tuple(ranked))

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


def _health(
    window: PublicView, feed: OccupancySubscriber, delays: LatencyTracker
) -> AsgiApplication:
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
        await send_response(send, 200 if shows else 503, headers, body)

    return application
