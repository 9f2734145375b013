"""Consuming across reconnects.

A consumer attaches a link to its source on each connection. Link credit limits the messages that
wait in its buffer, or are unsettled, to the prefetch. After a lost connection, the broker delivers
the messages of a queue again, so the buffer is cleared. Messages of other sources are not delivered
again, so they stay in the buffer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol
from urllib.parse import quote
from uuid import uuid4

from penstock.client.amqp10.connection import Amqp10RecoveringConnection
from penstock.client.amqp10.endpoint import to_penstock_error
from penstock.client.amqp10.message import STREAM_OFFSET as OFFSET
from penstock.client.amqp10.message import Amqp10Delivery, read_message
from penstock.client.amqp10.publisher import Amqp10ReplySender
from penstock.client.errors import FabricClosed
from penstock.client.fabric import StreamStart
from penstock.client.message import ReceivedMessage
from penstock.client.receiver import DeliveryBuffer
from penstock.core.errors import PenstockError
from penstock.wire.amqp10 import message as wire
from penstock.wire.amqp10 import performatives
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.links import IncomingDelivery, OutgoingDelivery, ReceiverLink
from penstock.wire.amqp10.message import Amqp10Message
from penstock.wire.amqp10.performatives import (
    MIXED,
    RECEIVER,
    SETTLED,
    Amqp10Error,
    Attach,
    DeliveryState,
    LinkTarget,
    Rejected,
)
from penstock.wire.amqp10.session import Amqp10Session
from penstock.wire.amqp10.values import Described, Symbol, Timestamp, ULong


class Amqp10Consumer:
    """Implements `penstock.client.receiver.RecoveringConsumer`."""

    def __init__(
        self,
        connection: Amqp10RecoveringConnection,
        source: Amqp10Source,
        replies: Amqp10ReplySender,
    ) -> None:
        self._connection = connection
        self._source = source
        self._replies = replies
        self._arrivals: DeliveryBuffer[tuple[wire.Amqp10Message, IncomingDelivery]] = (
            DeliveryBuffer()
        )
        self._parts: list[bytes] = []  #: of an incomplete message
        self._held_back = 0  #: messages that count towards the prefetch
        self._link: ReceiverLink | None = None
        self._attached = asyncio.Event()
        self._joining: asyncio.Task[None] | None = None

    async def open(self) -> None:
        if self._joining is None:
            self._joining = asyncio.create_task(self._join())
        await self._attached.wait()
        self._arrivals.check()

    @property
    def address(self) -> str:
        """The address of a dynamic node."""
        remote = None if self._link is None else self._link.remote
        return "" if remote is None or remote.source is None else str(remote.source.address)

    async def receive(self) -> ReceivedMessage:
        message, delivery = await self.take()
        return read_message(message, Amqp10Delivery(message, delivery, self._settle, self._replies))

    async def take(self) -> tuple[wire.Amqp10Message, IncomingDelivery | None]:
        """The next message, and its delivery if it has to be settled."""
        if self._joining is None:
            await self.open()
        message, delivery = await self._arrivals.take()
        if self._source.redelivers:
            return message, delivery
        self._release(delivery)
        return message, None

    async def close(self) -> None:
        self.failed(FabricClosed("the fabric was closed"))
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
        self._connection.leave(self)
        self._arrivals.clear()
        link, self._link = self._link, None
        if link is not None:
            link.context = None
            link.detach(closed=not self._source.durable)
            await self._connection.wait_detached(link)

    # Events of the connection.

    def resume(self, session: Amqp10Session) -> None:
        source = self._source.terminus()
        if source.address is not None:
            source = replace(source, address=self._connection.queue_address(str(source.address)))
        self._link = link = session.receiver(self._source.name)
        link.context = self
        self._held_back = len(self._arrivals)
        link.attach(
            Attach(
                self._source.name,
                0,
                RECEIVER,
                snd_settle_mode=MIXED if self._source.redelivers else SETTLED,
                source=source,
                target=LinkTarget(),
            )
        )

    def paused(self) -> None:
        self._link = None
        self._attached.clear()
        self._parts = []
        if self._source.redelivers:
            self._arrivals.clear()

    def failed(self, error: PenstockError) -> None:
        self._arrivals.fail(error)
        self._attached.set()

    # Events of the link.

    def on_attached(self) -> None:
        self._grant()
        self._attached.set()

    def on_detached(self, error: Amqp10Error | None) -> None:
        """Refused, or ended because its queue was deleted, say: then attach again."""
        link, refused = self._link, not self._attached.is_set()
        self.paused()
        if refused or link is None:
            self.failed(
                to_penstock_error(error, f"cannot receive from {self._source.terminus().address!r}")
            )
        else:
            self.resume(link.session)

    def on_payload(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None:
        if more or self._parts:
            self._parts.append(payload)
            if more:
                return
            payload = b"".join(self._parts)
            self._parts = []
        self._held_back += 1
        try:
            message = wire.decode_message(payload)
        except DecodeError as error:
            self._settle(delivery, Rejected(Amqp10Error("amqp:decode-error", str(error))))
            return
        if self._source.admit(message):
            self._arrivals.put((message, delivery))
        else:
            self._release(delivery)

    def on_abort(self, delivery: IncomingDelivery) -> None:
        self._parts = []

    def on_credit(self) -> None:
        """For senders only."""

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        """For senders only."""

    # Credit.

    def _settle(self, delivery: IncomingDelivery, state: DeliveryState) -> None:
        if self._link is not None and delivery.link is self._link:
            delivery.settle(state)
            self._release(delivery)

    def _release(self, delivery: IncomingDelivery) -> None:
        """One message fewer counts towards the prefetch."""
        if self._link is None or delivery.link is not self._link:
            return
        self._held_back -= 1
        # Not while credit is left: RabbitMQ counts it twice when flows and transfers cross.
        if self._link.credit == 0 and self._held_back * 2 <= self._source.prefetch:
            self._grant()

    def _grant(self) -> None:
        assert self._link is not None
        self._link.grant(max(0, self._source.prefetch - self._held_back))

    async def _join(self) -> None:
        try:
            await self._connection.join(self)
        except PenstockError as error:
            self.failed(error)


STREAM_OFFSET_FILTER: Final = Symbol("rabbitmq:stream-offset-spec")
#: The keys of a subscription to a topic exchange, as Qpid's brokers take them.
TOPIC_BINDING_FILTER: Final = Symbol("apache.org:legacy-amqp-topic-binding:string")


class Amqp10Source(Protocol):
    """What a consumer attaches to, on every new connection.

    A source that `redelivers` delivers unsettled messages again: the program settles them. From
    another source, messages arrive settled, and only credit limits them.
    """

    name: str  #: of the link
    prefetch: int
    redelivers: bool
    durable: bool  #: the broker keeps it when the link is detached

    def terminus(self) -> performatives.LinkSource: ...

    def admit(self, message: Amqp10Message) -> bool:
        """Whether the program receives this message."""


def queue_address(name: str) -> str:
    return f"/queue/{quote(name, safe='')}"


class Amqp10NodeSource:
    """A queue, or a dynamic node."""

    durable = False

    def __init__(
        self,
        name: str,
        prefetch: int,
        terminus: performatives.LinkSource,
        *,
        redelivers: bool = True,
    ) -> None:
        self.name = f"{name}-{uuid4().hex[:8]}"
        self.prefetch = prefetch
        self.redelivers = redelivers
        self._terminus = terminus

    def terminus(self) -> performatives.LinkSource:
        return self._terminus

    def admit(self, message: Amqp10Message) -> bool:
        return True


class Amqp10SubscriptionSource:
    """Publish/subscribe: copies of the messages that match.

    With a name the subscription is durable and shared, as in JMS.
    """

    def __init__(
        self, patterns: Sequence[str], exchange: str, name: str | None, prefetch: int
    ) -> None:
        self.prefetch = prefetch
        self.redelivers = self.durable = name is not None
        self.name = name or f"subscription-{uuid4().hex[:8]}"
        self._patterns = patterns
        self._exchange = exchange

    def terminus(self) -> performatives.LinkSource:
        address = f"/exchange/{quote(self._exchange, safe='')}"
        source = performatives.LinkSource(address)
        if len(self._patterns) == 1:
            source.address += f"/{quote(self._patterns[0], safe='#*')}"
        else:
            keys = list(self._patterns)
            source.filter = {TOPIC_BINDING_FILTER: Described(TOPIC_BINDING_FILTER, keys)}
        if self.durable:
            source.durable = performatives.UNSETTLED_STATE
            source.expiry_policy = performatives.NEVER
            source.capabilities = ("shared", "global")
        return source

    def admit(self, message: Amqp10Message) -> bool:
        return True


class Amqp10StreamSource:
    """A stream from an offset; after a reconnect, from the message after the last one received."""

    redelivers = False
    durable = False

    def __init__(self, stream: str, start: StreamStart, prefetch: int) -> None:
        self.name = f"{stream}-{uuid4().hex[:8]}"
        self.prefetch = prefetch
        self._stream = stream
        self._start = _offset(start)
        self._last = -1

    def terminus(self) -> performatives.LinkSource:
        begin = self._start if self._last < 0 else ULong(self._last + 1)
        if self._start == "next":
            # After a reconnect, "next" would skip what was appended in between.
            self._start = _offset(datetime.now(UTC))
        return performatives.LinkSource(
            f"/stream/{quote(self._stream, safe='')}",
            filter={STREAM_OFFSET_FILTER: Described(STREAM_OFFSET_FILTER, begin)},
        )

    def admit(self, message: Amqp10Message) -> bool:
        offset = (message.message_annotations or {}).get(OFFSET)
        if not isinstance(offset, int) or offset <= self._last:
            return False
        self._last = int(offset)
        return True


def _offset(start: StreamStart) -> Any:
    match start:
        case timedelta():
            return f"{round(start.total_seconds())}s"
        case datetime():
            return Timestamp(int(start.timestamp() * 1000))
        case int():
            return ULong(start)
    return start
