"""A client of AMQP 1.0 for tests, on the engine itself: it does what it is told and notes the rest.

`Peer` speaks over a socket to a broker in the same process. Whoever waits for something waits for
the peer to have heard it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from penstock.wire.amqp10.connection import Amqp10Connection
from penstock.wire.amqp10.links import (
    IncomingDelivery,
    LinkEndpoint,
    OutgoingDelivery,
    ReceiverLink,
    SenderLink,
)
from penstock.wire.amqp10.message import Amqp10Message, decode_message, encode_message
from penstock.wire.amqp10.performatives import (
    ACCEPTED,
    FIRST,
    MIXED,
    Amqp10Error,
    Attach,
    DeliveryState,
    LinkSource,
    LinkTarget,
    Open,
)
from penstock.wire.amqp10.sasl import PLAIN, SaslClient, encode_plain_response
from penstock.wire.amqp10.session import Amqp10Session

PATIENCE = 60.0


class Peer:
    def __init__(self, container: str = "peer", frame_max: int = 65536) -> None:
        self.connection = Amqp10Connection(self, container, frame_max=frame_max, channel_max=255)
        self.changed = asyncio.Event()
        self.ready = False
        self.remote: Open | None = None
        self.closed: Amqp10Error | None = None
        self.gone = False
        self.begun: list[Amqp10Session] = []
        self.ended: list[tuple[Amqp10Session, Amqp10Error | None]] = []
        self.attached: list[LinkEndpoint] = []
        self.detached: dict[LinkEndpoint, Amqp10Error | None] = {}
        self.outcomes: dict[OutgoingDelivery, DeliveryState | None] = {}
        self.received: list[tuple[IncomingDelivery, bytes]] = []
        self.transfers = 0
        self.drained: list[ReceiverLink] = []
        self._parts: dict[IncomingDelivery, list[bytes]] = {}
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._task: asyncio.Task[None]

    # Life.

    async def connect(
        self,
        port: int,
        *,
        user: str = "guest",
        password: str = "guest",
        mechanism: str = PLAIN,
        tls: ssl.SSLContext | None = None,
        **said: Any,
    ) -> Peer:
        await self.dial(port, tls)
        response = encode_plain_response(user, password) if mechanism == PLAIN else b""
        opening = SaslClient(self.connection, mechanism, response, None, lambda: self._open(said))
        self.connection.opening = opening
        opening.begin()
        self.flush()
        await self.until(lambda: self.remote is not None)
        return self

    async def dial(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        self._task = asyncio.create_task(self._listen())

    def _open(self, said: dict[str, Any]) -> None:
        self.ready = True
        self.connection.open(**said)

    async def _listen(self) -> None:
        try:
            while data := await self._reader.read(65536):
                self.connection.receive(data)
                self.flush()
                self.changed.set()
        except ConnectionError:
            pass
        finally:
            self.gone = True
            self.changed.set()

    def flush(self) -> None:
        if self.connection.out:
            self._writer.write(b"".join(self.connection.out))
            self.connection.out.clear()
            self.connection.out_bytes = 0

    def write(self, data: bytes) -> None:
        """Bytes that the engine would not write."""
        self._writer.write(data)

    def pause(self) -> None:
        """Read nothing, until `resume`."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def resume(self) -> None:
        self._writer.transport.resume_reading()  # type: ignore[attr-defined]

    async def close(self) -> None:
        """Politely."""
        self.connection.close()
        self.flush()
        await self.until(lambda: self.gone)
        await self.hang_up()

    async def hang_up(self) -> None:
        """Not so politely."""
        self._writer.close()
        await self._task

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                assert not self.gone, f"the broker has closed: {self.closed}"
                self.changed.clear()
                await self.changed.wait()

    async def until_gone(self) -> Amqp10Error | None:
        async with asyncio.timeout(PATIENCE):
            while not self.gone:
                self.changed.clear()
                await self.changed.wait()
        await self.hang_up()
        return self.closed

    # What a client does.

    async def session(self) -> Amqp10Session:
        session = self.connection.session()
        session.begin()
        self.flush()
        await self.until(lambda: session in self.begun)
        return session

    async def attach(self, link: LinkEndpoint, attach: Attach) -> None:
        link.attach(attach)
        self.flush()
        await self.until(lambda: link in self.attached)

    async def sender(
        self,
        address: Any,
        *,
        session: Amqp10Session | None = None,
        name: str | None = None,
        snd: int = MIXED,
        rcv: int = FIRST,
        **target: Any,
    ) -> SenderLink:
        session = session or (self.begun[0] if self.begun else await self.session())
        name = name or f"to-{address}-{len(self.attached)}"
        link = session.sender(name)
        attach = Attach(
            name,
            0,
            False,
            snd,
            rcv,
            source=LinkSource("here"),
            target=LinkTarget(address, **target),
            initial_delivery_count=0,
        )
        await self.attach(link, attach)
        return link

    async def receiver(
        self,
        address: Any,
        *,
        credit: int = 0,
        session: Amqp10Session | None = None,
        name: str | None = None,
        snd: int = MIXED,
        rcv: int = FIRST,
        properties: dict[Any, Any] | None = None,
        **source: Any,
    ) -> ReceiverLink:
        session = session or (self.begun[0] if self.begun else await self.session())
        name = name or f"from-{address}-{len(self.attached)}"
        link = session.receiver(name)
        attach = Attach(
            name,
            0,
            True,
            snd,
            rcv,
            source=LinkSource(address, **source),
            target=LinkTarget("here"),
            properties=properties,
        )
        await self.attach(link, attach)
        if credit:
            self.grant(link, credit)
        return link

    def grant(self, link: ReceiverLink, credit: int, *, drain: bool = False) -> None:
        link.grant(credit, drain=drain)
        self.flush()

    def post(
        self, link: SenderLink, message: Amqp10Message | bytes, *, settled: bool = False
    ) -> OutgoingDelivery:
        """Send, and do not wait."""
        payload = message if isinstance(message, bytes) else encode_message(message)
        delivery = link.new(settled)
        link.send(delivery, payload)
        self.flush()
        return delivery

    async def send(self, link: SenderLink, message: Amqp10Message | bytes) -> DeliveryState | None:
        """Send, and wait for what becomes of it."""
        await self.until(lambda: link.credit > 0)
        delivery = self.post(link, message)
        await self.until(lambda: delivery in self.outcomes)
        return self.outcomes[delivery]

    def settle(self, delivery: IncomingDelivery, state: DeliveryState = ACCEPTED) -> None:
        delivery.settle(state)
        self.flush()

    async def receive(self, count: int = 1) -> list[Amqp10Message]:
        """The next messages, accepted."""
        taken = await self.take(count)
        for delivery, _ in taken:
            delivery.settle(ACCEPTED)
        self.flush()
        return [message for _, message in taken]

    async def take(self, count: int = 1) -> list[tuple[IncomingDelivery, Amqp10Message]]:
        """The next deliveries, with nothing said of them yet."""
        await self.until(lambda: len(self.received) >= count)
        taken, self.received = self.received[:count], self.received[count:]
        return [(delivery, decode_message(payload)) for delivery, payload in taken]

    # What the engine tells.

    def on_output(self) -> None:
        """It is written by whoever caused it."""

    def on_open(self, opened: Open) -> None:
        self.remote = opened

    def on_close(self, error: Amqp10Error | None) -> None:
        self.closed = error

    def on_begin(self, session: Amqp10Session) -> None:
        self.begun.append(session)

    def on_end(self, session: Amqp10Session, error: Amqp10Error | None) -> None:
        self.ended.append((session, error))

    def on_attach(self, link: LinkEndpoint) -> None:
        self.attached.append(link)

    def on_detach(self, link: LinkEndpoint, closed: bool, error: Amqp10Error | None) -> None:
        self.detached[link] = error

    def on_flow(self, link: SenderLink) -> None:
        """Tests look at its credit."""

    def on_window_open(self, session: Amqp10Session) -> None:
        """Tests look at its room."""

    def on_drained(self, link: ReceiverLink) -> None:
        self.drained.append(link)

    def on_transfer(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None:
        self.transfers += 1
        parts = self._parts.setdefault(delivery, [])
        parts.append(payload)
        if not more:
            self.received.append((delivery, b"".join(self._parts.pop(delivery))))

    def on_abort(self, delivery: IncomingDelivery) -> None:
        self._parts.pop(delivery, None)

    def on_outcomes(self, deliveries: list[OutgoingDelivery]) -> None:
        for delivery in deliveries:
            self.outcomes[delivery] = delivery.state

    def on_settled(self, delivery: IncomingDelivery) -> None:
        """Tests look at the delivery."""
