"""The broker: assembles, starts and stops all its parts. Several brokers can run in one process."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import secrets
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import penstock
from penstock.broker.auth.backend import open_auth_backends
from penstock.broker.buckets import BucketPool
from penstock.broker.host import (
    Alarms,
    ClientConnection,
    ConnectionLimiter,
    CredentialExpiry,
    Host,
)
from penstock.broker.kernel import Kernel
from penstock.broker.log.committer import Committer
from penstock.broker.spool import Spools
from penstock.broker.tiered_storage import TieredStorage
from penstock.broker.topology import Topology
from penstock.broker.users import DEFAULT_USER, Users
from penstock.broker.vhost import VirtualHost
from penstock.broker.write_batch import WriteBatch
from penstock.core.addresses import ListenAddress, parse_address
from penstock.core.config import BrokerSettings, data_home
from penstock.core.data_directory import FileLock, lock_directory, private_directory
from penstock.core.errors import ConfigurationError, NotFound, PreconditionFailed
from penstock.core.host_policy import HostPolicy
from penstock.core.logs import get_logger
from penstock.core.metrics import Metrics
from penstock.core.resources import descriptor_limit, disk_free, memory_used
from penstock.core.telemetry import message_spans
from penstock.destinations.delayed import DelayedMessages
from penstock.destinations.direct_reply_to import ReplyChannel
from penstock.destinations.retained import RetainedStore
from penstock.destinations.tracing import MessageTracer
from penstock.federation.registry import FederationRegistry
from penstock.server.destination_types import EXCHANGE_TYPES, QUEUE_TYPES
from penstock.server.event_loop import BrokerEventLoop
from penstock.server.exposure import find_exposures
from penstock.server.listener import (
    SCHEMES,
    ProtocolService,
    SocketListener,
    open_listener,
    tls_context,
)
from penstock.server.overlay import Overlay
from penstock.server.snapshot import Snapshots

if TYPE_CHECKING:
    from penstock.broker.content_router import ContentRouter
    from penstock.cluster.replication import Replication
    from penstock.server.management.server import ManagementServer
    from penstock.server.websocket import WebSocketConnection


#: The file in the data directory that a broker locks for as long as it runs.
LOCK_NAME: Final = "broker.lock"
#: The interval of the resource monitor.
MONITOR_SECONDS: Final = 1.0

_log = get_logger("penstock.broker")


class LeadingMember(Protocol):
    """The member of a cluster whose broker leads."""

    replication: Replication

    def is_fenced(self) -> bool:
        """The lease is so old that another may lead soon."""

    def describe(self) -> dict[str, Any]: ...

    def resign(self) -> None:
        """Let another member lead."""

    def remove(self, node: str) -> None:
        """Disconnect a follower that will not return, and remove it from the in-sync set."""


class Broker:
    """`async with Broker(settings, data=directory) as broker:` runs one until the block ends."""

    kernel: Kernel
    users: Users
    topology: Topology
    snapshots: Snapshots
    _lock: FileLock

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        *,
        data: Path | None = None,
        on_shutdown: Callable[[], None] | None = None,
        cluster: LeadingMember | None = None,
    ) -> None:
        """`on_shutdown` is called when an overlay command requests a shutdown. A broker that leads
        a `cluster` is replicated."""
        self.cluster = cluster
        self._users_replicated = 0  # their version
        self.settings = settings or BrokerSettings()
        self.data = data or data_home()
        self.alarms = Alarms(self._alarms_changed)
        self.connection_limiter = ConnectionLimiter(
            self.settings.max_unauthenticated, descriptor_limit()
        )
        self.credential_expiry = CredentialExpiry()
        self.vhosts: dict[str, VirtualHost] = {}
        self.clients: dict[ClientConnection, float] = {}
        self.draining = False
        self.addresses: list[str] = []
        self.damage: list[str] = []  #: corruption found since the start
        self.product: dict[str, Any] = {
            "product": "Penstock",
            "version": penstock.__version__,
            "platform": f"Python {platform.python_version()}",
            "cluster_name": self.settings.server_name,
            "information": "A message fabric in Python",
        }
        if self.settings.rabbitmq_version:
            presented = {"product": "RabbitMQ", "version": self.settings.rabbitmq_version}
            self.product |= presented
        self._servers: list[SocketListener] = []
        self._handshaking: set[WebSocketConnection] = set()
        self._services: dict[Callable[[Host], ProtocolService], ProtocolService] = {}
        self._management: ManagementServer | None = None
        self._empty = asyncio.Event()
        self._watch = ResourceMonitor(self)
        self._on_shutdown = on_shutdown
        self.overlay = Overlay(self)
        self.federation = FederationRegistry(self)
        self._tracers: dict[str, MessageTracer] = {}

    # Start and stop.

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        addresses = [parse_address(url) for url in self.settings.listen]
        self._check_schemes(addresses)
        loop = asyncio.get_running_loop()
        private_directory(self.data, traversable=True)
        self._lock = lock_directory(
            self.data, LOCK_NAME, "stop it, or give this broker a directory of its own (--data)"
        )
        try:
            await self._start(addresses, loop)
        except BaseException:
            self._lock.release()
            raise
        _log.info("ready", addresses=self.addresses, data=str(self.data))
        for each in await find_exposures(self.settings, self.users.find(DEFAULT_USER)):
            _log.warning("insecure setting", problem=each.problem, advice=each.advice)

    async def _start(self, addresses: list[ListenAddress], loop: asyncio.AbstractEventLoop) -> None:
        self.kernel = self._make_kernel(loop)
        self.users = Users(
            self.data / "users.json", backends=partial(open_auth_backends, self.settings)
        )
        self.users.load()
        self.topology = Topology(
            self.kernel.directory / "topology.jsonl", self.kernel.committer, self._report
        )
        self.snapshots = Snapshots(self.data, self.kernel, self.topology)
        if self.cluster is not None:
            self._replicate(self.cluster)
        await self._recover(addresses)
        self._watch.start()
        try:
            self.product["cluster_id"] = self.cluster_id
            await self._listen(addresses)
            self.overlay.start()
            self.federation.start()
            self.kernel.write_batch.flush()
        except BaseException:
            await self.close()
            raise

    def _make_kernel(self, loop: asyncio.AbstractEventLoop) -> Kernel:
        log = private_directory(self.data / "log")
        pool = BucketPool(self.settings.memory_bytes)
        metrics = Metrics()
        metrics.on_scrape(self._refresh)
        committer = Committer(
            loop,
            on_fault=partial(self._watch.fault, "log"),
            on_recovered=partial(self._watch.recovered, "log"),
            on_synced=self._synced,
            observe_sync=metrics.observe_sync,
        )
        if self.cluster is not None:
            committer.observer = self.cluster.replication
            committer.is_replicated = True
        write_batch = WriteBatch(loop, committer)
        if isinstance(loop, BrokerEventLoop):
            write_batch.spans_reads = True
            loop.poll.on_pass_end(write_batch.end_pass)
        tiered = self.settings.tiered_storage
        return Kernel(
            loop=loop,
            settings=self.settings,
            directory=log,
            committer=committer,
            write_batch=write_batch,
            pool=pool,
            spools=Spools(
                log / "spool",
                pool,
                loop,
                on_fault=partial(self._watch.fault, "spool"),
                on_recovered=partial(self._watch.recovered, "spool"),
            ),
            metrics=metrics,
            report=self._report,
            tiered_storage=TieredStorage(tiered, loop) if tiered else None,
        )

    def _replicate(self, cluster: LeadingMember) -> None:
        self.product["cluster_member"] = cluster.replication.member.node
        self.product["cluster_epoch"] = cluster.replication.epoch
        self.kernel.write_batch.is_fenced = cluster.is_fenced
        cluster.replication.in_sync.on_released = self.kernel.write_batch.flush
        self.topology.on_change = self._hold_declaration
        self.replicate_users()

    async def _recover(self, addresses: list[ListenAddress]) -> None:
        """Open the virtual hosts, and the protocols' services with what they have stored."""
        batch = self.kernel.write_batch
        default = ("vhost", self.settings.default_vhost)
        if default not in dict(self.topology.all("vhost")):
            self.topology.put(default, {})
        batch.begin_recovery()
        for (_, name), _value in self.topology.all("vhost"):
            for _ in self._open_vhost(name, recover=False).recovery():
                if batch.is_over():
                    batch.flush()
                    await asyncio.sleep(0)
        schemes = [address.scheme for address in addresses if address.scheme in SCHEMES]
        for scheme in (*schemes, "mqtt"):  # sessions expire without a listener, too
            service = SCHEMES[scheme]
            if service not in self._services:
                self._services[service] = service(self)
        batch.end_recovery()
        batch.flush()

    def _check_schemes(self, addresses: list[ListenAddress]) -> None:
        known = [*SCHEMES, "http", "https"]
        for address in addresses:
            if address.scheme not in known:
                raise ConfigurationError(
                    f"broker.listen: {address}: unsupported scheme {address.scheme}; "
                    f"use one of {', '.join(known)}"
                )

    async def _listen(self, addresses: list[ListenAddress]) -> None:
        policy = self._host_policy(addresses)
        opened = dict.fromkeys(range(len(addresses)), "")
        # Management first: AMQP server properties contain its address.
        for index in sorted(opened, key=lambda index: addresses[index].scheme in SCHEMES):
            address = addresses[index]
            context = tls_context(self.settings.tls, address.scheme) if address.tls else None
            if address.scheme in SCHEMES:
                service = self._services[SCHEMES[address.scheme]]
                server, actual = await open_listener(
                    self, service, address, context, policy, self._handshaking
                )
                self._servers.append(server)
            else:
                actual = await self._manage(address, context, policy)
            opened[index] = str(actual)
        self.addresses += opened.values()

    def _host_policy(self, addresses: list[ListenAddress]) -> HostPolicy:
        """Host names of listeners are allowed, too."""
        return HostPolicy(
            [*self.settings.allowed_hosts, *(address.host for address in addresses)],
            self.settings.allowed_origins,
            setting="broker.allowed_hosts or broker.allowed_origins",
        )

    async def _manage(
        self, address: ListenAddress, context: ssl.SSLContext | None, policy: HostPolicy
    ) -> ListenAddress:
        from penstock.server.management.server import (
            ManagementServer,
        )  # loaded if there is a listener

        if self._management is None:
            self._management = ManagementServer(self, policy)
        actual = await self._management.listen(address, context)
        # Clients that connect with TLS get the address with TLS.
        name = "arrow_tls" if actual.tls else "arrow"
        self.product.setdefault(name, self._management.streams_url(actual))
        return actual

    async def close(self) -> None:
        """Stop accepting, close all connections, sync and close files; within `drain_seconds`."""
        self.draining = True
        self._watch.stop()
        for server in self._servers:
            server.close()
        await self.overlay.close()
        await self.federation.close()
        for connection in list(self._handshaking):
            connection.abort()
        for client in list(self.clients):
            client.end("broker forced connection closure with reason 'shutdown'")
        await self._wait_for_clients(self.settings.drain_seconds)
        for client in list(self.clients):
            client.abort()
        await self._wait_for_clients(1.0)
        if self._management is not None:
            await self._management.close()
        for service in self._services.values():
            service.close()
        self.kernel.write_batch.flush()
        await self.kernel.committer.close()
        self.overlay.close_files()
        for vhost in self.vhosts.values():
            vhost.close(self._close_failed)
        try:
            self.topology.close()
        except OSError as error:
            self._close_failed("topology", error)
        self.snapshots.close()
        self.kernel.spools.close()
        if self.kernel.tiered_storage is not None:
            self.kernel.tiered_storage.close()
        if isinstance(self.kernel.loop, BrokerEventLoop):
            self.kernel.loop.poll.off_pass_end(self.kernel.write_batch.end_pass)
        self._lock.release()
        _log.info("stopped")

    async def _wait_for_clients(self, seconds: float) -> None:
        """Until all are disconnected, or this long."""
        self._empty = asyncio.Event()
        if self.clients:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), seconds)

    def client_left(self, client: ClientConnection) -> None:
        self.clients.pop(client, None)
        if not self.clients:
            self._empty.set()

    # Virtual hosts.

    def _open_vhost(self, name: str, *, recover: bool = True) -> VirtualHost:
        vhost = VirtualHost(
            name,
            self.kernel,
            self.topology,
            EXCHANGE_TYPES,
            QUEUE_TYPES,
            ReplyChannel,
            RetainedStore,
            DelayedMessages,
            recover=recover,
        )
        self.vhosts[name] = vhost
        if (spans := message_spans()) is not None:
            self.tracer(vhost).set_spans(spans)
        return vhost

    def add_vhost(self, name: str) -> VirtualHost:
        if name in self.vhosts:
            return self.vhosts[name]
        self.topology.put(("vhost", name), {})
        vhost = self._open_vhost(name)
        self.federation.watch(vhost)
        return vhost

    def delete_vhost(self, name: str) -> None:
        vhost = self.vhosts.get(name)
        if vhost is None:
            raise NotFound(f"no vhost '{name}'")
        if name == self.settings.default_vhost:
            raise PreconditionFailed(f"vhost '{name}' is the default vhost and cannot be deleted")
        for client in list(self.clients):
            if client.describe()["vhost"] == name:
                client.end(f"vhost '{name}' is deleted")
        del self.vhosts[name]
        self.federation.forget(name)
        vhost.delete()
        self.overlay.forget(name)

    def tracer(self, vhost: VirtualHost) -> MessageTracer:
        """The tracer of a virtual host, whether it is traced or not."""
        if vhost.name not in self._tracers or self._tracers[vhost.name].vhost is not vhost:
            self._tracers[vhost.name] = MessageTracer(vhost, self.settings.server_name)
        return self._tracers[vhost.name]

    @property
    def cluster_name(self) -> str:
        return self.settings.server_name

    @property
    def cluster_id(self) -> str:
        """Unique among brokers and clusters; chosen at the first start."""
        stored = self.topology.get(("cluster-id",))
        if stored is None:
            stored = {"id": f"{self.settings.server_name}-{secrets.token_hex(4)}"}
            self.topology.put(("cluster-id",), stored)
        return str(stored["id"])

    # Replication.

    def _hold_declaration(self) -> None:
        """The client that changes topology is answered when the change is replicated."""
        reader = self.kernel.write_batch.reader
        if reader is not None:
            release = reader.hold_output()
            self.kernel.committer.after(release, lambda _: release())

    def replicate_users(self) -> None:
        """Send the users file to followers, if it has changed."""
        if self.cluster is not None and self.users.version != self._users_replicated:
            self._users_replicated = self.users.version
            self.cluster.replication.replace_file(self.users.path)

    async def replicated(self) -> None:
        """Wait until all changes so far are on the disks of the in-sync members of the cluster."""
        if self.cluster is None:
            return
        self.replicate_users()
        done: asyncio.Future[None] = self.kernel.loop.create_future()

        def succeeded() -> None:
            if not done.done():
                done.set_result(None)

        def failed(error: OSError) -> None:
            if not done.done():
                done.set_exception(error)

        self.kernel.committer.after(succeeded, failed)
        self.kernel.write_batch.flush()
        await done

    @property
    def links(self) -> Overlay:
        return self.overlay

    def router(self, vhost: str) -> ContentRouter[Any]:
        return self.overlay.router(vhost)

    def shutdown(self) -> None:
        """Requested over the overlay; the embedding program decides."""
        _log.warning("shutdown requested")
        if self._on_shutdown is not None:
            self._on_shutdown()

    # Reports of the parts.

    def _close_failed(self, name: str, error: OSError) -> None:
        """No confirmed message is lost: recovery completes it at the next start."""
        _log.error("close failed", destination=name, error=str(error))

    def _synced(self) -> None:
        self.kernel.write_batch.flush()

    def _report(self, corruption: str) -> None:
        self.damage.append(corruption)
        if "torn" in corruption:
            self.kernel.metrics.torn_tails += 1
        else:
            self.kernel.metrics.corrupt_chunks += 1
        _log.error("corruption found", what=corruption)

    def _alarms_changed(self) -> None:
        if self.alarms.active:
            _log.warning("publishers blocked", reason=self.alarms.reason)
        else:
            _log.info("publishers unblocked")
        for client in list(self.clients):
            client.alarms_changed()
        self.kernel.write_batch.flush()

    def _refresh(self, metrics: Metrics) -> None:
        queues = [queue for vhost in self.vhosts.values() for queue in vhost.queues.values()]
        described = [queue.describe() for queue in queues]
        metrics.connections = len(self.clients)
        metrics.channels = sum(client.describe()["channels"] for client in self.clients)
        metrics.consumers = sum(queue["consumers"] for queue in described)
        metrics.queues = len(queues)
        metrics.exchanges = sum(len(vhost.exchanges) for vhost in self.vhosts.values())
        metrics.ready = sum(queue["messages_ready"] for queue in described)
        metrics.unacknowledged = sum(queue["messages_unacknowledged"] for queue in described)
        metrics.memory_used = memory_used()
        if self.cluster is not None:
            replication = self.cluster.replication
            followers = replication.describe()
            metrics.cluster_epoch = replication.epoch
            metrics.cluster_leads = metrics.cluster_member_in_sync = 1
            metrics.cluster_in_sync = len(replication.in_sync.members)
            metrics.cluster_lag_bytes = max(one["lag_bytes"] for one in followers)
            metrics.cluster_lag_seconds = max(one["lag_seconds"] for one in followers)


class ResourceMonitor:
    """Sets alarms when the disk or the memory for messages runs out; reloads changed users."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._timer: asyncio.TimerHandle | None = None
        self.faults: set[str] = set()  #: components whose writes fail

    def start(self) -> None:
        self.check()
        loop = self._broker.kernel.loop
        self._timer = loop.call_later(MONITOR_SECONDS, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def check(self) -> None:
        broker = self._broker
        free = disk_free(self._broker.data)
        broker.kernel.metrics.disk_free = free
        limit = broker.settings.disk_free_limit
        if free < limit:
            broker.alarms.set("disk", f"low on disk: {free} bytes free, the limit is {limit}")
        elif not self.faults:
            broker.alarms.clear("disk")
        pool = broker.kernel.pool
        if pool.spent:
            broker.alarms.set("memory", f"low on memory: {pool.used} of {pool.budget} bytes")
        else:
            broker.alarms.clear("memory")
        broker.users.refresh()
        broker.replicate_users()
        broker.overlay.check_users()

    def fault(self, component: str, error: OSError) -> None:
        """A write failed, and is retried."""
        self.faults.add(component)
        self._broker.alarms.set("disk", f"cannot write: {error.strerror or error}")

    def recovered(self, component: str) -> None:
        self.faults.discard(component)
        self.check()
