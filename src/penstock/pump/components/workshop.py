"""What components are made of: connections, transports, stores, put together from the settings.

Everything opened here is closed when the workshop is left, in the order that lets what is under way
end well.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.core.data_directory import lock_directory, private_directory
from penstock.pump.components.brokers import PATIENCE_SECONDS, Brokers
from penstock.pump.components.naming import (
    heard_exchange,
    host_of,
    posted_exchange,
    queue_name,
    state_folder,
    user_of,
)
from penstock.pump.components.readings import bindings, dialect, file_rule, manners
from penstock.pump.config.settings import PumpSettings
from penstock.pump.credentials import Credentials, read_credentials
from penstock.pump.fetching import Fetching, Rules
from penstock.pump.flow.announcing import Address, Announcing
from penstock.pump.flow.bulk import Bulk
from penstock.pump.flow.consumer import Limits
from penstock.pump.flow.hearing import Binding, Hearing, over_amqp091
from penstock.pump.flow.reporting import Reporting
from penstock.pump.flow.retries import Backoff, Retries
from penstock.pump.headers import Provenance
from penstock.pump.holding import Holding
from penstock.pump.landing.target import read_inflight
from penstock.pump.pace import Pace
from penstock.pump.plugins import Plugin, Plugins, registered
from penstock.pump.posts.reading import spelling
from penstock.pump.posts.reports import PREFIX
from penstock.pump.posts.sums import Sums
from penstock.pump.transfers import Transfers
from penstock.pump.transports.contract import Circumstances
from penstock.pump.transports.hosts import HostRule
from penstock.pump.transports.opening import Transports
from penstock.pump.winnowing.fingerprints import Fingerprints
from penstock.pump.winnowing.suppression import Suppression

#: A prefetch, as AMQP and MQTT's largest.
UNBOUNDED: Final = 65_535


@dataclass(frozen=True, slots=True)
class Workshop:
    settings: PumpSettings
    credentials: Credentials
    plugins: Plugins
    stack: AsyncExitStack
    brokers: Brokers

    def state(self, name: str) -> Path:
        """A file of this component's state, locked until the workshop is left."""
        folder = private_directory(state_folder(self.settings))
        advice = (
            f"{self.settings.component} {self.settings.name}, instance {self.settings.instance}, "
            "runs already; stop it, or start another instance (--instance)"
        )
        self.stack.enter_context(lock_directory(folder, f"{name}.lock", advice))
        return folder / name

    async def hearing(self) -> Hearing:
        """Open, so that what is announced from now on arrives."""
        settings = self.settings
        queue = await asyncio.to_thread(queue_name, settings)
        limits = (settings.prefetch, settings.expire)
        kept = state_folder(settings) / f"{settings.component}.{settings.name}.bindings"
        wanted = bindings(settings)
        return await self.brokers.hear_only(settings.broker, wanted, queue, *limits, kept)

    async def announcing(self) -> Announcing:
        settings = self.settings
        url = settings.post_broker or settings.broker
        form = settings.post_format or _format_of(settings.post_topic_prefix)
        address = Address(
            url,
            posted_exchange(settings, url),
            prefix=settings.post_topic_prefix,
            subtopic=settings.post_subtopic,
            name_in_topic=settings.name_in_topic,
            split=settings.post_exchange_split,
            ttl=settings.message_ttl,
            persistent=settings.persistent,
        )
        return Announcing(
            await self.brokers.sending(url), address, spelling(form, dialect(settings))
        )

    async def bulk(self) -> Bulk | None:
        """A short way for whole trees, where the broker's protocol has one."""
        settings = self.settings
        url = self.credentials.complete(settings.post_broker or settings.broker)
        if not over_amqp091(url) or settings.suppress_duplicates is not None:
            return None
        return self.stack.enter_context(await asyncio.to_thread(Bulk, url, PATIENCE_SECONDS))

    async def reporting(self) -> Reporting | None:
        settings = self.settings
        if not settings.report_back:
            return None
        user = user_of(settings.broker)
        exchange = settings.report_exchange or f"xs_{user}"
        announcing = Announcing(
            await self.brokers.sending(settings.broker),
            Address(settings.broker, exchange),
            spelling("v02"),
        )
        # Those who share a queue are one reader; its name is not for everybody.
        queue = await asyncio.to_thread(queue_name, settings)
        reader = hashlib.sha256(queue.encode()).hexdigest()[:16]
        return Reporting(announcing, os.uname().nodename, user, reader, self.plugins)

    async def holding(self, base_url: str, base_dir: Path) -> Holding | None:
        """Room for parts, and an ear for those who have fetched them."""
        settings = self.settings
        if settings.inplace or not settings.hold:
            return None
        url = settings.post_broker or settings.broker
        limits = (settings.hold, settings.hold_readers)
        holding = await asyncio.to_thread(Holding, base_dir, base_url, *limits)
        exchange = settings.hold_exchange or f"xs_{user_of(url)}"
        queue = f"q_{user_of(url)}.{settings.component}.{settings.name}.held"
        # Reports lie with the broker until all readers have reported: there is no bound on them.
        reports = await self.brokers.hear(url, [Binding(exchange, PREFIX)], queue, UNBOUNDED)
        listening = asyncio.create_task(holding.hear(reports))
        self.stack.push_async_callback(_ended, listening)
        return holding

    def fetching(self, transfers: Transfers, holding: Holding | None = None) -> Fetching:
        settings = self.settings
        rules = Rules(
            inflight=read_inflight(settings.inflight),
            manners=manners(settings),
            strict=settings.strict_sums,
            join=settings.join,
            inplace=settings.inplace,
            overwrite=settings.overwrite,
        )
        fetching = Fetching(
            self.transports(),
            Sums.installed(),
            rules,
            Pace(settings.bandwidth),
            transfers,
            holding,
            settings.concurrency,
        )
        self.stack.push_async_callback(fetching.close)
        return fetching

    def transports(self, hosts: HostRule | None = None) -> Transports:
        transports = Transports(
            Circumstances(
                credentials=self.credentials,
                hosts=hosts or HostRule(self.settings.private_hosts),
                timeout=self.settings.timeout,
                connections=self.settings.concurrency,
                known_hosts=self.settings.known_hosts,
                files=file_rule(self.settings),
            )
        )
        self.stack.push_async_callback(transports.close)
        return transports

    async def suppression(self) -> Suppression | None:
        settings = self.settings
        if settings.suppress_duplicates is None:
            return None
        path = await asyncio.to_thread(self.state, f"seen_{settings.instance:02d}.db")
        lifetime = settings.suppress_duplicates
        fingerprints = await asyncio.to_thread(Fingerprints, path, lifetime, time.time)
        self.stack.push_async_callback(fingerprints.close)
        suppression = Suppression(fingerprints, settings.suppress_basis)
        housekeeping = asyncio.create_task(suppression.keep_house())
        self.stack.push_async_callback(_ended, housekeeping)
        return suppression

    async def retries(self) -> Retries:
        path = await asyncio.to_thread(self.state, f"retry_{self.settings.instance:02d}.db")
        retries = await asyncio.to_thread(Retries, path)
        self.stack.callback(retries.close)
        return retries

    def provenance(self) -> Provenance:
        settings = self.settings
        to = settings.to_clusters
        if to is None and settings.post_broker is not None:
            to = host_of(settings.post_broker)
        return Provenance(
            source=settings.source or user_of(settings.broker),
            cluster=settings.cluster or host_of(settings.broker),
            to_clusters=to,
            trusted=not settings.source_from_exchange,
            exchange=heard_exchange(settings),
        )

    def limits(self) -> Limits:
        settings = self.settings
        most = max(settings.prefetch, settings.concurrency)
        return Limits(
            in_hand=settings.concurrency if settings.component == "sender" else most,
            attempts=settings.attempts,
            backoff=Backoff(lifetime=settings.retry_ttl),
        )


@asynccontextmanager
async def open_workshop(
    settings: PumpSettings, plugins: Sequence[Plugin] = ()
) -> AsyncIterator[Workshop]:
    known = Plugins([*registered(settings.plugins), *plugins])
    credentials = Credentials()
    if settings.credentials is not None:
        credentials = await asyncio.to_thread(read_credentials, settings.credentials)
    async with AsyncExitStack() as stack:
        yield Workshop(settings, credentials, known, stack, Brokers(credentials, stack))


def _format_of(prefix: str | None) -> str:
    return "v03" if prefix is not None and prefix.startswith("v03") else "v02"


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
