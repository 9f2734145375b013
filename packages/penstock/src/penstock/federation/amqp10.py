"""The sides of a transfer that are AMQP 1.0 peers: one link each, on a connection of its own."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from uuid import uuid4

from penstock.broker.contract import Message
from penstock.client.amqp10.connection import Amqp10ClientConnection
from penstock.client.amqp10.endpoint import (
    Amqp10ConnectionLost,
    Amqp10Endpoint,
    connect_error,
    to_penstock_error,
)
from penstock.client.errors import BrokerUnreachable
from penstock.core.basic_properties import decode_route, encode_route
from penstock.core.errors import PenstockError, ProtocolError
from penstock.federation.transfer import TransferFailed, TransferMessage, TransferOutcome
from penstock.protocols.amqp10.conversion.decoder import convert_incoming
from penstock.protocols.amqp10.conversion.encoder import convert_outgoing
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.links import (
    IncomingDelivery,
    OutgoingDelivery,
    ReceiverLink,
    SenderLink,
)
from penstock.wire.amqp10.message import Amqp10Properties, decode_message, encode_message
from penstock.wire.amqp10.performatives import (
    ACCEPTED,
    MIXED,
    RECEIVER,
    SENDER,
    UNSETTLED,
    Accepted,
    Amqp10Error,
    Attach,
    LinkSource,
    LinkTarget,
    Rejected,
)
from penstock.wire.amqp10.session import Amqp10Session


class _Amqp10Side:
    """The connection of a side, and the events of its link that it does not handle."""

    def __init__(self, endpoints: Sequence[Amqp10Endpoint], name: str, address: str) -> None:
        self.endpoint = random.choice(endpoints)
        self._name = name
        self._address = address
        self._connection: Amqp10ClientConnection | None = None
        self._failed: TransferFailed = lambda _: None
        self._attached: asyncio.Future[None] | None = None

    async def _connect(self, failed: TransferFailed) -> Amqp10Session:
        self._failed = failed
        self._attached = asyncio.get_running_loop().create_future()

        def lost(error: Amqp10ConnectionLost) -> None:
            self._fail(BrokerUnreachable(self.endpoint.host, self.endpoint.port, str(error)))

        container = f"{self._name}-{uuid4().hex[:8]}"
        self._connection = connection = Amqp10ClientConnection(self.endpoint, container, lost)
        try:
            return await connection.connect(None)
        except (PenstockError, OSError, Amqp10ConnectionLost) as error:
            connection.abandon()
            raise connect_error(self.endpoint, error) from error

    def _fail(self, error: PenstockError) -> None:
        if self._attached is not None and not self._attached.done():
            self._attached.set_exception(error)
        else:
            self._failed(error)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        self._failed = lambda _: None
        if connection is not None:
            await connection.close()

    # Events of the link.

    def on_attached(self) -> None:
        if self._attached is not None and not self._attached.done():
            self._attached.set_result(None)

    def on_detached(self, error: Amqp10Error | None) -> None:
        self._fail(to_penstock_error(error, f"{self._address!r} at {self.endpoint}"))

    def on_credit(self) -> None:
        """For senders."""

    def on_payload(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None:
        """For receivers."""

    def on_abort(self, delivery: IncomingDelivery) -> None:
        """For receivers."""

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        """For senders."""


class Amqp10TransferSource(_Amqp10Side):
    backlog: int | None = None

    def __init__(
        self, endpoints: Sequence[Amqp10Endpoint], name: str, address: str, prefetch: int
    ) -> None:
        super().__init__(endpoints, name, address)
        self._prefetch = prefetch
        self._held = 0  # deliveries that are not settled
        self._parts: list[bytes] = []
        self._link: ReceiverLink | None = None

    async def open(
        self, arrived: Callable[[TransferMessage], None], failed: TransferFailed
    ) -> None:
        self._arrived = arrived
        session = await self._connect(failed)
        self._link = link = session.receiver(self._name)
        link.context = self
        link.attach(
            Attach(
                self._name,
                0,
                RECEIVER,
                snd_settle_mode=MIXED,
                source=LinkSource(self._address),
                target=LinkTarget(),
            )
        )
        assert self._attached is not None
        await self._attached
        link.grant(self._prefetch)

    def on_payload(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None:
        self._parts.append(payload)
        if more:
            return
        payload, self._parts = b"".join(self._parts), []
        self._held += 1
        try:
            converted = convert_incoming(payload, time.time())
        except DecodeError as error:
            delivery.settle(Rejected(Amqp10Error("amqp:decode-error", str(error))))
            self._release()
            return
        route = encode_route("", (converted.subject or "")[:255])
        self._arrived(TransferMessage(route, converted.header, converted.body, delivery))

    def on_abort(self, delivery: IncomingDelivery) -> None:
        self._parts = []

    def ack(self, message: TransferMessage) -> None:
        if self._connection is not None:
            message.tag.settle(ACCEPTED)
            self._release()

    def _release(self) -> None:
        self._held -= 1
        assert self._link is not None
        # Not while credit is left: RabbitMQ counts it twice when flows and transfers cross.
        if self._link.credit == 0 and self._held * 2 <= self._prefetch:
            self._link.grant(self._prefetch - self._held)


class Amqp10TransferDestination(_Amqp10Side):
    def __init__(self, endpoints: Sequence[Amqp10Endpoint], name: str, address: str) -> None:
        super().__init__(endpoints, name, address)
        self._link: SenderLink | None = None
        self._waiting: deque[tuple[bytes, TransferOutcome]] = deque()
        self._unsettled: dict[OutgoingDelivery, TransferOutcome] = {}
        self._flow = asyncio.Event()

    @property
    def flowing(self) -> bool:
        return not self._waiting

    async def open(self, failed: TransferFailed) -> None:
        session = await self._connect(failed)
        self._link = link = session.sender(self._name)
        link.context = self
        link.attach(
            Attach(
                self._name,
                0,
                SENDER,
                snd_settle_mode=UNSETTLED,
                source=LinkSource(),
                target=LinkTarget(self._address),
                initial_delivery_count=0,
            )
        )
        assert self._attached is not None
        await self._attached

    async def flow(self) -> None:
        self._flow.clear()
        await self._flow.wait()

    def _fail(self, error: PenstockError) -> None:
        super()._fail(error)
        self._waiting.clear()
        self._flow.set()

    def send(self, message: TransferMessage, outcome: TransferOutcome) -> None:
        self._waiting.append((_encode(message), outcome))
        self.on_credit()

    def on_credit(self) -> None:
        link = self._link
        if link is None or not link.live:
            return
        while self._waiting and link.credit > 0 and not link.session.waits:
            payload, outcome = self._waiting.popleft()
            delivery = link.new(False)
            self._unsettled[delivery] = outcome
            link.send(delivery, payload)
        if not self._waiting:
            self._flow.set()

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        outcome = self._unsettled.pop(delivery, None)
        if outcome is None:
            return
        match delivery.state:
            case None | Accepted():
                outcome(None)
            case Rejected(error):
                outcome(to_penstock_error(error, f"{self._address!r} refused the message"))
            case _:
                outcome(ProtocolError(f"{self._address!r} released the message: no queue takes it"))


def _encode(message: TransferMessage) -> bytes:
    """The message with its routing key as subject, unless it has one."""
    canonical = Message(message.route, message.header, message.body)
    before, after = convert_outgoing(canonical)
    payload = before + message.body + after
    key = decode_route(message.route)[1]
    if not key:
        return payload
    decoded = decode_message(payload)
    properties = decoded.properties or Amqp10Properties()
    if properties.subject is not None:
        return payload
    properties.subject = key
    decoded.properties = properties
    return encode_message(decoded)
