"""One connection: the engine of AMQP 1.0 on a socket, with its heartbeats.

What is at our end of a link (`LinkEnd`) hears of it directly; what ends the connection is told
once, to whoever made it. All that is to be written in a turn of the loop goes out in one write.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, cast

from penstock.client.amqp10.endpoint import Endpoint
from penstock.client.amqp10.faults import Lost
from penstock.core.errors import PenstockError
from penstock.core.units import KiB
from penstock.wire.amqp10.connection import Connection
from penstock.wire.amqp10.links import Incoming, Link, Outgoing, Receiver, Sender
from penstock.wire.amqp10.opening import ANONYMOUS, PLAIN, ClientOpening, plain
from penstock.wire.amqp10.performatives import Open
from penstock.wire.amqp10.session import Session
from penstock.wire.amqp10.states import Error

CONNECT_SECONDS: Final = 10.0
#: A broker that has stopped reading does not answer a close either.
CLOSE_SECONDS: Final = 3.0
FRAME_MAX: Final = 256 * KiB


class LinkEnd(Protocol):
    """What is at our end of a link; its methods return at once."""

    def on_attached(self) -> None: ...

    def on_detached(self, error: Error | None) -> None: ...

    def on_credit(self) -> None: ...

    def on_payload(self, delivery: Incoming, payload: bytes, more: bool) -> None: ...

    def on_abort(self, delivery: Incoming) -> None: ...

    def on_outcome(self, delivery: Outgoing) -> None: ...


class Wire(asyncio.Protocol):
    """Keeps `penstock.wire.amqp10.events.Events`; one session carries all links."""

    def __init__(
        self, endpoint: Endpoint, container_id: str, on_lost: Callable[[Lost], None]
    ) -> None:
        self._endpoint = endpoint
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[Session] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._leaving = False
        self._heard = True
        self._beat: asyncio.TimerHandle | None = None
        self._listen: asyncio.TimerHandle | None = None
        self._partings: dict[Link, asyncio.Future[None]] = {}
        self._engine = Connection(self, container_id, frame_max=FRAME_MAX, channel_max=0)

    async def connect(self, tls: ssl.SSLContext | None) -> Session:
        """Returns the session when the broker has let us in."""
        endpoint = self._endpoint
        async with asyncio.timeout(CONNECT_SECONDS):
            await self._loop.create_connection(
                lambda: self, endpoint.host, endpoint.port, ssl=tls or endpoint.tls_context()
            )
            mechanism, response = (
                (ANONYMOUS, b"penstock")
                if endpoint.user is None
                else (PLAIN, plain(endpoint.user, endpoint.password))
            )
            engine = self._engine
            opening = ClientOpening(engine, mechanism, response, endpoint.hostname, self._let_in)
            engine.opening = opening
            opening.begin()
            return await self._ready

    @property
    def relays(self) -> bool:
        """Whether the broker sends messages on by the address each of them has."""
        remote = self._engine.remote
        return remote is not None and "ANONYMOUS-RELAY" in remote.offered_capabilities

    async def parted(self, link: Link) -> None:
        """Returns when the broker has taken its end of a link off as well, or does not answer."""
        parting = self._partings[link] = self._loop.create_future()
        self._see_off()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await parting

    def _see_off(self) -> None:
        gone = self._gone.done()
        for link in [link for link in self._partings if gone or link not in link.session.links]:
            parting = self._partings.pop(link)
            if not parting.done():
                parting.set_result(None)

    async def close(self) -> None:
        """Leave with a word; and without one, if the broker does not answer."""
        self._leaving = True
        if self._transport is None or self._gone.done():
            return
        self._engine.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.shield(self._gone)
        except TimeoutError:
            self._transport.abort()

    def abandon(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        try:
            self._engine.receive(data)
        except PenstockError as error:
            self._lose(error)
            self.abandon()
        if self._partings:
            self._see_off()

    def connection_lost(self, error: Exception | None) -> None:
        for timer in (self._beat, self._listen):
            if timer is not None:
                timer.cancel()
        if not self._gone.done():
            self._gone.set_result(None)
        self._see_off()
        self._lose(error or Lost("the connection was closed"))

    def _lose(self, error: Exception) -> None:
        told, self._leaving = self._leaving, True
        if not self._ready.done():
            self._ready.set_exception(error)
        elif not told:
            self._on_lost(error if isinstance(error, Lost) else Lost(str(error)))

    def _flush(self) -> None:
        engine = self._engine
        if self._transport is not None and not self._transport.is_closing():
            if engine.out:
                self._transport.writelines(engine.out)
            if engine.finished:
                self._transport.close()
        engine.out.clear()
        engine.out_bytes = 0

    # Heartbeats.

    def _let_in(self) -> None:
        heartbeat = self._endpoint.heartbeat
        self._engine.open(hostname=self._endpoint.hostname, idle_time_out=heartbeat * 1000)

    def _keep_time(self, opened: Open) -> None:
        self._listen = self._loop.call_later(2 * self._endpoint.heartbeat, self._check_heard)
        if opened.idle_time_out:
            self._send_beat(opened.idle_time_out / 2000)

    def _send_beat(self, every: float) -> None:
        if not self._engine.out:
            self._engine.heartbeat()
        self._beat = self._loop.call_later(every, self._send_beat, every)

    def _check_heard(self) -> None:
        if not self._heard:
            self._lose(Lost(f"no sign of life for {2 * self._endpoint.heartbeat} s"))
            self.abandon()
            return
        self._heard = False
        self._listen = self._loop.call_later(2 * self._endpoint.heartbeat, self._check_heard)

    # What the engine says.

    def on_output(self) -> None:
        self._loop.call_soon(self._flush)

    def on_open(self, opened: Open) -> None:
        self._keep_time(opened)
        self._engine.session().begin()

    def on_close(self, error: Error | None) -> None:
        words = "closed by the broker"
        if error is not None:
            words = error.description or error.condition
        self._lose(Lost(words, error))

    def on_begin(self, session: Session) -> None:
        if not self._ready.done():
            self._ready.set_result(session)

    def on_end(self, session: Session, error: Error | None) -> None:
        self._lose(Lost("the session was ended" if error is None else str(error.description)))
        self._engine.close()

    def on_attach(self, link: Link) -> None:
        remote = link.remote
        end: LinkEnd | None = link.context
        if end is None or remote is None:
            link.detach()  # a link that nobody here has asked for
        elif (remote.source if link.role else remote.target) is not None:
            end.on_attached()
        # Without a source or a target it is refused, and the detach that says why comes next.

    def on_detach(self, link: Link, closed: bool, error: Error | None) -> None:
        end: LinkEnd | None = link.context
        if end is not None:
            end.on_detached(error)

    def on_flow(self, link: Sender) -> None:
        end: LinkEnd = link.context
        end.on_credit()
        if link.draining and link.credit:
            link.drained()

    def on_room(self, session: Session) -> None:
        for link in session.links:
            if isinstance(link, Sender) and link.context is not None:
                link.context.on_credit()

    def on_transfer(self, delivery: Incoming, payload: bytes, more: bool) -> None:
        end: LinkEnd = delivery.link.context
        end.on_payload(delivery, payload, more)

    def on_abort(self, delivery: Incoming) -> None:
        end: LinkEnd = delivery.link.context
        end.on_abort(delivery)

    def on_outcome(self, delivery: Outgoing) -> None:
        end: LinkEnd = delivery.link.context
        end.on_outcome(delivery)

    def on_settled(self, delivery: Incoming) -> None:
        """It is the sender's last word; ours has gone out, or is not wanted."""

    def on_drained(self, link: Receiver) -> None:
        """We never ask for that."""
