"""subscribe and sarra: fetch what is announced; sarra announces its own copy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from penstock.client import FabricClosed
from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock_pump.components.factory import (
    ComponentFactory,
    base_dir,
    base_url,
    dialect,
    file_attributes,
    file_rule,
    needs_post_broker,
    open_component_factory,
    selection,
    variables,
)
from penstock_pump.config.settings import PumpSettings
from penstock_pump.errors import BadPost
from penstock_pump.flow.consumer import AbandonCallback, PostConsumer, PostHandler
from penstock_pump.flow.subscription import PumpSubscription, is_mqtt_url
from penstock_pump.handlers import (
    ForwardHandler,
    ReceiveHandler,
    ReceiveRules,
    RepublishTarget,
    SendDestination,
    SendHandler,
)
from penstock_pump.names import posted_exchange, subscribed_exchange
from penstock_pump.plugins import Plugin
from penstock_pump.posts.reports import PostReport, read_report
from penstock_pump.status import ComponentControl
from penstock_pump.transports.access import HostRule


async def subscribe(
    settings: PumpSettings, control: ComponentControl | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """Fetch what is announced and accepted, until told to stop; with a post broker, tell it."""
    control = control or ComponentControl()
    async with open_component_factory(settings, plugins) as factory:
        republish_target = part_quota = None
        if needs_post_broker(settings):
            post_publisher = await factory.post_publisher()
            republish_target = RepublishTarget(
                post_publisher, base_url(settings), base_dir(settings)
            )
            part_quota = await factory.part_quota(
                republish_target.base_url, republish_target.base_dir
            )
        wanted = ReceiveRules(
            selection(settings),
            settings.events,
            settings.join,
            variables(settings),
            file_attributes(settings).folder_mode,
        )
        work = ReceiveHandler(
            wanted,
            factory.downloader(control.transfers, part_quota),
            republish_target=republish_target,
            provenance=factory.provenance(),
            duplicate_filter=await factory.duplicate_filter(),
            plugins=factory.plugins,
        )
        await consume(factory, work, control, abandon=work.abandon)


async def sarra(
    settings: PumpSettings, control: ComponentControl | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """The same, mirrored, and announced with our own base URL."""
    await subscribe(settings, control, plugins)


# winnow and shovel: announcements carried on, without the files.


async def winnow(
    settings: PumpSettings, control: ComponentControl | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """Of equal announcements only the first goes on."""
    await _forward(settings, control, plugins, winnowing=True)


async def shovel(
    settings: PumpSettings, control: ComponentControl | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """Announcements from one broker or exchange to another."""
    await _forward(settings, control, plugins, winnowing=False)


async def _forward(
    settings: PumpSettings,
    control: ComponentControl | None,
    plugins: Sequence[Plugin],
    *,
    winnowing: bool,
) -> None:
    _refuse_loop(settings)
    if winnowing and settings.suppress_duplicates is None:
        raise ConfigurationError("winnow needs suppress_duplicates: for how long to remember")
    async with open_component_factory(settings, plugins) as factory:
        work = ForwardHandler(
            await factory.post_publisher(),
            selection(settings),
            duplicate_filter=await factory.duplicate_filter() if winnowing else None,
            plugins=factory.plugins,
            spelled_anew=_is_reencoded(settings),
        )
        await consume(factory, work, control or ComponentControl())


def _is_reencoded(settings: PumpSettings) -> bool:
    """Topics of one protocol are none of the other's."""
    if settings.post_format is not None or settings.post_topic_prefix is not None:
        return True
    return is_mqtt_url(settings.broker) != is_mqtt_url(settings.post_broker or settings.broker)


def _refuse_loop(settings: PumpSettings) -> None:
    """What goes out must not come in again."""
    url = settings.post_broker or settings.broker
    if url == settings.broker and subscribed_exchange(settings) == posted_exchange(settings, url):
        raise ConfigurationError(
            f"{settings.component} would hear what it sends: give it another post_exchange"
        )


# sender: files that are here, pushed to a server.


async def sender(
    settings: PumpSettings, control: ComponentControl | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """Push what is announced and accepted; with a post broker, announce it where it is then."""
    if settings.destination is None:
        raise ConfigurationError("sender needs a destination: the URL to push to")
    async with open_component_factory(settings, plugins) as factory:
        telling = settings.post_broker is not None
        destination = SendDestination(
            settings.destination,
            settings.base_dir,
            file_rule(settings),
            settings.inflight if settings.inflight[1:] and "/" not in settings.inflight else ".tmp",
            settings.to_clusters,
            settings.preserve_mode,
            settings.preserve_time,
        )
        work = SendHandler(
            destination,
            ReceiveRules(selection(settings), settings.events, settings.join, variables(settings)),
            factory.transports(HostRule(private=True)),  # the destination is the site's own word
            post_publisher=await factory.post_publisher() if telling else None,
            base_url=base_url(settings) if telling else None,
            plugins=factory.plugins,
        )
        await consume(factory, work, control or ComponentControl())


# report: what became of files, as those who fetched them say.

log = get_logger(__name__)


async def report(
    settings: PumpSettings,
    heard: Callable[[PostReport], None],
    control: ComponentControl | None = None,
) -> None:
    """Call `heard` with each report, until told to stop."""
    control = control or ComponentControl()
    async with open_component_factory(settings) as factory:
        subscription = await factory.subscription()
        control.ready.set()
        listening = asyncio.create_task(_receive_reports(subscription, heard, control))
        stopped = asyncio.create_task(control.stop.wait())
        await asyncio.wait([listening, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in (listening, stopped):
            task.cancel()
        (ended,) = await asyncio.gather(listening, return_exceptions=True)
        if isinstance(ended, Exception):
            raise ended


async def _receive_reports(
    subscription: PumpSubscription, heard: Callable[[PostReport], None], control: ComponentControl
) -> None:
    while True:
        try:
            come = await subscription.receive()
        except FabricClosed:
            return
        for each in come:
            control.counters.heard += 1
            pump_message = each.pump_message
            try:
                found = read_report(pump_message.body, pump_message.headers)
            except BadPost as error:
                log.warning("not a report", topic=pump_message.topic, reason=str(error))
            else:
                control.counters.codes[found.code] += 1
                heard(found)
            await each.ack()


# What all components that hear posts have in common: a consumer around their work.

#: How often the broker is asked how much waits.
QUEUE_POLL_SECONDS: Final = 5.0


async def consume(
    factory: ComponentFactory,
    work: PostHandler,
    control: ComponentControl,
    *,
    retrying: bool = True,
    abandon: AbandonCallback | None = None,
) -> None:
    consumer = PostConsumer(
        work,
        retries=await factory.retries() if retrying else None,
        limits=factory.limits(),
        tell=await factory.reporting(),
        dialect=dialect(factory.settings),
        abandon=abandon,
    )
    control.counters = consumer.counters
    subscription = await factory.subscription()
    control.ready.set()
    looking = asyncio.create_task(_poll_queue(subscription, control))
    try:
        await consumer.run(subscription, control.stop)
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def _poll_queue(subscription: PumpSubscription, control: ComponentControl) -> None:
    """How much waits at the broker; while it is away, nobody knows."""
    while True:
        try:
            async with asyncio.timeout(QUEUE_POLL_SECONDS):
                control.counters.queued = await subscription.queued()
        except Exception:
            control.counters.queued = None
        await asyncio.sleep(QUEUE_POLL_SECONDS)
