"""An AMQP 1.0 connection, and one that reconnects.

`Amqp10ClientConnection` runs the engine of `wire.amqp10` on a socket, with heartbeats; one session
carries all links. All output of one iteration of the loop is one write. The handler of a link gets
its events. `Amqp10RecoveringConnection` reconnects and gives each listener the new session; a
reconnect that the broker refuses ends the recovery with its error.
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
    """Handles the events of a link."""

    def on_attached(self) -> None: ...

    def on_detached(self, error: Amqp10Error | None) -> None: ...

    def on_credit(self) -> None: ...

    def on_payload(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None: ...

    def on_abort(self, delivery: IncomingDelivery) -> None: ...

    def on_outcome(self, delivery: OutgoingDelivery) -> None: ...


class Amqp10ClientConnection(asyncio.Protocol):
    """Implements `penstock.wire.amqp10.connection.Amqp10Events`."""

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
        self._closing = False
        self._received = True
        self._beat_timer: asyncio.TimerHandle | None = None
        self._check_timer: asyncio.TimerHandle | None = None
        self._detaches: dict[LinkEndpoint, asyncio.Future[None]] = {}
        self._engine = Amqp10Connection(self, container_id, frame_max=FRAME_MAX, channel_max=0)

    async def connect(self, tls: ssl.SSLContext | None) -> Amqp10Session:
        """Returns the session of the open connection."""
        endpoint = self._endpoint
        async with asyncio.timeout(CONNECT_SECONDS):
            *others, last = endpoint.hosts()
            context = tls or endpoint.tls_context()
            for host, port in others:
                with suppress(OSError):
                    await self._loop.create_connection(lambda: self, host, port, ssl=context)
                    break
            else:
                await self._loop.create_connection(lambda: self, *last, ssl=context)
            mechanism, response = (
                (ANONYMOUS, b"penstock")
                if endpoint.user is None
                else (PLAIN, encode_plain_response(endpoint.user, endpoint.password))
            )
            engine = self._engine
            opening = SaslClient(
                engine, mechanism, response, endpoint.hostname, self._authenticated
            )
            engine.opening = opening
            opening.begin()
            return await self._ready

    @property
    def relays(self) -> bool:
        """Whether the broker has an anonymous relay, which routes by the address of a message."""
        remote = self._engine.remote
        return remote is not None and "ANONYMOUS-RELAY" in remote.offered_capabilities

    @property
    def is_rabbitmq_4(self) -> bool:
        """Whether the broker is RabbitMQ from version 4 on, which has other addresses."""
        remote = self._engine.remote
        given = {} if remote is None else remote.properties or {}
        names = {str(name): str(value) for name, value in given.items()}
        major = names.get("version", "").partition(".")[0]
        return names.get("product") == "RabbitMQ" and major.isdecimal() and int(major) >= 4

    async def wait_detached(self, link: LinkEndpoint) -> None:
        """Returns when the broker has detached the link as well, or does not answer."""
        detached = self._detaches[link] = self._loop.create_future()
        self._complete_detaches()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await detached

    def _complete_detaches(self) -> None:
        gone = self._gone.done()
        for link in [link for link in self._detaches if gone or link not in link.session.links]:
            detached = self._detaches.pop(link)
            if not detached.done():
                detached.set_result(None)

    async def close(self) -> None:
        """Close the connection; abort it if the broker does not answer."""
        self._closing = True
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
        self._received = True
        try:
            self._engine.receive(data)
        except PenstockError as error:
            self._lose(error)
            self.abandon()
        if self._detaches:
            self._complete_detaches()

    def connection_lost(self, error: Exception | None) -> None:
        for timer in (self._beat_timer, self._check_timer):
            if timer is not None:
                timer.cancel()
        if not self._gone.done():
            self._gone.set_result(None)
        self._complete_detaches()
        self._lose(error or Amqp10ConnectionLost("the connection was closed"))

    def _lose(self, error: Exception) -> None:
        closing, self._closing = self._closing, True
        if not self._ready.done():
            self._ready.set_exception(error)
        elif not closing:
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

    def _authenticated(self) -> None:
        heartbeat = self._endpoint.heartbeat
        self._engine.open(hostname=self._endpoint.hostname, idle_time_out=heartbeat * 1000)

    def _start_heartbeats(self, opened: Open) -> None:
        self._check_timer = self._loop.call_later(
            2 * self._endpoint.heartbeat, self._check_received
        )
        if opened.idle_time_out:
            self._send_beat(opened.idle_time_out / 2000)

    def _send_beat(self, every: float) -> None:
        if not self._engine.out:
            self._engine.heartbeat()
        self._beat_timer = self._loop.call_later(every, self._send_beat, every)

    def _check_received(self) -> None:
        if not self._received:
            self._lose(Amqp10ConnectionLost(f"no heartbeat for {2 * self._endpoint.heartbeat} s"))
            self.abandon()
            return
        self._received = False
        self._check_timer = self._loop.call_later(
            2 * self._endpoint.heartbeat, self._check_received
        )

    # Events of the engine.

    def on_output(self) -> None:
        self._loop.call_soon(self._flush)

    def on_open(self, opened: Open) -> None:
        self._start_heartbeats(opened)
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
            link.detach()  # a link that was not requested
        elif (remote.source if link.role else remote.target) is not None:
            end.on_attached()
        # Without a source or target the link is refused; a detach with the error follows.

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

    def on_outcomes(self, deliveries: list[OutgoingDelivery]) -> None:
        for delivery in deliveries:
            end: Amqp10LinkHandler = delivery.link.context
            end.on_outcome(delivery)

    def on_settled(self, delivery: IncomingDelivery) -> None:
        """Nothing to do: the delivery is settled on our side."""

    def on_drained(self, link: ReceiverLink) -> None:
        """The client never drains a link."""


log = get_logger(__name__)


class Amqp10ReconnectListener(Protocol):
    """A part of the client that attaches its link on each connection."""

    def resume(self, session: Amqp10Session) -> None: ...

    def paused(self) -> None:
        """The connection was lost."""

    def failed(self, error: PenstockError) -> None:
        """There will be no other connection."""


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
        self._listeners: list[Amqp10ReconnectListener] = []
        self._current: Amqp10ClientConnection | None = None
        self._session: Amqp10Session | None = None
        self._opening = asyncio.Lock()
        self._recovery: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._failure: PenstockError | None = None

    @property
    def relays(self) -> bool:
        return self._current is not None and self._current.relays

    @property
    def is_rabbitmq_4(self) -> bool:
        return self._current is not None and self._current.is_rabbitmq_4

    def queue_address(self, address: str) -> str:
        """The address of a queue or stream as the broker wants it: RabbitMQ from version 4 on has
        `/queues/NAME` for both."""
        if self.is_rabbitmq_4:
            for prefix in ("/queue/", "/amq/queue/", "/stream/"):
                if address.startswith(prefix):
                    return f"/queues/{address.removeprefix(prefix)}"
        return address

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

    async def join(self, listener: Amqp10ReconnectListener) -> None:
        """`watch`, and resume on the present connection."""
        await self.open()
        if self._failure is not None:
            raise self._failure
        self.watch(listener)
        if self._session is not None:
            listener.resume(self._session)

    def watch(self, listener: Amqp10ReconnectListener) -> None:
        """Notify the listener of each connection from now on."""
        self._listeners.append(listener)

    def leave(self, listener: Amqp10ReconnectListener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    async def wait_detached(self, link: LinkEndpoint) -> None:
        """Returns when the broker has detached the link as well."""
        if self._current is not None:
            await self._current.wait_detached(link)

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
        for listener in list(self._listeners):
            listener.resume(session)

    def _on_lost(self, lost: Amqp10ConnectionLost) -> None:
        self._session = None
        for listener in list(self._listeners):
            listener.paused()
        if (failure := permanent_error(self.endpoint, lost)) is not None:
            self._fail(failure)
        else:
            log.warning("connection lost", broker=str(self), reason=str(lost))
            self._lost.set()

    def _fail(self, error: PenstockError) -> None:
        if self._failure is None:
            self._failure = error
            for listener in list(self._listeners):
                listener.failed(error)
