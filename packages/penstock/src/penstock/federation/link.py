"""Federation links: the messages of an upstream's exchange or queue come here.

The link of an exchange has a durable queue at the upstream, bound like the exchange here: what is
published while the link is down arrives later. The header `x-received-from` has an entry for each
broker that a message has passed. A message that has passed `max-hops` brokers, or this one, is not
published again. In the same way the argument `x-bound-from` limits how far a binding is passed on.

The link of a queue consumes the upstream's queue while consumers here wait for messages.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final, Protocol
from uuid import uuid4

from penstock.broker.contract import Binding, Exchange, Queue
from penstock.broker.topology import pack_arguments, unpack_arguments
from penstock.broker.vhost import VirtualHost
from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import AmqpClientConnection
from penstock.core.basic_properties import decode_header, encode_header, encode_route
from penstock.core.errors import NotFound, PenstockError, WireSyntaxError
from penstock.core.logs import get_logger
from penstock.federation.amqp091 import Amqp091TransferSource, ensure_queue
from penstock.federation.definition import shown_uri
from penstock.federation.host import FederationHost
from penstock.federation.local import LocalTransferDestination
from penstock.federation.transfer import MessageTransfer, RecoveringTransfer, TransferMessage
from penstock.federation.upstream import Upstream
from penstock.wire.amqp091.address import parse_amqp_url

RECEIVED_FROM: Final = "x-received-from"
BOUND_FROM: Final = "x-bound-from"
#: How often the link of a queue looks whether consumers wait.
DEMAND_POLL_SECONDS: Final = 0.1

_log = get_logger("penstock.federation")

#: The key and the packed arguments of a binding.
MirroredBinding = tuple[str, str]


class FederatedQueue(Queue, Protocol):
    """A queue that tells whether its consumers wait for messages."""

    @property
    def is_starved(self) -> bool: ...


class FederationLink:
    """The part that links of exchanges and queues share."""

    kind = ""

    def __init__(
        self, host: FederationHost, vhost: VirtualHost, name: str, upstream: Upstream
    ) -> None:
        self.id = uuid4().hex[:8]
        self.vhost = vhost
        self.name = name  #: of the exchange or queue here
        self.upstream = upstream
        self._host = host
        self._addresses = [parse_amqp_url(uri) for uri in upstream.uris]
        self.source: Amqp091TransferSource | None = None
        self.transfer = RecoveringTransfer(
            f"federation of {self.kind} '{name}' from '{upstream.name}'",
            self._create,
            upstream.reconnect_delay,
        )

    @property
    def upstream_name(self) -> str:
        """The name of the exchange or queue at the upstream."""
        raise NotImplementedError

    def _create(self) -> MessageTransfer:
        raise NotImplementedError

    def start(self) -> None:
        self.transfer.start()

    async def stop(self, *, removed: bool = False) -> None:
        """`removed`: the link will not start again."""
        await self.transfer.stop()

    def refresh(self) -> None:
        """Bindings have changed."""

    def describe(self) -> dict[str, Any]:
        state = {"terminated": "error"}.get(self.transfer.state.value, self.transfer.state.value)
        return {
            "id": self.id,
            "vhost": self.vhost.name,
            "type": self.kind,
            self.kind: self.name,
            f"upstream_{self.kind}": self.upstream_name,
            "upstream": self.upstream.name,
            "uri": shown_uri(self.upstream.uris[0]),
            "status": state,
            "timestamp": f"{self.transfer.since:%Y-%m-%d %H:%M:%S}",
            "messages_moved": self.transfer.moved,
            **({"error": self.transfer.reason} if state == "error" else {}),
        }

    def _open_source(self, setup: Any, *, paused: bool = False) -> Amqp091TransferSource:
        self.source = Amqp091TransferSource(
            self._addresses,
            f"Federation link (upstream: {self.upstream.name}, {self.kind}: {self.name})",
            setup,
            self.upstream.prefetch,
            {"x-priority": -1} if paused else None,
            paused=paused,
        )
        return self.source


class ExchangeLink(FederationLink):
    kind = "exchange"

    def __init__(
        self, host: FederationHost, vhost: VirtualHost, name: str, upstream: Upstream
    ) -> None:
        super().__init__(host, vhost, name, upstream)
        self._channel: AmqpClientChannel | None = None  # for bindings
        self._refreshing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._removed = False
        self._upstream_identity = ""
        place = "" if vhost.name == "/" else f":{vhost.name}"
        self._queue = f"federation: {self.upstream_name} -> {host.cluster_id}{place}"
        if self.upstream_name != name:
            self._queue += f":{name}"
        self._stored = ("federation-bindings", vhost.name, name, upstream.name)

    @property
    def upstream_name(self) -> str:
        return self.name if self.upstream.exchange is None else self.upstream.exchange

    def _create(self) -> MessageTransfer:
        self._channel = None
        destination = LocalTransferDestination(self.vhost, self._host.alarms)
        source = self._open_source(self._setup)
        return MessageTransfer(source, destination, self.upstream.mode, change=self._receive)

    async def stop(self, *, removed: bool = False) -> None:
        self._removed = removed
        channel = self._channel
        if removed and channel is not None and not self.upstream.keeps_queue:
            with contextlib.suppress(PenstockError, TimeoutError):
                async with asyncio.timeout(5):
                    await channel.delete_queue(self._queue)
        if removed:
            self._host.topology.drop(self._stored)
        await super().stop(removed=removed)

    # The upstream.

    async def _setup(self, connection: AmqpClientConnection) -> tuple[str, int]:
        greeting = connection.server_properties
        self._upstream_identity = str(
            greeting.get("cluster_id") or greeting.get("cluster_name") or connection.address
        )
        exchange = self.vhost.exchange(self.name)
        await self._ensure_exchange(connection, exchange)
        arguments: dict[str, Any] = {"x-queue-type": self.upstream.queue_type}
        if self.upstream.expires is not None:
            arguments["x-expires"] = self.upstream.expires
        if self.upstream.message_ttl is not None:
            arguments["x-message-ttl"] = self.upstream.message_ttl
        length = await ensure_queue(connection, self._queue, arguments, False)
        self._channel = await connection.channel()
        await self._bind()
        return self._queue, length

    async def _ensure_exchange(self, connection: AmqpClientConnection, exchange: Exchange) -> None:
        try:
            async with await connection.channel() as channel:
                await channel.declare_exchange(self.upstream_name, exchange.type, passive=True)
        except NotFound:
            async with await connection.channel() as channel:
                await channel.declare_exchange(
                    self.upstream_name,
                    exchange.type,
                    durable=exchange.durable,
                    arguments=exchange.arguments,
                )

    def refresh(self) -> None:
        if self._channel is not None:
            task = asyncio.get_running_loop().create_task(self._refresh())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _refresh(self) -> None:
        try:
            await self._bind()
        except PenstockError as error:  # the channel's connection ends the transfer, if it is lost
            _log.warning("bindings not passed on", exchange=self.name, reason=str(error))

    async def _bind(self) -> None:
        """Bind the upstream's queue as the exchange here is bound."""
        async with self._refreshing:
            channel = self._channel
            if channel is None:
                return
            stored = self._host.topology.get(self._stored) or {"bindings": []}
            bound = {(key, packed) for key, packed in stored["bindings"]}
            wanted = self._wanted()
            for key, packed in wanted:
                await channel.bind(self._queue, self.upstream_name, key, unpack_arguments(packed))
            # Bindings that may exist are stored first: a killed broker removes them later.
            self._store(bound | wanted)
            for key, packed in bound - wanted:
                arguments = unpack_arguments(packed)
                await channel.unbind(self._queue, self.upstream_name, key, arguments)
            self._store(wanted)

    def _store(self, bindings: set[MirroredBinding]) -> None:
        self._host.topology.put(self._stored, {"bindings": sorted(map(list, bindings))})
        self._host.kernel.write_batch.flush()

    def _wanted(self) -> set[MirroredBinding]:
        exchange = self.vhost.exchanges.get(self.name)
        bindings = [] if exchange is None else list(exchange.bindings)
        return {mirrored for each in bindings if (mirrored := self._mirror(each)) is not None}

    def _mirror(self, binding: Binding) -> MirroredBinding | None:
        """None for a binding that has come as far as it may."""
        came = binding.arguments.get(BOUND_FROM)
        hops = self.upstream.max_hops
        passed: list[Any] = []
        if isinstance(came, list) and came and isinstance(came[0], dict):
            passed = came
            left = came[0].get("hops", 1)
            hops = min(hops, (left if isinstance(left, int) else 1) - 1)
            names = {entry.get("cluster-name") for entry in came if isinstance(entry, dict)}
            if hops <= 0 or self._upstream_identity in names:
                return None
        entry = {
            "cluster-name": self._host.cluster_id,
            "vhost": self.vhost.name,
            "exchange": self.name,
            "hops": hops,
        }
        return binding.key, pack_arguments({**binding.arguments, BOUND_FROM: [entry, *passed]})

    # Messages.

    def _receive(self, message: TransferMessage) -> TransferMessage | None:
        try:
            properties = decode_header(message.header)
        except WireSyntaxError:
            return None  # its headers cannot be extended
        headers = dict(properties.headers or {})
        passed = headers.get(RECEIVED_FROM)
        passed = passed if isinstance(passed, list) else []
        if len(passed) >= self.upstream.max_hops or any(map(self._is_here, passed)):
            return None
        entry = {
            "uri": shown_uri(self.upstream.uris[0]),
            "cluster-name": self._upstream_identity,
            "vhost": self._addresses[0].vhost,
            "exchange": self.upstream_name,
            "redelivered": message.redelivered,
        }
        headers[RECEIVED_FROM] = [entry, *passed]
        properties.headers = headers
        if not self.upstream.trust_user_id:
            properties.user_id = None
        key = message.route[message.route[0] + 2 :]
        route = encode_route(self.name, key.decode("utf-8", "surrogateescape"))
        header = encode_header(properties, len(message.body))
        return TransferMessage(route, header, message.body, message.tag, message.redelivered)

    def _is_here(self, entry: Any) -> bool:
        return (
            isinstance(entry, dict)
            and entry.get("cluster-name") in (self._host.cluster_id, self._host.cluster_name)
            and entry.get("vhost", self.vhost.name) == self.vhost.name
        )


class QueueLink(FederationLink):
    kind = "queue"

    @property
    def upstream_name(self) -> str:
        return self.name if self.upstream.queue is None else self.upstream.queue

    def _create(self) -> MessageTransfer:
        destination = LocalTransferDestination(self.vhost, self._host.alarms)
        self._route = encode_route("", self.name)
        source = self._open_source(self._setup, paused=True)
        return MessageTransfer(source, destination, self.upstream.mode, change=self._receive)

    async def _setup(self, connection: AmqpClientConnection) -> tuple[str, int]:
        queue = self.vhost.queue(self.name)
        length = await ensure_queue(connection, self.upstream_name, queue.arguments, False)
        return self.upstream_name, length

    def start(self) -> None:
        super().start()
        self._demand = asyncio.get_running_loop().create_task(self._follow_demand())

    async def stop(self, *, removed: bool = False) -> None:
        self._demand.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._demand
        await super().stop(removed=removed)

    async def _follow_demand(self) -> None:
        """Consume at the upstream while consumers here wait."""
        consuming: AmqpClientChannel | None = None  # the channel that consumes
        while True:
            await asyncio.sleep(DEMAND_POLL_SECONDS)
            queue: Any = self.vhost.queues.get(self.name)
            source = self.source
            if queue is None or source is None or source.channel is None:
                consuming = None
                continue
            channel = source.channel
            starved = bool(getattr(queue, "is_starved", False))
            with contextlib.suppress(PenstockError):  # a failure ends the transfer
                if starved and consuming is not channel:
                    await source.consume()
                    consuming = channel
                elif not starved and consuming is channel:
                    consuming = None
                    await source.pause()

    def _receive(self, message: TransferMessage) -> TransferMessage:
        header = message.header
        if not self.upstream.trust_user_id and header[13] & 0x10:
            properties = decode_header(header)
            properties.user_id = None
            header = encode_header(properties, len(message.body))
        return TransferMessage(
            self._route, header, message.body, message.tag, message.redelivered
        )  # fmt: skip
