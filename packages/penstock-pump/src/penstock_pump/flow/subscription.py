"""Posts from a broker: what to bind to, and what comes of it.

A queue has a name that lasts, so that what is announced while we are away waits, and that several
instances share it. It is bound to each exchange by the topics that are asked for. Over AMQP 0-9-1
that is `queue.py`; here is the way over the client's patterns, for MQTT and AMQP 1.0.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from penstock.client import Fabric, ReceivedMessage
from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import (
    AmqpClientConnection,
    AmqpRecoveringConnection,
    connect,
)
from penstock.core.basic_properties import decode_header
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

MQTT_SCHEMES: Final = ("mqtt", "mqtts", "ws", "wss")
AMQP091_SCHEMES: Final = ("amqp", "amqps")


@dataclass(frozen=True, slots=True)
class PumpBinding:
    exchange: str
    prefix: str = "v02.post"
    subtopic: str = "#"

    @property
    def key(self) -> str:
        return f"{self.prefix}.{self.subtopic}"


class PumpDelivery(Protocol):
    """A message, and the word that it is done with."""

    @property
    def pump_message(self) -> PumpMessage: ...

    async def ack(self) -> None: ...


class PumpSubscription(Protocol):
    """Receives across reconnects."""

    async def open(self) -> None:
        """From here on what is announced arrives."""

    async def receive(self) -> Sequence[PumpDelivery]:
        """All that has come, one at least; may be given up (cancelled) at any time."""

    async def queued(self) -> int | None:
        """How many messages wait at the broker, where it tells."""

    async def close(self) -> None: ...


def is_mqtt_url(url: str) -> bool:
    return urlsplit(url).scheme in MQTT_SCHEMES


def is_amqp091_url(url: str) -> bool:
    return urlsplit(url).scheme in AMQP091_SCHEMES


@dataclass(frozen=True, slots=True)
class ClientDelivery:
    """Keeps `PumpDelivery`."""

    pump_message: PumpMessage
    message: ReceivedMessage

    async def ack(self) -> None:
        await self.message.ack()


class ClientSubscription:
    """Keeps `PumpSubscription`: one session of the client's, or a share of it where several
    instances
    run."""

    def __init__(
        self, fabric: Fabric, url: str, bindings: Sequence[PumpBinding], queue: str, prefetch: int
    ) -> None:
        if is_mqtt_url(url):
            filters = [mqtt_filter(each.exchange, each.prefix, each.subtopic) for each in bindings]
            self._inflow = fabric.subscribe(*filters, name=queue, prefetch=prefetch)
        else:
            exchanges = {each.exchange for each in bindings}
            if len(exchanges) > 1:
                raise ConfigurationError("several exchanges can be heard over amqp:// and MQTT")
            keys = [each.key for each in bindings]
            self._inflow = fabric.subscribe(
                *keys, name=queue, exchange=exchanges.pop(), prefetch=prefetch
            )

    async def open(self) -> None:
        await self._inflow.open()

    async def receive(self) -> Sequence[PumpDelivery]:
        message = await self._inflow.receive()
        return [ClientDelivery(received_message(message), message)]

    async def queued(self) -> int | None:
        return None

    async def close(self) -> None:
        await self._inflow.close()


# A queue of AMQP 0-9-1 as posts come out of it: by the hundred, across reconnects.
#
# All that one read of the socket brings is handed on together. When the connection breaks, what has
# come and was not handed on is dropped, for it comes again; acknowledgements of what came over it
# go nowhere, which is what was promised.

log = get_logger(__name__)

_CONSUMER_TAG: Final = "pump"


@dataclass(frozen=True, slots=True)
class QueueDelivery:
    """Keeps `PumpDelivery`."""

    pump_message: PumpMessage
    tag: int
    ack_batcher: AckBatcher

    async def ack(self) -> None:
        self.ack_batcher.done(self.tag)


class QueueSubscription:
    """Keeps `Hearing`."""

    def __init__(
        self,
        url: str,
        bindings: Sequence[PumpBinding],
        name: str,
        prefetch: int,
        *,
        expire: float | None = None,
        retry_seconds: float = 0.0,
    ) -> None:
        self._bindings = bindings
        self._name = name
        self._prefetch = prefetch
        self._expire = expire
        self._link = AmqpRecoveringConnection(
            parse_amqp_url(url), "pump", self._prepare, retry_seconds=retry_seconds
        )
        self._come: list[PumpDelivery] = []
        self._news = asyncio.Event()

    async def open(self) -> None:
        await self._link.open()
        assert self._link.failed is not None
        self._link.failed.add_done_callback(lambda _: self._news.set())

    async def receive(self) -> Sequence[PumpDelivery]:
        while not self._come:
            self._news.clear()
            if self._link.failed is not None and self._link.failed.done():
                raise self._link.failed.result()
            await self._news.wait()
        come, self._come = self._come, []
        return come

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
        await declare_queue(connection, self._name, self._expire)
        channel = await connection.channel()
        for each in self._bindings:
            await channel.bind(self._name, each.exchange, each.key)
        await channel.prefetch(self._prefetch)
        self._listen(connection, channel)
        await channel.consume(self._name, _CONSUMER_TAG)

    def _listen(self, connection: AmqpClientConnection, channel: AmqpClientChannel) -> None:
        ack_batcher = AckBatcher(channel)

        def came(contents: list[AmqpContent]) -> None:
            for content in contents:
                ack_batcher.took(content.tag)
                try:
                    headers = decode_header(content.header).headers or {}
                except WireSyntaxError as error:
                    log.warning("not a post", topic=content.key, reason=str(error))
                    ack_batcher.done(content.tag)
                    continue
                pump_message = PumpMessage(content.key, content.body, headers, content.redelivered)
                self._come.append(QueueDelivery(pump_message, content.tag, ack_batcher))
            self._news.set()

        def ended(error: PenstockError) -> None:
            self._come.clear()
            if not connection.lost.done():
                # A channel alone is not mended: as when an acknowledgement took longer than the
                # broker waits, or the queue was deleted.
                log.warning("the broker has ended the channel", reason=str(error))
                connection.abandon()

        channel.on_deliveries = came
        channel.on_closed = ended
        channel.on_cancelled = lambda _: connection.abandon()


# Acknowledgements of one channel: a word for all that are done up to one, as often as can be.
#
# Posts are done in about the order in which they came, and many in one turn of the loop. What is
# done while an earlier one is not is acknowledged by itself, so that nothing waits for what takes
# long.


class AckChannel(Protocol):
    """A channel, as it is seen from here."""

    def ack(self, tag: int, *, multiple: bool = False) -> None: ...


class AckBatcher:
    def __init__(self, channel: AckChannel) -> None:
        self._channel = channel
        self._open: dict[int, None] = {}  #: tags in order
        self._done: set[int] = set()  #: in this turn

    def took(self, tag: int) -> None:
        self._open[tag] = None

    def done(self, tag: int) -> None:
        """Told at the end of the loop's turn, with all others that are."""
        if not self._done:
            asyncio.get_running_loop().call_soon(self._tell)
        self._done.add(tag)

    def _tell(self) -> None:
        done, self._done = self._done, set()
        row: list[int] = []
        for tag in self._open:
            if tag not in done:
                break
            row.append(tag)
        if row:
            self._channel.ack(row[-1], multiple=True)
        for tag in sorted(done.difference(row)):
            self._channel.ack(tag)
        for tag in done:
            self._open.pop(tag, None)


# What a configuration has bound its queue to, so that what it no longer asks for is unbound.
#
# A broker keeps the bindings of a queue. Were they only added to, a `subtopic` that was taken out
# of a configuration would go on bringing its posts. What was bound is written down before it is,
# and what is not asked for any more leaves the file when the broker has unbound it: killed in
# between, the next start does it. Bindings that others have made to the queue stay. As sr3 does it;
# over AMQP 0-9-1, for the other protocols cannot be asked to.

#: An exchange and a key.
BindingKey = tuple[str, str]


class BindingFile:
    """Of one queue at one broker; what is written of another is forgotten."""

    def __init__(self, path: Path, broker: str, queue: str) -> None:
        self._path = path
        self._place = {"broker": broker, "queue": queue}

    def read(self) -> set[BindingKey]:
        try:
            found = json.loads(self._path.read_text())
            if any(found[name] != value for name, value in self._place.items()):
                return set()
            return {(exchange, key) for exchange, key in found["bindings"]}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return set()

    def write(self, bound: Iterable[BindingKey]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        draft.write_text(json.dumps({**self._place, "bindings": sorted(bound)}) + "\n")
        draft.replace(self._path)


def binding_keys(bindings: Iterable[PumpBinding]) -> set[BindingKey]:
    return {(each.exchange, each.key) for each in bindings}


async def unbind(url: str, queue: str, former: Collection[BindingKey]) -> set[BindingKey]:
    """Those that are left: the broker would not, or could not be asked."""
    left = set(former)
    try:
        connection = await connect(parse_amqp_url(url), "pump unbinding")
    except PenstockError as error:
        log.warning("what was bound before stays so", queue=queue, reason=str(error))
        return left
    try:
        for exchange, key in sorted(former):
            channel = await connection.channel()  # a refusal ends it
            try:
                await channel.unbind(queue, exchange, key)
                await channel.close()
            except NotFound:
                log.debug("its exchange is gone", exchange=exchange)
            except PenstockError as error:
                log.warning("not unbound", queue=queue, exchange=exchange, reason=str(error))
                continue
            left.discard((exchange, key))
            log.info("unbound", queue=queue, exchange=exchange, topic=key)
    finally:
        await connection.close()
    return left


# What is declared at a broker of AMQP 0-9-1: exchanges of posts and queues of those who hear them.
#
# What is there already, and otherwise than we would have made it, is taken as it is; so is what we
# may not declare. A refusal ends a channel, so each is asked for on one of its own.


async def declare_exchange(connection: AmqpClientConnection, name: str) -> None:
    """A topic exchange that lasts. Those named `amq.` are always there."""
    if name.startswith("amq."):
        return
    channel = await connection.channel()
    try:
        await channel.declare_exchange(name, "topic")
    except (AccessRefused, PreconditionFailed):
        return
    await channel.close()


async def declare_queue(
    connection: AmqpClientConnection, name: str, expire: float | None = None
) -> None:
    """A queue that lasts, or that goes when nobody has heard it for so many seconds."""
    arguments = {} if expire is None else {"x-expires": max(1, round(expire * 1000))}
    channel = await connection.channel()
    try:
        await channel.declare_queue(name, arguments=arguments)
    except (AccessRefused, PreconditionFailed):
        return
    await channel.close()
