"""The components that consume posts, each a handler with a consumer around it.

`subscribe` and `sarra` download files; `winnow` and `shovel` forward posts without the files;
`sender` pushes local files to a server; `report` reads what became of files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from penstock.client import FabricClosed
from penstock.client.url import BrokerProtocol, protocol_of
from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock_pump.components.factory import (
    ComponentFactory,
    base_dir,
    base_url,
    bindings,
    dialect,
    file_rule,
    needs_post_broker,
    open_component_factory,
    post_copies,
    post_filter,
    receive_rules,
    selection,
    subscriptions,
)
from penstock_pump.components.vip import while_vip
from penstock_pump.config.settings import PumpSettings
from penstock_pump.duplicates import DuplicateFilter
from penstock_pump.errors import BadPost
from penstock_pump.flow.consumer import AbandonCallback, PostConsumer, PostHandler
from penstock_pump.flow.publisher import PostPublisher
from penstock_pump.flow.subscription import PumpSubscription
from penstock_pump.forward_handler import ForwardHandler
from penstock_pump.handlers import Provenance, ReceiveHandler, RepublishTarget
from penstock_pump.names import posted_exchange
from penstock_pump.plugins import Plugin
from penstock_pump.posts.reports import PostReport, read_report
from penstock_pump.send_handler import SendDestination, SendHandler
from penstock_pump.status import ComponentControl
from penstock_pump.transfer import BandwidthLimit
from penstock_pump.transports.access import HostRule

log = get_logger(__name__)

#: How often the broker is asked for the length of the queue.
QUEUE_POLL_SECONDS: Final = 5.0


@while_vip
async def subscribe(
    settings: PumpSettings, control: ComponentControl | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """Download accepted files; with a post broker, announce the copies."""
    control = control or ComponentControl()
    if not settings.download:
        await _notify(settings, control, plugins)
        return
    async with open_component_factory(settings, plugins) as factory:
        settings = factory.settings  # plugins may have changed them
        republish_target = part_quota = None
        if needs_post_broker(settings):
            republish_target = RepublishTarget(
                await factory.post_publisher(), base_url(settings), base_dir(settings)
            )
            part_quota = await factory.part_quota(
                republish_target.base_url, republish_target.base_dir
            )
        handler = ReceiveHandler(
            receive_rules(settings),
            factory.downloader(control.transfers, part_quota),
            republish_target=republish_target,
            provenance=factory.provenance(),
            duplicate_filter=await factory.duplicate_filter(),
            plugins=factory.plugins,
        )
        await consume(factory, handler, control, on_abandon=handler.abandon)


#: `subscribe` with other defaults: it mirrors files and announces them with its own base URL.
sarra = subscribe


async def _notify(
    settings: PumpSettings, control: ComponentControl, plugins: Sequence[Plugin]
) -> None:
    """Without a download posts are forwarded if there is a post broker, and only seen by plugins
    otherwise."""
    if settings.post_broker is not None:
        await _forward(settings, control, plugins)
        return
    async with open_component_factory(settings, plugins) as factory:
        await consume(factory, _forward_handler(factory, None, None), control)


@while_vip
async def winnow(
    settings: PumpSettings, control: ComponentControl | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """Forward only the first of equal posts."""
    if settings.suppress_duplicates is None:
        raise ConfigurationError("winnow needs suppress_duplicates: how long posts are remembered")
    if settings.instances > 1 and not settings.exchange_split:
        raise ConfigurationError(
            "instances of a winnow share no fingerprints: give each an exchange of its own with "
            "exchange_split, and split the posts with post_exchange_split where they come from"
        )
    await _forward(settings, control, plugins)


@while_vip
async def shovel(
    settings: PumpSettings, control: ComponentControl | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """Forward posts from one broker or exchange to another."""
    await _forward(settings, control, plugins)


async def _forward(
    settings: PumpSettings, control: ComponentControl | None, plugins: Sequence[Plugin]
) -> None:
    _refuse_loop(settings)
    async with open_component_factory(settings, plugins) as factory:
        handler = _forward_handler(
            factory, await factory.post_publisher(), await factory.duplicate_filter()
        )
        await consume(factory, handler, control or ComponentControl())


def _forward_handler(
    factory: ComponentFactory,
    post_publisher: PostPublisher | None,
    duplicate_filter: DuplicateFilter | None,
) -> ForwardHandler:
    settings = factory.settings
    return ForwardHandler(
        post_publisher,
        selection(settings),
        post_filter=post_filter(settings),
        provenance=_forward_provenance(factory),
        duplicate_filter=duplicate_filter,
        plugins=factory.plugins,
        reencode=_is_reencoded(settings),
        form=settings.post_format,
        dry_run=settings.dry_run,
    )


def _forward_provenance(factory: ComponentFactory) -> Provenance | None:
    """A message stays as it is unless the site names what is to be added. sr3 replaces its source
    at every hop."""
    settings, found = factory.settings, factory.provenance()
    if settings.source or settings.cluster or settings.source_from_exchange:
        return found
    if settings.source_from_message:
        return None
    return replace(found, cluster=None, to_clusters=None)


def _is_reencoded(settings: PumpSettings) -> bool:
    """Topics of MQTT cannot be used over AMQP, nor the other way round."""
    if settings.post_topic_prefix or settings.post_topic or settings.post_subtopic:
        return True
    if settings.post_base_url is not None:
        return True
    if settings.headers or any(each.topic_prefix or each.base_url for each in settings.post_copies):
        return True
    consumed = [each.broker for each in subscriptions(settings)]
    copies = [each.broker for each in settings.post_copies]
    urls = (*consumed, settings.post_broker or settings.broker, *copies)
    return len({protocol_of(url) is BrokerProtocol.MQTT for url in urls}) > 1


def _refuse_loop(settings: PumpSettings) -> None:
    consumed = {
        (each.broker, binding.exchange)
        for each in subscriptions(settings)
        for binding in bindings(each)
    }
    for each in (settings, *post_copies(settings)):
        url = each.post_broker or each.broker
        if (url, posted_exchange(each, url)) in consumed:
            raise ConfigurationError(
                f"{settings.component} would consume its own posts: set another post_exchange"
            )


@while_vip
async def sender(
    settings: PumpSettings, control: ComponentControl | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """Push accepted files; with a post broker, announce them at their new location."""
    if settings.destination is None:
        raise ConfigurationError("sender needs a destination: the URL to push to")
    async with open_component_factory(settings, plugins) as factory:
        settings = factory.settings  # plugins may have changed them
        announce = settings.post_broker is not None
        destination = SendDestination(
            settings.destination or "",
            settings.base_dir,
            file_rule(settings),
            settings.inflight if settings.inflight[1:] and "/" not in settings.inflight else ".tmp",
            settings.preserve_mode,
            settings.preserve_time,
        )
        handler = SendHandler(
            destination,
            receive_rules(settings),
            factory.transports(HostRule(private=True)),  # the site itself chose the destination
            ledger=await factory.block_ledger(),
            post_publisher=await factory.post_publisher() if announce else None,
            base_url=base_url(settings) if announce else None,
            duplicate_filter=await factory.duplicate_filter(),
            bandwidth_limit=BandwidthLimit(settings.bandwidth),
            plugins=factory.plugins,
        )
        await consume(factory, handler, control or ComponentControl())


async def report(
    settings: PumpSettings,
    on_report: Callable[[PostReport], None],
    control: ComponentControl | None = None,
) -> None:
    """Call `on_report` with each report."""
    control = control or ComponentControl()
    async with open_component_factory(settings) as factory:
        subscription = await factory.subscription()
        control.ready.set()
        receiving = asyncio.create_task(_receive_reports(subscription, on_report, control))
        stopped = asyncio.create_task(control.stop.wait())
        await asyncio.wait([receiving, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in (receiving, stopped):
            task.cancel()
        (result,) = await asyncio.gather(receiving, return_exceptions=True)
        if isinstance(result, Exception):
            raise result


async def _receive_reports(
    subscription: PumpSubscription,
    on_report: Callable[[PostReport], None],
    control: ComponentControl,
) -> None:
    while True:
        try:
            deliveries = await subscription.receive()
        except FabricClosed:
            return
        for delivery in deliveries:
            control.counters.received += 1
            message = delivery.pump_message
            try:
                found = read_report(message.body, message.headers)
            except BadPost as error:
                log.warning("invalid report", topic=message.topic, reason=str(error))
            else:
                control.counters.codes[found.code] += 1
                on_report(found)
            await delivery.ack()


async def consume(
    factory: ComponentFactory,
    handler: PostHandler,
    control: ComponentControl,
    *,
    on_abandon: AbandonCallback | None = None,
) -> None:
    consumer = PostConsumer(
        handler,
        retries=await factory.retries(),
        limits=factory.limits(),
        on_outcome=await factory.report_publisher(),
        dialect=dialect(factory.settings),
        on_abandon=on_abandon,
        log_reject=factory.settings.log_reject,
        on_done=factory.plugins.on_done,
        on_record=factory.plugins.on_outcome,
    )
    factory.warn_plugins(control.stop)
    control.counters = consumer.counters
    control.plugin_metrics = factory.plugins.metrics
    subscription = await factory.subscription()
    control.ready.set()
    polling = asyncio.create_task(_poll_queue(subscription, control))
    try:
        await consumer.run(subscription, control.stop)
    finally:
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)


async def _poll_queue(subscription: PumpSubscription, control: ComponentControl) -> None:
    """While the broker is unreachable the length is unknown."""
    while True:
        try:
            async with asyncio.timeout(QUEUE_POLL_SECONDS):
                control.counters.queued = await subscription.queued()
        except Exception:
            control.counters.queued = None
        await asyncio.sleep(QUEUE_POLL_SECONDS)
