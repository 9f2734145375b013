"""Shovels: the parameters of component `shovel`, with RabbitMQ's names and those of MQTT."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from penstock.broker.contract import Queue
from penstock.broker.parameters import SHOVEL
from penstock.broker.vhost import VirtualHost
from penstock.client.amqp091.connection import AmqpClientConnection
from penstock.client.amqp10.endpoint import parse_endpoint as parse_amqp10
from penstock.core.basic_properties import (
    USER_ID,
    BasicProperties,
    decode_header,
    encode_header,
    encode_route,
)
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.federation.amqp091 import (
    Amqp091TransferDestination,
    Amqp091TransferSource,
    ensure_queue,
)
from penstock.federation.amqp10 import Amqp10TransferDestination, Amqp10TransferSource
from penstock.federation.definition import (
    DEFAULT_PREFETCH,
    DEFAULT_RECONNECT_SECONDS,
    DefinitionReader,
    is_local,
    shown_uri,
)
from penstock.federation.host import FederationHost
from penstock.federation.local import LocalTransferDestination, LocalTransferSource
from penstock.federation.transfer import (
    AckMode,
    MessageTransfer,
    RecoveringTransfer,
    TransferDestination,
    TransferMessage,
    TransferSource,
)
from penstock.wire.amqp091.address import parse_amqp_url
from penstock.wire.mqtt.topics import topic_to_routing_key

PROTOCOLS: Final = ("amqp091", "amqp10", "mqtt", "local")
_MQTT_SCHEMES: Final = ("mqtt", "mqtts", "ws", "wss")
_PROPERTIES: Final = frozenset(field.name for field in fields(BasicProperties))


@dataclass(frozen=True, slots=True)
class ShovelSide:
    """One end of a shovel."""

    protocol: str
    uris: tuple[str, ...]
    queue: str | None
    exchange: str | None
    key: str | None
    address: str | None  #: of AMQP 1.0
    topic: str | None  #: of MQTT
    queue_arguments: dict[str, Any]
    predeclared: bool


@dataclass(frozen=True, slots=True)
class ShovelDefinition:
    name: str
    source: ShovelSide
    destination: ShovelSide
    mode: AckMode
    prefetch: int
    consumer_arguments: dict[str, Any]
    reconnect_delay: int
    delete_after: str | int  #: `never`, `queue-length` or a number of messages
    forward_headers: bool
    timestamp_header: bool
    properties: dict[str, Any]

    @classmethod
    def parse(cls, name: str, value: Any) -> ShovelDefinition:
        """Raises `PreconditionFailed` with all reasons."""
        read = DefinitionReader(SHOVEL, name, value)
        source, destination = _read_side(read, "src"), _read_side(read, "dest")
        delete_after = read.take("src-delete-after", "delete-after") or "never"
        is_number = type(delete_after) is int and delete_after > 0
        if not is_number and delete_after not in ("never", "queue-length"):
            read.problems.append(
                "src-delete-after should be a number, 'queue-length' or 'never', not "
                f"{delete_after!r}"
            )
        mode = read.mode()
        if mode is AckMode.NO_ACK and delete_after != "never":
            read.problems.append(
                "src-delete-after needs acknowledgements: not with ack-mode no-ack"
            )
        if delete_after == "queue-length" and source.protocol not in ("amqp091", "local"):
            read.problems.append(f"{source.protocol} does not tell the length of a queue")
        properties = {
            key.replace("-", "_"): each
            for key, each in read.table("dest-publish-properties", "publish-properties").items()
        }
        for key in sorted(properties.keys() - _PROPERTIES):
            read.problems.append(f"dest-publish-properties: unknown property {key!r}")
        prefetch = read.number(
            "src-prefetch-count", "prefetch-count", default=DEFAULT_PREFETCH, least=1
        )
        delay = read.number("reconnect-delay", default=DEFAULT_RECONNECT_SECONDS)
        definition = cls(
            name,
            source,
            destination,
            mode,
            prefetch or DEFAULT_PREFETCH,
            read.table("src-consumer-args"),
            DEFAULT_RECONNECT_SECONDS if delay is None else delay,
            delete_after,
            read.flag("dest-add-forward-headers", "add-forward-headers"),
            read.flag("dest-add-timestamp-header", "add-timestamp-header"),
            properties,
        )
        read.finish()
        return definition

    def describe(self) -> dict[str, Any]:
        """Fields of `/api/shovels`."""
        described: dict[str, Any] = {}
        for end, side in (("src", self.source), ("dest", self.destination)):
            described[f"{end}_protocol"] = side.protocol
            described[f"{end}_uri"] = shown_uri(side.uris[0])
            for field in ("queue", "exchange", "address", "topic"):
                if (value := getattr(side, field)) is not None:
                    described[f"{end}_{field}"] = value
            if side.key is not None:
                described[f"{end}_exchange_key"] = side.key
        return described


def _read_side(read: DefinitionReader, end: str) -> ShovelSide:
    protocol = read.choice(f"{end}-protocol", PROTOCOLS, "")
    schemes: list[str] = []

    def check(uri: str) -> object:
        schemes.append(urlsplit(uri).scheme)
        return _parse_uri(protocol or _protocol_of(uri), uri)

    uris = read.uris(f"{end}-uri", check)
    if not protocol:
        found = {_protocol_of(uri) for uri in uris}
        if len(found) > 1:
            read.problems.append(f"{end}-uri: all URIs should have one protocol")
        protocol = next(iter(found), "amqp091")
    if protocol == "amqp091" and uris and all(is_local(uri) for uri in uris):
        protocol = "local"
    queue, exchange = read.text(f"{end}-queue"), read.text(f"{end}-exchange")
    key = read.text(f"{end}-exchange-key")
    address, topic = read.text(f"{end}-address"), read.text(f"{end}-topic")
    arguments = read.table(f"{end}-queue-args")
    predeclared = read.flag(f"{end}-predeclared")
    if protocol == "amqp10":
        if address is None:
            read.problems.append(f"Must specify '{end}-address'")
    elif protocol == "mqtt":
        if address is not None or queue is not None or exchange is not None:
            read.problems.append(f"{end}-topic is the only address of MQTT")
        if end == "src" and topic is None:
            read.problems.append("Must specify 'src-topic'")
    elif queue is not None and exchange is not None:
        read.problems.append(f"Cannot specify '{end}-exchange' and '{end}-queue'")
    elif end == "src" and queue is None and exchange is None:
        read.problems.append("Must specify 'src-exchange' or 'src-queue'")
    if protocol in ("amqp091", "local") and (address is not None or topic is not None):
        read.problems.append(f"{end}-address and {end}-topic are for AMQP 1.0 and MQTT")
    return ShovelSide(
        protocol, uris, queue, exchange, key, address, topic, arguments, predeclared
    )  # fmt: skip


def _protocol_of(uri: str) -> str:
    scheme = urlsplit(uri).scheme
    if scheme in _MQTT_SCHEMES:
        return "mqtt"
    return "amqp10" if scheme.endswith("+1.0") else "amqp091"


def _parse_uri(protocol: str, uri: str) -> Any:
    if protocol == "local" or (protocol == "amqp091" and is_local(uri)):
        if not is_local(uri):
            raise PreconditionFailed(f"{shown_uri(uri)!r}: the local protocol takes amqp:///VHOST")
        return None
    if protocol == "amqp10":
        scheme, _, rest = uri.partition("://")
        return parse_amqp10(f"{scheme.removesuffix('+1.0')}+1.0://{rest}")
    if protocol == "mqtt":
        from penstock.client.mqtt.endpoint import parse_endpoint  # loads paho

        return parse_endpoint(uri)
    return parse_amqp_url(uri)


def open_shovel(
    definition: ShovelDefinition, vhost: VirtualHost, host: FederationHost
) -> tuple[MessageTransfer, TransferSource]:
    source = _open_source(definition, vhost, host)
    limit = definition.delete_after if isinstance(definition.delete_after, int) else None
    transfer = MessageTransfer(
        source,
        _open_destination(definition, vhost, host),
        definition.mode,
        change=MessageChange(definition, vhost.name, host.cluster_name),
        limit=limit,
        limit_to_backlog=definition.delete_after == "queue-length",
    )
    return transfer, source


def _open_source(
    definition: ShovelDefinition, vhost: VirtualHost, host: FederationHost
) -> TransferSource:
    side, prefetch = definition.source, definition.prefetch
    name = f"Shovel {definition.name}"
    parsed = [_parse_uri(side.protocol, uri) for uri in side.uris]
    if side.protocol == "amqp10":
        return Amqp10TransferSource(parsed, name, side.address or "", prefetch)
    if side.protocol == "mqtt":
        from penstock.federation.mqtt import MqttTransferSource  # loads paho

        client_id = f"shovel-{host.cluster_id}-{definition.name}"
        qos = 0 if definition.mode is AckMode.NO_ACK else 1
        endpoints = [endpoint.named(client_id) if qos else endpoint for endpoint in parsed]
        return MqttTransferSource(endpoints, side.topic or "", prefetch, qos)
    if side.protocol == "local":
        local = _local_vhost(side.uris, vhost, host)
        declared = LocalQueue(local, side)
        return LocalTransferSource(
            host.kernel, declared.find, prefetch, definition.consumer_arguments, declared.release
        )

    async def setup(connection: AmqpClientConnection) -> tuple[str, int]:
        if side.queue is not None:
            length = await ensure_queue(
                connection, side.queue, side.queue_arguments, side.predeclared
            )
            return side.queue, length
        channel = await connection.channel()
        declared = await channel.declare_queue("", durable=False, exclusive=True)
        await channel.bind(declared.queue, side.exchange or "", side.key or "")
        return str(declared.queue), 0

    return Amqp091TransferSource(parsed, name, setup, prefetch, definition.consumer_arguments)


def _open_destination(
    definition: ShovelDefinition, vhost: VirtualHost, host: FederationHost
) -> TransferDestination:
    side = definition.destination
    name = f"Shovel {definition.name}"
    parsed = [_parse_uri(side.protocol, uri) for uri in side.uris]
    if side.protocol == "amqp10":
        return Amqp10TransferDestination(parsed, name, side.address or "")
    if side.protocol == "mqtt":
        from penstock.federation.mqtt import MqttTransferDestination  # loads paho

        qos = 0 if definition.mode is AckMode.NO_ACK else 1
        return MqttTransferDestination(parsed, side.topic, qos)
    if side.protocol == "local":
        local = _local_vhost(side.uris, vhost, host)

        def declare() -> None:
            if side.queue is not None:
                _declare_local_queue(local, side)

        return LocalTransferDestination(local, host.alarms, declare)

    async def setup(connection: AmqpClientConnection) -> None:
        if side.queue is not None:
            await ensure_queue(connection, side.queue, side.queue_arguments, side.predeclared)

    return Amqp091TransferDestination(parsed, name, setup)


def _local_vhost(uris: Sequence[str], vhost: VirtualHost, host: FederationHost) -> VirtualHost:
    """`amqp://` is the virtual host of the shovel, `amqp:///NAME` another one."""
    name = unquote(urlsplit(uris[0]).path[1:]) or vhost.name
    found = host.vhosts.get(name)
    if found is None:
        raise NotFound(f"no vhost '{name}'")
    return found


def _declare_local_queue(vhost: VirtualHost, side: ShovelSide) -> Queue:
    assert side.queue is not None
    if side.queue in vhost.queues or side.predeclared:
        return vhost.queue(side.queue)
    return vhost.declare_queue(side.queue, durable=True, arguments=side.queue_arguments)


class LocalQueue:
    """The queue that a local source consumes; for an exchange, one of its own."""

    def __init__(self, vhost: VirtualHost, side: ShovelSide) -> None:
        self._vhost = vhost
        self._side = side
        self._own: str | None = None

    def find(self) -> Queue:
        if self._side.queue is not None:
            return _declare_local_queue(self._vhost, self._side)
        exchange = self._vhost.exchange(self._side.exchange or "")
        queue = self._vhost.declare_queue("", owner=self, exclusive=True)
        self._own = queue.name
        self._vhost.bind(exchange.name, queue, self._side.key or "")
        return queue

    def release(self) -> None:
        if self._own is not None:
            self._vhost.release(self)
            self._own = None


class MessageChange:
    """What a shovel changes in each message: its route, headers and properties.

    The user id is removed: the destination would refuse a message of another user.
    """

    def __init__(self, definition: ShovelDefinition, vhost: str, cluster: str) -> None:
        side = definition.destination
        self._exchange = side.exchange if side.exchange is not None else None
        self._key = side.key
        if side.queue is not None:
            self._exchange, self._key = "", side.queue
        elif side.protocol == "mqtt":
            self._key = None
            if side.topic is not None:
                self._key = topic_to_routing_key(side.topic.encode()).decode()
        self._properties = definition.properties
        self._timestamp = definition.timestamp_header
        self._entry: dict[str, Any] | None = None
        if definition.forward_headers:
            self._entry = {
                "shovelled-by": cluster,
                "shovel-type": "dynamic",
                "shovel-name": definition.name,
                "shovel-vhost": vhost,
                **{key.replace("_", "-"): each for key, each in definition.describe().items()},
            }
        self._rewrites = bool(self._properties or self._timestamp or self._entry)

    def __call__(self, message: TransferMessage) -> TransferMessage:
        route = change_route(message.route, self._exchange, self._key)
        header = message.header
        if self._rewrites or header[13] & USER_ID:
            header = self._change_header(header, len(message.body))
        return TransferMessage(route, header, message.body, message.tag, message.redelivered)

    def _change_header(self, header: bytes, size: int) -> bytes:
        properties = decode_header(header)
        properties.user_id = None
        headers = dict(properties.headers or {})
        if self._entry is not None:
            headers["x-shovelled"] = [self._entry, *(headers.get("x-shovelled") or [])]
        if self._timestamp:
            headers["x-shovelled-timestamp"] = int(time.time())
        if headers:
            properties.headers = headers
        for name, value in self._properties.items():
            setattr(properties, name, value)
        return encode_header(properties, size)


def change_route(route: bytes, exchange: str | None, key: str | None) -> bytes:
    """The route with another exchange, routing key, or both."""
    if exchange is None and key is None:
        return route
    split = route[0] + 1
    first = route[:split] if exchange is None else encode_route(exchange, "")[:-1]
    return first + (route[split:] if key is None else encode_route(key, "")[:-1])


class RunningShovel:
    def __init__(
        self, host: FederationHost, vhost: VirtualHost, definition: ShovelDefinition
    ) -> None:
        self.vhost = vhost
        self.definition = definition
        self._host = host
        self._source: TransferSource | None = None
        self.transfer = RecoveringTransfer(
            f"shovel '{definition.name}' in vhost '{vhost.name}'",
            self._create,
            definition.reconnect_delay,
            self._finished,
        )

    def _create(self) -> MessageTransfer:
        transfer, self._source = open_shovel(self.definition, self.vhost, self._host)
        return transfer

    def _finished(self) -> None:
        """All that it was to move is moved: it deletes itself."""
        self.vhost.set_parameter(SHOVEL, self.definition.name, None)
        self._host.kernel.write_batch.flush()

    async def delete(self) -> None:
        if self._source is not None and hasattr(self._source, "forgotten"):
            self._source.forgotten = True
        await self.transfer.stop()

    def describe(self) -> dict[str, Any]:
        state = self.transfer.state.value
        return {
            "name": self.definition.name,
            "vhost": self.vhost.name,
            "type": "dynamic",
            "state": state,
            "timestamp": f"{self.transfer.since:%Y-%m-%d %H:%M:%S}",
            "messages_moved": self.transfer.moved,
            **self.definition.describe(),
            **({"reason": self.transfer.reason} if state == "terminated" else {}),
        }
