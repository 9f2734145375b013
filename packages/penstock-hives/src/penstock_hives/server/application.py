"""The ASGI application of one worker: pages, public reads, live occupancy, images and the API.

    async with application(options, draining) as site: ...

Tasks end before the resources they use are closed. Database, cache and broker need not be available
at the start: they are connected when they are, and until then the site serves what it has.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any, Final

from penstock.core.errors import ConfigurationError
from penstock.core.host_policy import ANY_HOST, HostPolicy
from penstock.core.logs import get_logger
from penstock.core.settings_model import SettingsError, build_settings
from penstock_hives.analytics.models import PopularityDays, PopularityMeasure
from penstock_hives.analytics.service import AnalyticsService
from penstock_hives.api.app import create_app
from penstock_hives.billing.service import PlanService
from penstock_hives.billing.settings import PaymentSettings
from penstock_hives.database import DatabasePool
from penstock_hives.identity.service import open_identity
from penstock_hives.identity.settings import IdentitySettings
from penstock_hives.live.change_feed import ChangeFeed
from penstock_hives.live.endpoints import LIVE_PATH, live_endpoint
from penstock_hives.live.subscriber import LatencyTracker, OccupancySubscriber
from penstock_hives.places.service import HiveService
from penstock_hives.public.badge import PREFIX as BADGE_PATH
from penstock_hives.public.badge import badge_endpoint
from penstock_hives.public.first_view import FirstView, first_view_endpoint
from penstock_hives.public.images import PREFIX as IMAGES_PATH
from penstock_hives.public.images import image_endpoint
from penstock_hives.public.page import (
    INDEX,
    cached_files,
    read_contents,
    security_headers,
    static_files,
)
from penstock_hives.public.reader import ROOT, PublicReader, public_endpoint
from penstock_hives.public.snapshot import LiveFallback, PublicSnapshot, SnapshotRefresher
from penstock_hives.public.view import PublicView
from penstock_hives.push.settings import PushSettings, open_vapid
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
from penstock_hives.server.site import HivesSite
from penstock_hives.settings import HivesSettings, read_settings

log = get_logger(__name__)

#: The advisory lock for the creation of snapshots.
_LOCK: Final = 0x68697673
#: Popular hives in a snapshot, for each period and measure.
_MAX_POPULAR: Final = 100
HEALTH: Final = "/health"


@asynccontextmanager
async def application(
    options: dict[str, Any], draining: asyncio.Event
) -> AsyncIterator[AsgiApplication]:
    try:
        given = build_settings(SiteSettings, options)
    except SettingsError as error:
        raise ConfigurationError(str(error)) from error
    settings = read_settings(HivesSettings, given.application)
    identity = read_settings(IdentitySettings, given.identity)
    async with AsyncExitStack() as stack:
        identify = await stack.enter_async_context(
            open_identity(identity, production=settings.production, environment=os.environ)
        )
        feed = ChangeFeed()
        view = PublicView(feed.publish, feed.remove)
        reader = PublicReader(view)
        resources = await stack.enter_async_context(
            open_resources(settings, identify, public=reader)
        )
        # Browsers tie subscriptions to this key: it is created once, at the first start.
        await asyncio.to_thread(open_vapid, PushSettings.beside(settings.images.parent))
        disk = await stack.enter_async_context(DiskCache(given.pictures))
        api = create_app(resources)
        await stack.enter_async_context(api.router.lifespan_context(api))
        latency = LatencyTracker(resources.clock)

        def on_occupancy(document: Mapping[str, Any]) -> None:
            latency.record(document)
            view.apply_live(document)

        subscriber = OccupancySubscriber(given.brokers, on_occupancy)
        feed.open()
        stack.callback(feed.close)
        for work in _background_work(given, resources, view, subscriber, feed, draining):
            await stack.enter_async_context(_background_task(work))
        health = _health(view, subscriber, latency)
        images = image_endpoint(view.image, resources.services.images.content, disk, api)
        sells_plans = read_settings(PaymentSettings).can_sell(production=settings.production)
        known = _page_settings(given, identity, sells_plans)
        contents = read_contents(known)
        first = FirstView(view, contents)
        headers = security_headers(known, first.script_hash, first.style_hash)
        pages = cached_files(contents, headers)
        files = static_files(dict(pages), signs_in=bool(identity.of_page()))
        limited = LocationRouter([Location("api", "/", api, max_requests=given.api_requests)], {})
        site = LocationRouter(
            [
                Location("live", LIVE_PATH, live_endpoint(feed)),
                Location("images", IMAGES_PATH, images),
                Location("public", ROOT, public_endpoint(reader, limited)),
                Location("health", HEALTH, health),
                Location("badge", BADGE_PATH, badge_endpoint(view, first)),
                Location("page", INDEX, first_view_endpoint(first, headers, files)),
                Location("page", "/", files),
            ],
            {"/": INDEX, "/favicon.ico": "/icon.svg"},
        )
        # Pages of all origins may read live occupancy.
        policy = HostPolicy(given.hosts, [ANY_HOST], setting="hosts in [site]")

        def figures() -> dict[str, Any]:
            age = None
            if view.has_snapshot:
                age = (resources.clock() - view.snapshot.as_of).total_seconds()
            return {"streams": feed.streams, "figures": subscriber.figures, "age": age}

        del pages[INDEX]  # which has the list of places, and a language
        yield HivesSite(site, policy, reader, pages, figures)


def _page_settings(
    given: SiteSettings, identity: IdentitySettings, sells_plans: bool
) -> dict[str, Any]:
    """What the page may know."""
    tiles = {"tiles": given.tiles, "attribution": given.tiles_attribution}
    return {**tiles, "firebase": identity.of_page(), "sells_plans": sells_plans}


def _background_work(
    given: SiteSettings,
    resources: Resources,
    view: PublicView,
    subscriber: OccupancySubscriber,
    feed: ChangeFeed,
    draining: asyncio.Event,
) -> list[Coroutine[Any, Any, None]]:
    @asynccontextmanager
    async def lock() -> AsyncIterator[None]:
        async with resources.pool.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            yield

    async def end_streams() -> None:
        await draining.wait()
        feed.close()

    settings = resources.settings
    shared = None if settings.cache is None else resources.cache
    refresher = SnapshotRefresher(
        view.replace_snapshot,
        lambda: asyncio.to_thread(_read_snapshot, settings, resources.clock),
        lock,
        shared,
        resources.clock,
        every=given.refresh,
        retry=given.retry,
    )
    fallback = LiveFallback(
        *(resources.cache, lambda: view.hives, view.apply_live, subscriber.subscribed.is_set),
        every=given.catch_up,
    )
    work = [refresher.run(), fallback.run(), end_streams()]
    return [*work, subscriber.run()] if given.brokers else work


def _read_snapshot(settings: HivesSettings, clock: Callable[[], datetime]) -> PublicSnapshot:
    """Runs in a thread with its own event loop: decoding thousands of hives takes a while."""

    async def read() -> PublicSnapshot:
        wait, longest = settings.pool_wait, settings.statement_seconds
        async with DatabasePool(settings.database, 1, wait, longest) as pool:
            snapshot = await HiveService(pool, clock).snapshot()
            plans, found = PlanService(pool, clock), AnalyticsService(pool, clock)
            popular = {
                each
                for days in PopularityDays
                for by in PopularityMeasure
                for each in await found.popular(days, by, _MAX_POPULAR)
            }
            ranked = sorted(popular, key=lambda each: (each.window_days, each.rank))
            return PublicSnapshot(snapshot, tuple(await plans.plans()), tuple(ranked))

    return asyncio.run(read())


@asynccontextmanager
async def _background_task(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """A task for the length of the block; a failure is logged."""
    task = asyncio.create_task(work)
    task.add_done_callback(_log_failure)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("background task failed", exc_info=error)


def _health(
    view: PublicView, subscriber: OccupancySubscriber, latency: LatencyTracker
) -> AsgiApplication:
    """For load balancers: 200 once there is a snapshot."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        ready = view.has_snapshot
        health = {
            "edition": ready,
            "live": subscriber.subscribed.is_set(),
            "figures": subscriber.figures,
            "delay_s": latency.summary(),
        }
        body = json.dumps(health, separators=(",", ":")).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
        ]
        await send_response(send, 200 if ready else 503, headers, body)

    return application
