"""A member of a cluster: follows the leader, or leads, as the coordinator decides.

A follower has the leader's files and forwards clients. When nobody leads, an in-sync member opens
its files as a broker does after a restart. A leader that cannot renew its lease stops answering
before another can lead, closes its clients, and becomes a follower.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import ssl
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from penstock.cluster.coordinator import (
    ClusterView,
    Coordinator,
    LeaderRecord,
    Leadership,
    Lease,
    lease_clock,
)
from penstock.cluster.coordinators import open_coordinator, reach
from penstock.cluster.follower import FollowerProgress, LeaderLink
from penstock.cluster.forwarder import Forwarder
from penstock.cluster.member import Member
from penstock.cluster.replication import Replication
from penstock.core.addresses import ListenAddress, parse_address
from penstock.core.config import BrokerSettings
from penstock.core.data_directory import FileLock, lock_directory, private_directory
from penstock.core.errors import ConfigurationError, PenstockError
from penstock.core.logs import get_logger
from penstock.core.metrics import FOLLOWER_METRICS, Metrics
from penstock.core.proxy_protocol import TrustedProxies
from penstock.server.broker import LOCK_NAME, Broker
from penstock.server.follower_requests import FollowerRequests
from penstock.server.listener import tls_context

#: Between two looks at the coordinator, and two attempts to reach the leader.
POLL_SECONDS: Final = 0.5
#: A member that resigned waits so long before it campaigns again.
RESIGNED_SECONDS: Final = 5.0
#: How long a leader that stops waits for its followers.
DRAIN_SECONDS: Final = 5.0
DEFAULT_PORT: Final = 5690
#: Hosts of listeners on all interfaces.
EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - for comparisons

_log = get_logger("penstock.cluster")


def replication_address(url: str, setting: str) -> tuple[str, int, bool]:
    """Host, port and whether TLS is used, of penstock://host:port or penstocks://host:port."""
    parts = urlsplit(url)
    if parts.scheme not in ("penstock", "penstocks") or not parts.hostname:
        raise ConfigurationError(f"{setting}: {url!r} should be penstock://host:port")
    port = DEFAULT_PORT if parts.port is None else parts.port
    return parts.hostname, port, parts.scheme == "penstocks"


class ClusterMember:
    """`async with ClusterMember(settings, data=directory) as member:` runs one."""

    replication: Replication

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        data: Path,
        on_shutdown: Callable[[], None] | None = None,
    ) -> None:
        self.settings = settings
        self.data = data
        self.addresses: list[str] = []
        self.broker: Broker | None = None  #: while this member leads
        self.progress = FollowerProgress()
        self.metrics = Metrics(FOLLOWER_METRICS)  #: while it follows
        self._cluster = settings.cluster
        self._proxies = TrustedProxies(settings.proxy_protocol_from)
        self._on_shutdown = on_shutdown
        self._lease = Lease(self._cluster.lease)
        self._view = ClusterView(None, 0, None)
        self._link: LeaderLink | None = None
        self._following: asyncio.Task[None] | None = None
        self._leader_address = ""
        self._last_error = ""
        self._lost = asyncio.Event()
        self._promoted = asyncio.Event()
        self._resigned_at = -RESIGNED_SECONDS
        self._closing = asyncio.Event()
        self._roles: asyncio.Task[None] | None = None
        self._lock: FileLock | None = None
        self._failure: BaseException | None = None  #: why this member had to stop

    # Start and stop.

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        if self._failure is not None:
            raise self._failure

    async def start(self) -> None:
        cluster = self._cluster
        listen = cluster.listen or f"penstock://127.0.0.1:{DEFAULT_PORT}"
        self._host, self._port, self._tls = replication_address(listen, "broker.cluster.listen")
        private_directory(self.data, traversable=True)
        self._take_lock()
        try:
            self.member = Member.load(self.data, cluster.node, cluster.secret)
            self.coordinator = open_coordinator(cluster, self.member.node)
            if self.coordinator is not None:
                await reach(partial(self._identify, self.coordinator), cluster.start_timeout)
            elif not cluster.secret:
                raise ConfigurationError(
                    "broker.cluster.secret is empty: set the same on the leader and its followers "
                    "(PENSTOCK_BROKER__CLUSTER__SECRET)"
                )
            addresses = [parse_address(url) for url in self.settings.listen]
            self._forwarder = Forwarder(
                addresses,
                FollowerRequests(self).answer,
                self._proxies,
                self._cluster.mqtt_redirection,
            )
            self._listen = await self._forwarder.open()
        except BaseException:
            self._release_lock()
            raise
        self.addresses = [str(address) for address in self._listen]
        if self._port == 0:
            self._port = _free_port(self._host)
        self._roles = asyncio.create_task(self._run())
        self._roles.add_done_callback(self._ended)

    async def _identify(self, coordinator: Coordinator) -> None:
        cluster, secret = await coordinator.identify(self.member.cluster)
        if self.member.cluster not in ("", cluster):
            self.member.join(cluster)  # raises
        self.member.secret = self._cluster.secret or secret
        self._cluster_id = cluster

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
            if self._on_shutdown is not None:
                self._on_shutdown()

    async def close(self) -> None:
        self._closing.set()
        if self._roles is not None:
            with contextlib.suppress(Exception):
                await self._roles
        await self._unfollow()
        await self._forwarder.close()
        self._release_lock()

    @property
    def leads(self) -> bool:
        return self.broker is not None

    @property
    def is_in_sync(self) -> bool:
        """As far as this member knows."""
        if self.leads:
            return True
        if self.coordinator is None:
            return bool(self.follows())
        return self.member.node in (self._view.in_sync or ())

    @property
    def forwarded_connections(self) -> int:
        return self._forwarder.forwarded

    @property
    def address(self) -> str:
        """For followers."""
        if self._cluster.advertise:
            return self._cluster.advertise
        host = socket.gethostname() if self._host in EVERYWHERE else self._host
        return f"penstock{'s' if self._tls else ''}://{host}:{self._port}"

    # Roles.

    async def _run(self) -> None:
        if self.coordinator is None:
            await self._run_by_hand()
            return
        while not self._closing.is_set():
            try:
                await self._look(self.coordinator)
                self._last_error = ""
            except OSError as error:  # what is known stays: the follower follows
                self._complain("coordinator unreachable", error)
            await self._pause(POLL_SECONDS)

    async def _look(self, coordinator: Coordinator) -> None:
        view = self._view = await coordinator.view()
        if view.leader is not None:
            if view.leader.node != self.member.node:
                await self._follow(view.leader.address)
            return
        self._forwarder.to([])
        resigned = lease_clock() - self._resigned_at < RESIGNED_SECONDS
        may_lead = view.in_sync is None or self.member.node in view.in_sync
        if self.member.copying or resigned or not may_lead:
            return
        await self._unfollow()
        sent_at = lease_clock()
        record = LeaderRecord(
            self.member.node, self.address, tuple(str(one) for one in self._advertised())
        )
        leadership = await coordinator.campaign(record)
        if leadership is not None:
            self._lease = Lease(self._cluster.lease)
            self._lease.renewed_at = sent_at
            await self._lead(leadership)

    def _advertised(self) -> list[ListenAddress]:
        """The addresses for clients of other members."""
        name = urlsplit(self.address).hostname or ""
        return [
            ListenAddress(one.scheme, name, one.port) if one.host in EVERYWHERE else one
            for one in self._listen
        ]

    async def _run_by_hand(self) -> None:
        """Without a coordinator: follow until promoted."""
        if self._cluster.follow and not self.member.is_leader:
            while not self._closing.is_set() and not self._promoted.is_set():
                await self._follow(self._cluster.follow)
                await self._pause(POLL_SECONDS, self._promoted)
            await self._unfollow()
            if self._closing.is_set():
                return
        if self.member.is_new:
            self.member.found(uuid.uuid4().hex)
        epoch = max(1, self.member.epoch + self._promoted.is_set())
        self.member.set_leader(True)
        await self._lead(Leadership(epoch, frozenset({self.member.node})))
        if self._lost.is_set() and not self._closing.is_set():
            self.member.set_leader(False)
            raise ConfigurationError(
                f"epoch {epoch} is over: another member was promoted; start this one with "
                "--follow and its address"
            )

    async def _pause(self, seconds: float, *events: asyncio.Event) -> None:
        waits = [asyncio.create_task(one.wait()) for one in (self._closing, *events)]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()

    def _complain(self, event: str, error: Exception) -> None:
        """Log an error once."""
        reason = str(error) or type(error).__name__
        if reason != self._last_error:
            self._last_error = reason
            _log.warning(event, error=reason)

    # Following.

    async def _follow(self, address: str) -> None:
        if self._following is not None and not self._following.done():
            if address == self._leader_address:
                return
            await self._unfollow()
        await self._unfollow()  # raises what cannot be cured
        self._leader_address = address
        self._following = asyncio.create_task(self._follow_leader(address))

    async def _follow_leader(self, address: str) -> None:
        host, port, tls = replication_address(address, "the leader's address")
        context = self._client_context() if tls else None
        link = self._link = LeaderLink(
            self.data,
            self.member,
            timeout=self._cluster.follower_timeout,
            progress=self.progress,
            observe_sync=self.metrics.observe_sync,
            on_leader=self._forwarder.to,
        )
        try:
            await link.run(host, port, context)
        except ConfigurationError:
            raise
        except (OSError, EOFError, TimeoutError, PenstockError) as error:
            self._complain("leader unreachable", error)
        finally:
            self._forwarder.to([])

    def _client_context(self) -> ssl.SSLContext:
        tls = self.settings.tls
        context = ssl.create_default_context(cafile=tls.authority)
        context.check_hostname = False
        if tls.authority is None:  # the secret authenticates both sides
            context.verify_mode = ssl.CERT_NONE
        return context

    async def _unfollow(self) -> None:
        task, self._following = self._following, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        self._link = None

    # Leading.

    async def _lead(self, leadership: Leadership) -> None:
        """Until the lease is lost, or the member closes."""
        cluster, member = self._cluster, self.member
        self._lost.clear()
        if self.coordinator is not None and member.is_new:
            member.found(self._cluster_id)
        member.saw(leadership.epoch, member.node)
        _log.info("leading", epoch=leadership.epoch, in_sync=sorted(leadership.in_sync))
        renewal = asyncio.create_task(self._renew(leadership.epoch))
        self.replication = Replication(
            self.data,
            member,
            epoch=leadership.epoch,
            members=leadership.in_sync,
            record=lambda members: self._record(leadership.epoch, members),
            on_deposed=lambda _: self._lost.set(),
            min_in_sync=cluster.min_in_sync,
            follower_timeout=cluster.follower_timeout,
            max_lag=cluster.max_lag,
        )
        await self._forwarder.close()
        self._release_lock()
        listen = [str(address) for address in self._listen]
        settings = dataclasses.replace(self.settings, listen=listen)
        broker = Broker(settings, data=self.data, on_shutdown=self._on_shutdown, cluster=self)
        try:
            await broker.start()
        except BaseException:  # it has closed itself
            await self._resign(leadership.epoch, renewal)
            raise
        try:
            self.replication.addresses = [str(one) for one in self._advertised()]
            self.replication.proxies = self._proxies
            context = tls_context(self.settings.tls) if self._tls else None
            await self.replication.start(self._host, self._port, context)
            self.broker = broker
            await self._pause_until_over()
        finally:
            self.broker = None
            await self._stop_leading(broker, leadership.epoch, renewal)
        self._take_lock()
        self.progress = FollowerProgress()
        if not self._closing.is_set():
            await self._forwarder.open()

    async def _pause_until_over(self) -> None:
        waits = [asyncio.create_task(one.wait()) for one in (self._closing, self._lost)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()

    async def _stop_leading(self, broker: Broker, epoch: int, renewal: asyncio.Task[None]) -> None:
        deposed = self._lost.is_set() and not self._is_resigning
        if deposed:
            _log.warning("leadership lost", epoch=epoch)
            self._lease.lost = True
            for client in list(broker.clients):
                client.abort()
        await broker.close()
        if not deposed:
            await self.replication.drain(DRAIN_SECONDS)
        await self._resign(epoch, renewal, deposed)

    async def _resign(self, epoch: int, renewal: asyncio.Task[None], deposed: bool = False) -> None:
        await self.replication.close()
        renewal.cancel()
        if not deposed and self.coordinator is not None:
            with contextlib.suppress(OSError):
                await self.coordinator.resign(epoch)

    @property
    def _is_resigning(self) -> bool:
        return lease_clock() - self._resigned_at < RESIGNED_SECONDS

    async def _renew(self, epoch: int) -> None:
        lease = self._lease
        if self.coordinator is None:
            return
        while True:
            sent_at = lease_clock()
            try:
                if not await self.coordinator.renew(epoch):
                    self._lost.set()
                    return
                fenced = not lease.is_safe
                lease.renewed(sent_at)
                if fenced and self.broker is not None and not lease.lost:
                    self.broker.kernel.write_batch.flush()
            except OSError as error:
                _log.warning("lease not renewed", error=str(error), age=round(lease.age, 2))
            until = sent_at + lease.seconds / 3
            while (now := lease_clock()) < until:
                if lease.is_over:
                    break
                await asyncio.sleep(max(0.01, min(until - now, lease.seconds / 10)))
            if lease.is_over:
                self._lost.set()
                return

    async def _record(self, epoch: int, members: frozenset[str]) -> bool:
        if self.coordinator is None:
            return True
        return await self.coordinator.record_in_sync(epoch, members)

    # The interface of `LeadingMember`.

    def is_fenced(self) -> bool:
        return self.coordinator is not None and not self._lease.is_safe

    def resign(self) -> None:
        self._resigned_at = lease_clock()
        self._lost.set()

    def remove(self, node: str) -> None:
        self.replication.remove(node)

    def describe(self) -> dict[str, Any]:
        found = {
            "cluster": self.member.cluster,
            "node": self.member.node,
            "role": "leader" if self.leads else "follower",
            "epoch": self.member.epoch,
            "coordinator": urlsplit(self._cluster.url).scheme or "manual",
            "min_in_sync": self._cluster.min_in_sync,
        }
        if self.leads:
            return found | {
                "leader": self.member.node,
                "in_sync": sorted(self.replication.in_sync.members),
                "sequence": self.replication.sequence,
                "members": self.replication.describe(),
            }
        view = self._view
        link = self._link.describe() if self._link is not None else {}
        return found | {
            "leader": link.get("leader") or (view.leader.node if view.leader else ""),
            "in_sync": sorted(view.in_sync or ()),
            "copying": self.member.copying,
            "link": link,
        }

    def follows(self) -> str:
        """The leader to which this follower is connected; empty if there is none."""
        connected = self._following is not None and not self._following.done()
        link = self._link
        return link.leader if connected and link is not None and link.is_synced else ""

    def promote(self) -> None:
        """Lead, without a coordinator."""
        self.member.set_copying(False)
        self._promoted.set()

    # The lock of the data directory.

    def _take_lock(self) -> None:
        self._lock = lock_directory(
            self.data, LOCK_NAME, "stop it, or give this broker a directory of its own (--data)"
        )

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as listening:
        return int(listening.getsockname()[1])
