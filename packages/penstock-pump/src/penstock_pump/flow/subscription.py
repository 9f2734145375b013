"""Subscriptions to posts, and the exchanges, queues and bindings they need.

A queue has a lasting name: it collects posts while the component is down, and several instances
share it. It is bound to each exchange by the wanted topics. `QueueSubscription` reads a queue over
AMQP 0-9-1 with the bulk client; `ClientSubscription` serves MQTT and AMQP 1.0.

An exchange or queue that exists with other properties, or that the user may not declare, is used as
it is. The broker closes the channel on such a refusal, so each declaration has its own channel.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from penstock.client import Fabric, ReceivedMessage
from penstock.client.amqp091.channel import (
    AckChannel,
    AmqpClientChannel,
    acknowledge_all,
)
from penstock.client.amqp091.connection import (
    AmqpClientConnection,
    AmqpRecoveringConnection,
    connect,
)
from penstock.client.url import BrokerProtocol, protocol_of
from penstock.core.basic_properties import decode_header, decode_route
from penstock.core.errors import (
    AccessRefused,
    ConfigurationError,
    NotFound,
    PenstockError,
    PreconditionFailed,
    WireSyntaxError,
)
from penstock.core.logs import get_logger
from penstock.wire.amqp091.address import parse_amqp_url
from penstock.wire.amqp091.content import AmqpContent
from penstock_pump.flow.message import PumpMessage, received_message
from penstock_pump.posts.topics import mqtt_filter

log = get_logger(__name__)

_CONSUMER_TAG: Final = "pump"
#: An exchange and a key.
BindingKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PumpBinding:
    exchange: str
    prefix: str = "v02.post"
    subtopic: str = "#"

    @property
    def key(self) -> str:
        return f"{self.prefix}.{self.subtopic}" if self.prefix else self.subtopic


class PumpDelivery(Protocol):
    @property
    def pump_message(self) -> PumpMessage: ...

    async def ack(self) -> None: ...


class PumpSubscription(Protocol):
    """Receives across reconnects."""

    async def open(self) -> None:
        """Returns when posts published from now on are received."""

    async def receive(self) -> Sequence[PumpDelivery]:
        """All received messages, at least one; may be cancelled at any time."""

    async def queued(self) -> int | None:
        """How many messages wait at the broker; None where the protocol cannot tell."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ClientDelivery:
    pump_message: PumpMessage
    message: ReceivedMessage

    async def ack(self) -> None:
        await self.message.ack()


class ClientSubscription:
    """One session of the client, or a share of it where several instances run."""

    def __init__(
        self,
        fabric: Fabric,
        url: str,
        bindings: Sequence[PumpBinding],
        queue: str,
        prefetch: int,
        *,
        share: str | None = None,
    ) -> None:
        if not bindings:
            raise ConfigurationError("bind_queue off needs amqp://: other queues bind themselves")
        self._mqtt = protocol_of(url) is BrokerProtocol.MQTT
        if self._mqtt:
            group = f"$share/{share}/" if share else ""
            filters = [
                group + mqtt_filter(each.exchange, each.prefix, each.subtopic) for each in bindings
            ]
            self._receiver = fabric.subscribe(*filters, name=queue, prefetch=prefetch)
        else:
            exchanges = {each.exchange for each in bindings}
            if len(exchanges) > 1:
                raise ConfigurationError("several exchanges need amqp:// or mqtt://")
            keys = [each.key for each in bindings]
            self._receiver = fabric.subscribe(
                *keys, name=queue, exchange=exchanges.pop(), prefetch=prefetch
            )

    async def open(self) -> None:
        await self._receiver.open()

    async def receive(self) -> Sequence[PumpDelivery]:
        message = await self._receiver.receive()
        return [ClientDelivery(received_message(message, mqtt=self._mqtt), message)]

    async def queued(self) -> int | None:
        return None

    async def close(self) -> None:
        await self._receiver.close()


@dataclass(frozen=True, slots=True)
class QueueDelivery:
    pump_message: PumpMessage
    tag: int
    ack_batcher: AckBatcher

    async def ack(self) -> None:
        self.ack_batcher.ack(self.tag)


class QueueSubscription:
    """All messages of one read of the socket are returned together. When the connection is lost,
    messages that were not returned are dropped, because the broker redelivers them, and
    acknowledgements of its messages are ignored."""

    def __init__(
        self,
        url: str,
        bindings: Sequence[PumpBinding],
        name: str,
        prefetch: int,
        *,
        expire: float | None = None,
        arguments: Mapping[str, Any] | None = None,
        retry_seconds: float = 0.0,
    ) -> None:
        self._arguments = arguments
        self._bindings = bindings
        self._name = name
        self._prefetch = prefetch
        self._expire = expire
        self._link = AmqpRecoveringConnection(
            parse_amqp_url(url), "pump", self._prepare, retry_seconds=retry_seconds
        )
        self._received: list[PumpDelivery] = []
        self._changed = asyncio.Event()

    async def open(self) -> None:
        await self._link.open()
        assert self._link.failed is not None
        self._link.failed.add_done_callback(lambda _: self._changed.set())

    async def receive(self) -> Sequence[PumpDelivery]:
        while not self._received:
            self._changed.clear()
            if self._link.failed is not None and self._link.failed.done():
                raise self._link.failed.result()
            await self._changed.wait()
        received, self._received = self._received, []
        return received

    async def queued(self) -> int | None:
        channel = await (await self._link.connection()).channel()
        count: int = (await channel.declare_queue(self._name, passive=True)).message_count
        await channel.close()
        return count

    async def close(self) -> None:
        await self._link.close()

    async def _prepare(self, connection: AmqpClientConnection) -> None:
        for exchange in dict.fromkeys(each.exchange for each in self._bindings):
            await declare_exchange(connection, exchange)
        await declare_queue(connection, self._name, self._expire, self._arguments)
        channel = await connection.channel()
        for each in self._bindings:
            await channel.bind(self._name, each.exchange, each.key)
        await channel.prefetch(self._prefetch)
        self._attach(connection, channel)
        await channel.consume(self._name, _CONSUMER_TAG)

    def _attach(self, connection: AmqpClientConnection, channel: AmqpClientChannel) -> None:
        ack_batcher = AckBatcher(channel)

        def on_deliveries(contents: list[AmqpContent]) -> None:
            for content in contents:
                ack_batcher.add(content.tag)
                try:
                    headers = decode_header(content.header).headers or {}
                except WireSyntaxError as error:
                    log.warning("invalid post", topic=content.key, reason=str(error))
                    ack_batcher.ack(content.tag)
                    continue
                exchange, key = decode_route(content.route)
                pump_message = PumpMessage(
                    key, content.body, headers, content.redelivered, exchange
                )
                self._received.append(QueueDelivery(pump_message, content.tag, ack_batcher))
            self._changed.set()

        def on_closed(error: PenstockError) -> None:
            self._received.clear()
            if not connection.lost.done():
                # Only connections recover. A channel alone is closed when an acknowledgement
                # exceeded the broker's consumer timeout, or when the queue was deleted.
                log.warning("channel closed by broker", reason=str(error))
                connection.abandon()

        channel.on_deliveries = on_deliveries
        channel.on_closed = on_closed
        channel.on_cancelled = lambda _: connection.abandon()


class MergedSubscription:
    """Several subscriptions as one, of other queues or brokers. They are already open."""

    def __init__(self, subscriptions: Sequence[PumpSubscription]) -> None:
        self._subscriptions = tuple(subscriptions)
        self._receiving: dict[asyncio.Task[Sequence[PumpDelivery]], PumpSubscription] = {}

    async def open(self) -> None:
        """Each was opened by itself."""

    async def receive(self) -> Sequence[PumpDelivery]:
        """What a cancelled call has received is returned by the next one."""
        for each in self._subscriptions:
            if each not in self._receiving.values():
                self._receiving[asyncio.create_task(_receive(each))] = each
        done, _ = await asyncio.wait(self._receiving, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            del self._receiving[task]
        return [delivery for task in done for delivery in task.result()]

    async def queued(self) -> int | None:
        found = [await each.queued() for each in self._subscriptions]
        known = [count for count in found if count is not None]
        return sum(known) if known else None

    async def close(self) -> None:
        """The subscriptions are closed by who opened them."""
        for task in self._receiving:
            task.cancel()
        await asyncio.gather(*self._receiving, return_exceptions=True)


async def _receive(subscription: PumpSubscription) -> Sequence[PumpDelivery]:
    return await subscription.receive()


class AckBatcher:
    """Acknowledgements of one channel, sent at the end of the loop's pass. None waits for a slow
    delivery before it."""

    def __init__(self, channel: AckChannel) -> None:
        self._channel = channel
        self._unacked: dict[int, None] = {}  #: tags in order
        self._done: set[int] = set()  #: in this pass

    def add(self, tag: int) -> None:
        self._unacked[tag] = None

    def ack(self, tag: int) -> None:
        if not self._done:
            asyncio.get_running_loop().call_soon(self._flush)
        self._done.add(tag)

    def _flush(self) -> None:
        done, self._done = self._done, set()
        acknowledge_all(self._channel, self._unacked, done)


class BindingFile:
    """The bindings that a configuration made for its queue, on disk.

    A `subtopic` that was removed from a configuration must be unbound, or its posts keep coming.
    Bindings are written down before they are made, and removed from the file once the broker has
    unbound them, so a killed component unbinds them at its next start. Bindings that others made
    are not touched. sr3 does the same. Only AMQP 0-9-1 can unbind.
    """

    def __init__(self, path: Path, broker: str, queue: str) -> None:
        self._path = path
        self._owner = {"broker": broker, "queue": queue}

    def read(self) -> set[BindingKey]:
        """Nothing where the file is about another broker or queue."""
        try:
            stored = json.loads(self._path.read_text())
            if any(stored[name] != value for name, value in self._owner.items()):
                return set()
            return {(exchange, key) for exchange, key in stored["bindings"]}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return set()

    def write(self, bound: Iterable[BindingKey]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        temporary.write_text(json.dumps({**self._owner, "bindings": sorted(bound)}) + "\n")
        temporary.replace(self._path)


def binding_keys(bindings: Iterable[PumpBinding]) -> set[BindingKey]:
    return {(each.exchange, each.key) for each in bindings}


async def delete_queue(url: str, queue: str) -> bool:
    """False if there is no such queue."""
    connection = await connect(parse_amqp_url(url), "pump cleanup")
    try:
        channel = await connection.channel()
        await channel.delete_queue(queue)
    except NotFound:
        return False
    finally:
        await connection.close()
    return True


async def unbind(url: str, queue: str, former: Collection[BindingKey]) -> set[BindingKey]:
    """Returns the bindings that could not be removed."""
    left = set(former)
    try:
        connection = await connect(parse_amqp_url(url), "pump unbinding")
    except PenstockError as error:
        log.warning("unbind skipped, broker unreachable", queue=queue, reason=str(error))
        return left
    try:
        for exchange, key in sorted(former):
            channel = await connection.channel()  # a refusal closes it
            try:
                await channel.unbind(queue, exchange, key)
                await channel.close()
            except NotFound:
                log.debug("exchange not found", exchange=exchange)
            except PenstockError as error:
                log.warning("unbind failed", queue=queue, exchange=exchange, reason=str(error))
                continue
            left.discard((exchange, key))
            log.info("unbound", queue=queue, exchange=exchange, topic=key)
    finally:
        await connection.close()
    return left


async def declare_exchange(connection: AmqpClientConnection, name: str) -> None:
    """A durable topic exchange. Those named `amq.` always exist."""
    if name.startswith("amq."):
        return
    channel = await connection.channel()
    try:
        await channel.declare_exchange(name, "topic")
    except (AccessRefused, PreconditionFailed):
        return
    await channel.close()


async def declare_queue(
    connection: AmqpClientConnection,
    name: str,
    expire: float | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> None:
    """A durable queue; with `expire` the broker deletes it after so many seconds without use."""
    all_arguments = dict(arguments or {})
    if expire is not None:
        all_arguments["x-expires"] = max(1, round(expire * 1000))
    channel = await connection.channel()
    try:
        await channel.declare_queue(name, arguments=all_arguments)
    except (AccessRefused, PreconditionFailed):
        return
    await channel.close()
