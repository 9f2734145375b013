"""Builds the parts of a component from its settings: connections, transports, stores, rules.

Everything that a factory opens is closed with it, in reverse order. Connections to brokers are
shared: one per URL to publish, one per queue to consume.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.client import Fabric, connect
from penstock.client.url import BrokerProtocol, protocol_of
from penstock.core.data_directory import lock_directory, private_directory
from penstock.core.errors import ConfigurationError
from penstock.core.retry import RetryPolicy
from penstock_pump.block_ledger import BlockLedger
from penstock_pump.config.dialect import Dialect
from penstock_pump.config.settings import BindingSettings, Component, PumpSettings
from penstock_pump.credentials import PumpCredentials, read_credentials, without_secret
from penstock_pump.downloader import Downloader, DownloadRules
from penstock_pump.duplicates import DuplicateFilter, FingerprintStore
from penstock_pump.files.inflight import FileAttributes
from penstock_pump.files.target import read_inflight
from penstock_pump.flow.consumer import ConsumerLimits, RetryStore
from penstock_pump.flow.publisher import (
    BulkPostPublisher,
    ClientPublisher,
    ExchangePublisher,
    PostPublisher,
    PublishTarget,
    PumpPublisher,
    ReportPublisher,
)
from penstock_pump.flow.subscription import (
    BindingFile,
    ClientSubscription,
    MergedSubscription,
    PumpBinding,
    PumpSubscription,
    QueueSubscription,
    binding_keys,
    delete_queue,
    unbind,
)
from penstock_pump.handlers import Provenance, ReceiveRules
from penstock_pump.names import (
    host_of,
    posted_exchange,
    queue_name,
    split_suffix,
    state_folder,
    subscribed_exchange,
    user_of,
)
from penstock_pump.part_quota import PartQuota
from penstock_pump.plugins import Plugin, Plugins, load_plugins
from penstock_pump.post_filter import EVERY_CLUSTER, PostFilter
from penstock_pump.posts.checksums import ChecksumMethods
from penstock_pump.posts.formats import codec_named
from penstock_pump.posts.post import FileEvent
from penstock_pump.posts.reports import PREFIX
from penstock_pump.posts.v02 import V02Dialect
from penstock_pump.selection import Placement, PostSelection, SelectionClause
from penstock_pump.transfer import BandwidthLimit, TransferRegistry
from penstock_pump.transports.access import FileRule, HostRule
from penstock_pump.transports.proxy import ProxyRule
from penstock_pump.transports.transport import TransportContext, TransportRegistry
from penstock_pump.variables import component_variables

#: The largest prefetch of AMQP and MQTT.
MAX_PREFETCH: Final = 65_535
#: How long a broker that is starting is waited for.
RECONNECT_SECONDS: Final = 60.0
POSTERS: Final = (Component.POST, Component.WATCH, Component.POLL)
FORWARDERS: Final = (Component.SHOVEL, Component.WINNOW)


@dataclass(frozen=True, slots=True)
class ComponentFactory:
    settings: PumpSettings
    credentials: PumpCredentials
    plugins: Plugins
    stack: AsyncExitStack
    brokers: BrokerConnections

    def state(self, name: str) -> Path:
        """A file of this component's state, locked until the factory closes."""
        folder = private_directory(state_folder(self.settings))
        advice = (
            f"{self.settings.component} {self.settings.name}, instance {self.settings.instance}, "
            "is already running; stop it, or start another instance (--instance)"
        )
        self.stack.enter_context(lock_directory(folder, f"{name}.lock", advice))
        return folder / name

    async def subscription(self) -> PumpSubscription:
        """Open: posts published from now on are received."""
        found = [
            await self._subscribed(settings, bindings_file(self.settings, number))
            for number, settings in enumerate(subscriptions(self.settings))
        ]
        if len(found) == 1:
            return found[0]
        merged = MergedSubscription(found)
        self.stack.push_async_callback(merged.close)
        return merged

    async def _subscribed(self, settings: PumpSettings, file: Path) -> PumpSubscription:
        rules = await asyncio.to_thread(queue_rules, settings)
        if settings.reset:
            await self.brokers.delete_queue(settings.broker, rules)
        return await self.brokers.subscribe_durable(
            settings.broker, bindings(settings), rules, file
        )

    async def post_publisher(self) -> PostPublisher:
        copies = [
            await self._post_publisher(copy, each.base_url)
            for copy, each in zip(
                post_copies(self.settings), self.settings.post_copies, strict=True
            )
        ]
        base = None
        if self.settings.component in FORWARDERS and self.settings.post_base_url is not None:
            base = base_url(self.settings)
        publisher = await self._post_publisher(self.settings, base)
        publisher.copies = copies
        publisher.on_posted = self.plugins.on_posted
        return publisher

    async def _post_publisher(
        self, settings: PumpSettings, base_url: str | None = None
    ) -> PostPublisher:
        url = settings.post_broker or settings.broker
        form = settings.post_format or _format_of(settings.post_topic_prefix)
        target = PublishTarget(
            url,
            posted_exchange(settings, url),
            prefix=settings.post_topic_prefix,
            subtopic=settings.post_subtopic,
            topic=settings.post_topic,
            headers=settings.headers,
            name_in_topic=settings.name_in_topic,
            escape_blanks=settings.dialect is Dialect.V2,
            split=settings.post_exchange_split,
            split_by_path=settings.dialect is Dialect.SR3,
            ttl=settings.message_ttl,
            persistent=settings.persistent,
            base_url=base_url,
        )
        return PostPublisher(
            await self.brokers.publisher(url), target, codec_named(form, dialect(settings))
        )

    async def bulk(self) -> BulkPostPublisher | None:
        """The bulk publisher for whole trees, over AMQP 0-9-1 only."""
        settings = self.settings
        url = self.credentials.complete(settings.post_broker or settings.broker)
        if not _is_amqp091(url) or settings.suppress_duplicates is not None:
            return None
        if self.plugins.on_posted is not None or settings.post_copies:
            return None
        return self.stack.enter_context(
            await asyncio.to_thread(BulkPostPublisher, url, RECONNECT_SECONDS)
        )

    async def report_publisher(self) -> ReportPublisher | None:
        settings = self.settings
        if not settings.report_back:
            return None
        url = settings.report_broker or settings.broker
        user = user_of(url)
        post_publisher = PostPublisher(
            await self.brokers.publisher(url),
            PublishTarget(url, settings.report_exchange or f"xs_{user}"),
            codec_named("v02"),
        )
        # Instances that share a queue are one reader. The queue's name is secret, its hash is not.
        queue = await asyncio.to_thread(queue_name, settings)
        reader = hashlib.sha256(queue.encode()).hexdigest()[:16]
        host = settings.hostname or os.uname().nodename
        return ReportPublisher(post_publisher, host, user, reader, self.plugins)

    async def part_quota(self, base_url: str, base_dir: Path) -> PartQuota | None:
        """With a subscription to the reports of those who fetch the parts."""
        settings = self.settings
        if settings.inplace or not settings.part_quota:
            return None
        url = settings.post_broker or settings.broker
        limits = (settings.part_quota, settings.part_quota_readers)
        part_quota = await asyncio.to_thread(PartQuota, base_dir, base_url, *limits)
        exchange = settings.part_quota_exchange or f"xs_{user_of(url)}"
        queue = f"q_{user_of(url)}.{settings.component}.{settings.name}.held"
        # Reports stay unacknowledged until all readers have reported, however many there are.
        reports = await self.brokers.subscribe(
            url, [PumpBinding(exchange, PREFIX)], QueueRules(queue, MAX_PREFETCH)
        )
        self._run_in_background(part_quota.consume_reports(reports))
        return part_quota

    def warn_plugins(self, stop: asyncio.Event) -> None:
        """Plugins that wait for something are told when `stop` is set."""
        if self.plugins.callbacks is not None:
            self._run_in_background(self.plugins.warn_of_stop(stop))

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        self.stack.push_async_callback(_cancel, asyncio.create_task(work))

    def downloader(
        self, transfers: TransferRegistry, part_quota: PartQuota | None = None
    ) -> Downloader:
        settings = self.settings
        rules = DownloadRules(
            inflight=read_inflight(settings.inflight),
            attributes=file_attributes(settings),
            strict=settings.strict_sums,
            join=settings.join,
            inplace=settings.inplace,
            overwrite=settings.overwrite,
            accept_size_wrong=settings.accept_size_wrong,
        )
        downloader = Downloader(
            self.transports(),
            ChecksumMethods.installed(),
            rules,
            BandwidthLimit(settings.bandwidth),
            transfers,
            part_quota,
            settings.concurrency,
        )
        self.stack.push_async_callback(downloader.close)
        return downloader

    def transports(self, hosts: HostRule | None = None) -> TransportRegistry:
        transports = TransportRegistry(
            TransportContext(
                credentials=self.credentials,
                hosts=hosts or HostRule(self.settings.private_hosts),
                timeout=self.settings.timeout,
                connections=self.settings.concurrency,
                known_hosts=self.settings.known_hosts,
                files=file_rule(self.settings),
                proxy=ProxyRule(self.settings.proxy),
                user_agent=self.settings.user_agent,
                zone=_zone(self.settings.timezone),
                index_reader=self.plugins.index_reader,
            )
        )
        self.stack.push_async_callback(transports.close)
        return transports

    async def duplicate_filter(self) -> DuplicateFilter | None:
        settings = self.settings
        if settings.suppress_duplicates is None:
            return None
        path = await asyncio.to_thread(self.state, f"seen_{settings.instance:02d}.db")
        lifetime = settings.suppress_duplicates
        fingerprints = await asyncio.to_thread(FingerprintStore, path, lifetime, time.time)
        self.stack.push_async_callback(fingerprints.close)
        duplicate_filter = DuplicateFilter(fingerprints, settings.suppress_basis)
        self._run_in_background(duplicate_filter.expire_regularly())
        return duplicate_filter

    async def block_ledger(self) -> BlockLedger:
        """Shared by the instances of a configuration."""
        folder = await asyncio.to_thread(private_directory, state_folder(self.settings))
        ledger = await asyncio.to_thread(BlockLedger, folder / "blocks.db")
        self.stack.callback(ledger.close)
        return ledger

    async def retries(self) -> RetryStore | None:
        if not self.settings.retry:
            return None
        path = await asyncio.to_thread(self.state, f"retry_{self.settings.instance:02d}.db")
        retries = await asyncio.to_thread(RetryStore, path)
        self.stack.callback(retries.close)
        return retries

    def provenance(self) -> Provenance:
        settings = self.settings
        to = settings.to_clusters
        if to is None and settings.post_broker is not None:
            to = host_of(settings.post_broker)
        # In sr3 a source of the site comes before that of the exchange.
        own = settings.source if settings.dialect is Dialect.SR3 else None
        return Provenance(
            source=settings.source or user_of(settings.broker),
            cluster=settings.cluster or host_of(settings.broker),
            to_clusters=to,
            trusted=not settings.source_from_exchange or own is not None,
            exchange=subscribed_exchange(settings),
            keeps_source=settings.source_from_message,
        )

    def limits(self) -> ConsumerLimits:
        settings = self.settings
        most = max(settings.prefetch, settings.concurrency)
        return ConsumerLimits(
            concurrency=settings.concurrency if settings.component == "sender" else most,
            attempts=settings.attempts,
            backoff=RetryPolicy(1.0, 600.0, settings.retry_ttl),
            max_retries=settings.retry_count_max,
            rate=settings.message_rate_max,
            count=settings.message_count_max,
        )


@asynccontextmanager
async def open_component_factory(
    settings: PumpSettings, plugins: Sequence[Plugin] = (), *, starts: bool = True
) -> AsyncIterator[ComponentFactory]:
    """Without `starts` plugins are not told of a start, nor of a stop: the component does not
    run."""
    credentials = PumpCredentials()
    if settings.credentials is not None:
        credentials = await asyncio.to_thread(read_credentials, settings.credentials)
    all_plugins = load_plugins(settings, plugins, credentials)
    if all_plugins.callbacks is not None:
        settings = all_plugins.callbacks.changed_settings(settings)
    async with AsyncExitStack() as stack:
        if settings.plugins and starts:
            await asyncio.to_thread(all_plugins.notify, "on_start")
            stack.push_async_callback(asyncio.to_thread, all_plugins.notify, "on_stop")
            housekeeping = _keep_house(all_plugins, settings.housekeeping)
            stack.push_async_callback(_cancel, asyncio.create_task(housekeeping))
        yield ComponentFactory(
            settings, credentials, all_plugins, stack, BrokerConnections(credentials, stack)
        )


async def _keep_house(plugins: Plugins, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        await asyncio.to_thread(plugins.notify, "on_housekeeping")


def _format_of(prefix: str | None) -> str:
    return "v03" if prefix is not None and prefix.startswith("v03") else "v02"


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _is_amqp091(url: str) -> bool:
    return protocol_of(url) is BrokerProtocol.AMQP091


@dataclass(frozen=True, slots=True)
class QueueRules:
    name: str
    prefetch: int
    expire: float | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    instance: int = 0  #: of several that share the queue; 0: there is one

    @property
    def session(self) -> str:
        """The client id over MQTT, where a session cannot be shared; as sr3 names it."""
        return f"{self.name}_i{self.instance:02d}" if self.instance else self.name


def queue_rules(settings: PumpSettings) -> QueueRules:
    shared = max(settings.instances, settings.instance) > 1
    return QueueRules(
        queue_name(settings),
        settings.prefetch,
        settings.expire,
        settings.queue_arguments,
        settings.instance if shared else 0,
    )


class BrokerConnections:
    """AMQP 0-9-1 uses the bulk client; the other protocols use `penstock.client.connect`."""

    def __init__(self, credentials: PumpCredentials, stack: AsyncExitStack) -> None:
        self._credentials = credentials
        self._stack = stack
        self._fabrics: dict[str, Fabric] = {}
        self._publishers: dict[str, PumpPublisher] = {}

    async def fabric(self, url: str) -> Fabric:
        if url not in self._fabrics:
            fabric = connect(self._credentials.complete(url), retry_seconds=RECONNECT_SECONDS)
            self._fabrics[url] = await self._stack.enter_async_context(fabric)
        return self._fabrics[url]

    async def publisher(self, url: str) -> PumpPublisher:
        """On a connection of its own, so that a broker that blocks publishers still receives
        acknowledgements."""
        if url not in self._publishers:
            if _is_amqp091(url):
                publisher = ExchangePublisher(self._credentials.complete(url), RECONNECT_SECONDS)
                await publisher.open()
                self._stack.push_async_callback(publisher.close)
                self._publishers[url] = publisher
            else:
                mqtt = protocol_of(url) is BrokerProtocol.MQTT
                self._publishers[url] = ClientPublisher(await self.fabric(url), mqtt=mqtt)
        return self._publishers[url]

    async def subscribe(
        self, url: str, bindings: Sequence[PumpBinding], rules: QueueRules
    ) -> PumpSubscription:
        subscription: PumpSubscription
        if _is_amqp091(url):
            subscription = QueueSubscription(
                self._credentials.complete(url),
                bindings,
                rules.name,
                rules.prefetch,
                expire=rules.expire,
                arguments=rules.arguments,
                retry_seconds=RECONNECT_SECONDS,
            )
        else:
            mqtt = protocol_of(url) is BrokerProtocol.MQTT
            fabric = await self.fabric(_expiring(url, rules.expire) if mqtt else url)
            subscription = ClientSubscription(
                fabric,
                url,
                bindings,
                rules.session if mqtt else rules.name,
                rules.prefetch,
                share=rules.name if rules.instance else None,
            )
        await subscription.open()
        self._stack.push_async_callback(subscription.close)
        return subscription

    async def subscribe_durable(
        self, url: str, bindings: Sequence[PumpBinding], rules: QueueRules, binding_file: Path
    ) -> PumpSubscription:
        """Also removes bindings of the file that are not asked for any more."""
        if not _is_amqp091(url):
            return await self.subscribe(url, bindings, rules)
        file = BindingFile(binding_file, without_secret(url), rules.name)
        current = binding_keys(bindings)
        before = await asyncio.to_thread(file.read)
        await asyncio.to_thread(file.write, before | current)
        subscription = await self.subscribe(url, bindings, rules)
        if former := before - current:
            left = await unbind(self._credentials.complete(url), rules.name, former)
            await asyncio.to_thread(file.write, current | left)
        return subscription

    async def delete_queue(self, url: str, rules: QueueRules) -> bool:
        """False if there is no such queue. A session of MQTT ends with a clean start."""
        complete = self._credentials.complete(url)
        if _is_amqp091(url):
            return await delete_queue(complete, rules.name)
        if protocol_of(url) is not BrokerProtocol.MQTT:
            raise ConfigurationError(f"a queue cannot be deleted over AMQP 1.0, as at {url}")
        separator = "&" if "?" in complete else "?"
        client_id = quote(rules.session, safe="")
        async with connect(f"{complete}{separator}client_id={client_id}"):
            return True


def _expiring(url: str, seconds: float | None) -> str:
    """With the time after which an unused session of MQTT ends; without one it never does."""
    if seconds is None or "session_expiry=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}session_expiry={max(1, round(seconds))}"


def subscriptions(settings: PumpSettings) -> list[PumpSettings]:
    """The settings of each queue: bindings may name other brokers and other queues."""
    found: dict[tuple[str, str | None], list[BindingSettings]] = {}
    for each in settings.bindings:
        key = (each.broker or settings.broker, each.queue or settings.queue)
        found.setdefault(key, []).append(each)
    return [
        settings.model_copy(update={"broker": broker, "queue": queue, "bindings": bound})
        for (broker, queue), bound in found.items()
    ] or [settings]


def post_copies(settings: PumpSettings) -> list[PumpSettings]:
    """The settings with which posts go to the further brokers."""
    return [
        settings.model_copy(
            update={
                "post_broker": each.broker,
                "post_exchange": each.exchange,
                "post_exchange_suffix": each.exchange_suffix,
                "post_exchange_split": each.exchange_split,
                "post_topic_prefix": each.topic_prefix or settings.post_topic_prefix,
                "post_format": each.format or settings.post_format,
            }
        )
        for each in settings.post_copies
    ]


def bindings_file(settings: PumpSettings, number: int) -> Path:
    """What the configuration has bound to one of its queues."""
    suffix = (f".{number}" if number else "") + split_suffix(settings)
    return state_folder(settings) / f"{settings.component}.{settings.name}.bindings{suffix}"


def bindings(settings: PumpSettings) -> list[PumpBinding]:
    if not settings.bind_queue:
        return []
    if settings.bindings:
        return [
            PumpBinding(
                subscribed_exchange(settings)
                if each.exchange is None
                else each.exchange + split_suffix(settings),
                prefix,
                each.subtopic,
            )
            for each in settings.bindings
            for prefix in (
                settings.topic_prefix if each.topic_prefix is None else [each.topic_prefix]
            )
        ]
    exchange = subscribed_exchange(settings)
    return [
        PumpBinding(exchange, prefix, subtopic)
        for prefix in settings.topic_prefix
        for subtopic in settings.subtopic
    ]


def selection(settings: PumpSettings) -> PostSelection:
    default = Placement(
        settings.directory,
        settings.mirror,
        settings.strip,
        settings.flatten,
        settings.filename,
        strip_short=settings.dialect is Dialect.V2,
    )
    clauses = []
    for rule in settings.select:
        pattern = rule.accept or rule.reject
        if pattern is None or (rule.accept and rule.reject):
            raise ConfigurationError("a rule of `select` is either an accept or a reject")
        own = rule.model_dump(exclude_none=True, exclude={"accept", "reject", "arguments"})
        placement = replace(default, **own)
        clauses.append(SelectionClause(rule.accept is not None, pattern, placement))
    return PostSelection(clauses, settings.accept_unmatched, default, settings.groups_from_zero)


def file_attributes(settings: PumpSettings) -> FileAttributes:
    return FileAttributes(
        preserve_mode=settings.preserve_mode,
        preserve_times=settings.preserve_time,
        mode=settings.default_mode,
        folder_mode=settings.default_dir_mode or 0o775,
        durable=settings.durable,
    )


def file_rule(settings: PumpSettings) -> FileRule:
    """A sender may always read its base directory."""
    listed = list(settings.file_directories)
    if settings.component is Component.SENDER and settings.base_dir is not None:
        listed.append(settings.base_dir)
    return FileRule(tuple(Path(os.path.abspath(each)) for each in listed))  # noqa: PTH100


def post_filter(settings: PumpSettings) -> PostFilter:
    events = settings.events
    if settings.dialect is Dialect.SR3 and settings.component not in POSTERS:
        # In sr3 `create` and `modify` select what is announced, not what is received.
        events |= {FileEvent.MODIFY}
    return PostFilter(
        events,
        settings.message_age_max,
        settings.max_age,
        settings.file_size_max,
        settings.inline_only,
        _clusters(settings),
    )


def _clusters(settings: PumpSettings) -> frozenset[str]:
    """The clusters that this hop is, or leads to. A hop that names none takes every post."""
    leads_away = settings.component in (Component.SENDER, Component.SHOVEL, Component.WINNOW)
    if leads_away and settings.to_clusters is not None:
        names = [*settings.to_clusters.split(","), *settings.gateway_for]
    elif settings.cluster is not None:
        names = [settings.cluster, *settings.cluster_aliases, *settings.gateway_for]
    else:
        names = settings.gateway_for
    return frozenset(name.strip() for name in names if name.strip()) - {EVERY_CLUSTER}


def receive_rules(settings: PumpSettings) -> ReceiveRules:
    return ReceiveRules(
        selection(settings),
        post_filter(settings),
        settings.join,
        component_variables(settings),
        file_attributes(settings).folder_mode,
        settings.var_time_offset,
        settings.base_url_relpath,
        settings.discard,
        settings.delete,
        settings.dry_run,
    )


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ConfigurationError(f"timezone {name!r} is unknown: as America/Montreal") from None


def dialect(settings: PumpSettings) -> V02Dialect:
    return V02Dialect(settings.name_in_topic, settings.newline, settings.exact_names)


def base_url(settings: PumpSettings) -> str:
    """A prefix ends with a slash, so that it cannot be taken for the URL of a file."""
    url = settings.post_base_url
    if url is None:
        raise ConfigurationError(
            f"{settings.component} needs post_base_url: where others fetch the files"
        )
    if url != "file:" and url.rstrip("/") == "file:":
        return "file:/"
    return url if url == "file:" or url.endswith("/") else url + "/"


def base_dir(settings: PumpSettings) -> Path:
    """Without a setting the path of a `file:` or `sftp:` base URL."""
    url = urlsplit(settings.post_base_url or "")
    has_path = url.scheme == "file" or (url.scheme == "sftp" and url.path)
    if settings.post_base_dir is None and has_path and settings.post_base_url != "file:":
        return Path(url.path or "/")
    posts = settings.component in POSTERS
    usual = Path("/" if posts else settings.directory)
    return settings.post_base_dir or settings.base_dir or usual


def needs_post_broker(settings: PumpSettings) -> bool:
    return settings.post_broker is not None or settings.component is Component.SARRA
