"""One connection: the engine of AMQP 1.0 on a socket, with its heartbeats.

What is at our end of a link (`Amqp10LinkHandler`) hears of it directly; what ends the connection is
told once, to whoever made it. All that is to be written in a turn of the loop goes out in one
write.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, cast

from penstock.client.amqp10.endpoint import (
    Amqp10ConnectionLost,
    Amqp10Endpoint,
    connect_error,
    permanent_error,
)
from penstock.client.errors import FabricClosed
from penstock.client.retry import connect_with_retry, reconnect_when_lost
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.core.units import KiB
from penstock.wire.amqp10.connection import Amqp10Connection
from penstock.wire.amqp10.links import (
    IncomingDelivery,
    LinkEndpoint,
    OutgoingDelivery,
    ReceiverLink,
    SenderLink,
)
from penstock.wire.amqp10.performatives import Amqp10Error, Open
from penstock.wire.amqp10.sasl import ANONYMOUS, PLAIN, SaslClient, encode_plain_response
from penstock.wire.amqp10.session import Amqp10Session

CONNECT_SECONDS: Final = 10.0
#: A broker that has stopped reading does not answer a close either.
CLOSE_SECONDS: Final = 3.0
FRAME_MAX: Final = 256 * KiB


class Amqp10LinkHandler(Protocol):
    """What is at our end of a link; its methods return at once."""

    def on_attached(self) -> None: ...

    def on_detached(self, error: Amqp10Error | None) -> None: ...

    def on_credit(self) -> None: ...

    def on_payload(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None: ...

    def on_abort(self, delivery: IncomingDelivery) -> None: ...

    def on_outcome(self, delivery: OutgoingDelivery) -> None: ...


class Amqp10ClientConnection(asyncio.Protocol):
    """Keeps `penstock.wire.amqp10.connection.Amqp10Events`; one session carries all links."""

    def __init__(
        self,
        endpoint: Amqp10Endpoint,
        container_id: str,
        on_lost: Callable[[Amqp10ConnectionLost], None],
    ) -> None:
        self._endpoint = endpoint
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[Amqp10Session] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._leaving = False
        self._heard = True
        self._beat: asyncio.TimerHandle | None = None
        self._listen: asyncio.TimerHandle | None = None
        self._partings: dict[LinkEndpoint, asyncio.Future[None]] = {}
        self._engine = Amqp10Connection(self, container_id, frame_max=FRAME_MAX, channel_max=0)

    async def connect(self, tls: ssl.SSLContext | None) -> Amqp10Session:
        """Returns the session when the broker has let us in."""
        endpoint = self._endpoint
        async with asyncio.timeout(CONNECT_SECONDS):
            await self._loop.create_connection(
                lambda: self, endpoint.host, endpoint.port, ssl=tls or endpoint.tls_context()
            )
            mechanism, response = (
                (ANONYMOUS, b"penstock")
                if endpoint.user is None
                else (PLAIN, encode_plain_response(endpoint.user, endpoint.password))
            )
            engine = self._engine
            opening = SaslClient(engine, mechanism, response, endpoint.hostname, self._let_in)
            engine.opening = opening
            opening.begin()
            return await self._ready

    @property
    def relays(self) -> bool:
        """Whether the broker sends messages on by the address each of them has."""
        remote = self._engine.remote
        return remote is not None and "ANONYMOUS-RELAY" in remote.offered_capabilities

    async def parted(self, link: LinkEndpoint) -> None:
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
        self._lose(error or Amqp10ConnectionLost("the connection was closed"))

    def _lose(self, error: Exception) -> None:
        told, self._leaving = self._leaving, True
        if not self._ready.done():
            self._ready.set_exception(error)
        elif not told:
            self._on_lost(
                error
                if isinstance(error, Amqp10ConnectionLost)
                else Amqp10ConnectionLost(str(error))
            )

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
            self._lose(
                Amqp10ConnectionLost(f"no sign of life for {2 * self._endpoint.heartbeat} s")
            )
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

    def on_close(self, error: Amqp10Error | None) -> None:
        words = "closed by the broker"
        if error is not None:
            words = error.description or error.condition
        self._lose(Amqp10ConnectionLost(words, error))

    def on_begin(self, session: Amqp10Session) -> None:
        if not self._ready.done():
            self._ready.set_result(session)

    def on_end(self, session: Amqp10Session, error: Amqp10Error | None) -> None:
        self._lose(
            Amqp10ConnectionLost(
                "the session was ended" if error is None else str(error.description)
            )
        )
        self._engine.close()

    def on_attach(self, link: LinkEndpoint) -> None:
        remote = link.remote
        end: Amqp10LinkHandler | None = link.context
        if end is None or remote is None:
            link.detach()  # a link that nobody here has asked for
        elif (remote.source if link.role else remote.target) is not None:
            end.on_attached()
        # Without a source or a target it is refused, and the detach that says why comes next.

    def on_detach(self, link: LinkEndpoint, closed: bool, error: Amqp10Error | None) -> None:
        end: Amqp10LinkHandler | None = link.context
        if end is not None:
            end.on_detached(error)

    def on_flow(self, link: SenderLink) -> None:
        end: Amqp10LinkHandler = link.context
        end.on_credit()
        if link.draining and link.credit:
            link.drained()

    def on_window_open(self, session: Amqp10Session) -> None:
        for link in session.links:
            if isinstance(link, SenderLink) and link.context is not None:
                link.context.on_credit()

    def on_transfer(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None:
        end: Amqp10LinkHandler = delivery.link.context
        end.on_payload(delivery, payload, more)

    def on_abort(self, delivery: IncomingDelivery) -> None:
        end: Amqp10LinkHandler = delivery.link.context
        end.on_abort(delivery)

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        end: Amqp10LinkHandler = delivery.link.context
        end.on_outcome(delivery)

    def on_settled(self, delivery: IncomingDelivery) -> None:
        """It is the sender's last word; ours has gone out, or is not wanted."""

    def on_drained(self, link: ReceiverLink) -> None:
        """We never ask for that."""


# A connection that mends itself.
#
# A trunk keeps a wire connected for as long as it is open. When a connection goes, the parts that
# use it are told; when the next is there each is given its session to go on with. A broker that
# will not have us back ends the trunk with the reason.

log = get_logger(__name__)


class Amqp10ReconnectListener(Protocol):
    """Whoever has a link on a trunk, and something to resume on the next connection."""

    def resume(self, session: Amqp10Session) -> None:
        """There is a connection: attach."""

    def paused(self) -> None:
        """The connection went."""

    def failed(self, error: PenstockError) -> None:
        """There will be no other."""


class Amqp10RecoveringConnection:
    def __init__(
        self,
        endpoint: Amqp10Endpoint,
        suffix: str,
        tls: ssl.SSLContext | None,
        retry_seconds: float,
    ) -> None:
        """The suffix distinguishes the container ids of a fabric's connections."""
        self.endpoint = endpoint
        self._container_id = endpoint.container_id + suffix
        self._tls = tls
        self._retry_seconds = retry_seconds
        self._parts: list[Amqp10ReconnectListener] = []
        self._current: Amqp10ClientConnection | None = None
        self._session: Amqp10Session | None = None
        self._opening = asyncio.Lock()
        self._recovery: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._failure: PenstockError | None = None

    @property
    def relays(self) -> bool:
        return self._current is not None and self._current.relays

    async def open(self) -> None:
        async with self._opening:
            if self._failure is not None:
                raise self._failure
            if self._recovery is not None:
                return
            await connect_with_retry(self._connect, self._retry_seconds)
            self._recovery = asyncio.create_task(
                reconnect_when_lost(self._lost, self._connect, self._fail, self)
            )

    async def join(self, part: Amqp10ReconnectListener) -> None:
        """Take part: from now on, the part has a link whenever there is a connection."""
        await self.open()
        if self._failure is not None:
            raise self._failure
        self.watch(part)
        if self._session is not None:
            part.resume(self._session)

    def watch(self, part: Amqp10ReconnectListener) -> None:
        """Be told what becomes of the connection."""
        self._parts.append(part)

    def leave(self, part: Amqp10ReconnectListener) -> None:
        if part in self._parts:
            self._parts.remove(part)

    async def parted(self, link: LinkEndpoint) -> None:
        """Returns when the broker knows that we have left a link."""
        if self._current is not None:
            await self._current.parted(link)

    async def close(self) -> None:
        self._fail(FabricClosed("the fabric is closed"))
        async with self._opening:
            if self._recovery is not None:
                self._recovery.cancel()
                await asyncio.gather(self._recovery, return_exceptions=True)
            if self._current is not None:
                await self._current.close()
            self._session = None

    def __str__(self) -> str:
        return str(self.endpoint)

    async def _connect(self) -> None:
        self._lost.clear()
        self._current = wire = Amqp10ClientConnection(
            self.endpoint, self._container_id, self._on_lost
        )
        try:
            session = await wire.connect(self._tls)
        except (PenstockError, OSError, Amqp10ConnectionLost) as error:
            wire.abandon()
            raise connect_error(self.endpoint, error) from error
        if self._lost.is_set():
            return
        self._session = session
        for part in list(self._parts):
            part.resume(session)

    def _on_lost(self, lost: Amqp10ConnectionLost) -> None:
        self._session = None
        for part in list(self._parts):
            part.paused()
        if (failure := permanent_error(self.endpoint, lost)) is not None:
            self._fail(failure)
        else:
            log.warning("connection lost", broker=str(self), reason=str(lost))
            self._lost.set()

    def _fail(self, error: PenstockError) -> None:
        if self._failure is None:
            self._failure = error
            for part in list(self._parts):
                part.failed(error)
