"""Listening sockets, and which terminal a connection gets: by the scheme of the address.

Of AMQP, both versions are spoken where `amqp` is (`amqp.py`), and 1.0 alone where `amqp10` is.

A protocol is a `ProtocolService`: what one broker's connections of that protocol share, and the
terminals it makes for them. A new one is a folder under `terminals/` and its lines here.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, cast

from penstock.broker.host import ConnectionLimiter, Host, UnauthenticatedConnection
from penstock.core.addresses import ListenAddress
from penstock.core.config import TlsSettings
from penstock.core.errors import ConfigurationError
from penstock.core.host_policy import HostPolicy
from penstock.core.logs import get_logger
from penstock.core.units import KiB
from penstock.protocols.amqp091.terminal import Amqp091Protocol
from penstock.protocols.amqp10.terminal import Amqp10Protocol
from penstock.protocols.mqtt.terminal import MqttProtocol
from penstock.protocols.padres.terminal import PadresProtocol
from penstock.server.event_loop import BrokerEventLoop, SocketTransport
from penstock.server.websocket import WebSocketConnection
from penstock.wire.amqp10.frames import AMQP_HEADER, SASL_HEADER, TLS_HEADER

# Where connections come in: listening sockets, and a terminal for each who arrives.
#
# On the broker's own loop a plain connection gets our own transport; one with TLS, or on another
# loop, gets asyncio's. Whether there is room for one more is for the admission to say.

#: Connections let in before others have their turn.
ACCEPTS_PER_PASS: Final = 64
#: Connections the system holds for us before we accept them.
BACKLOG: Final = 1024
#: How long the door stays shut when the system has no room for one more.
REST_SECONDS: Final = 1.0
#: The system's words for that.
RESOURCE_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_log = get_logger("penstock.listener")


class SocketListener:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        protocol: Callable[[], asyncio.Protocol],
        connection_limiter: ConnectionLimiter,
        context: ssl.SSLContext | None = None,
        handshake_seconds: float | None = None,
    ) -> None:
        """With a context, connections speak TLS; a handshake may take so long."""
        self._loop = loop
        self._protocol = protocol
        self._connection_limiter = connection_limiter
        self._context = context
        self._handshake_seconds = handshake_seconds if context is not None else None
        self._handshakes: set[asyncio.Task[None]] = set()
        self.sockets = sockets
        for listening in sockets:
            self._open(listening)

    def _open(self, listening: socket.socket) -> None:
        if listening in self.sockets:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_PASS):
            try:
                connection, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in RESOURCE_ERRORS:
                    raise
                _log.error("no room for a connection", error=error.strerror)
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(REST_SECONDS, self._open, listening)
                return
            if self._connection_limiter.has_room(connection):
                self._open_connection(connection, peer)
            else:
                connection.close()

    def _open_connection(self, connection: socket.socket, peer: Any) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None and isinstance(self._loop, BrokerEventLoop):
            transport = SocketTransport(self._loop, connection, peer, self._protocol())
            self._connection_limiter.register(connection, peer[0], transport.abort)
            return
        unauthenticated = self._connection_limiter.register(
            connection, peer[0], partial(_shut_down, connection)
        )
        task = self._loop.create_task(self._handshake(connection, unauthenticated))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _handshake(
        self, connection: socket.socket, unauthenticated: UnauthenticatedConnection
    ) -> None:
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                self._protocol,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_seconds,
            )
        except OSError as error:  # of TLS as well
            _log.info("handshake failed", peer=unauthenticated.address, error=str(error))
            connection.close()
        else:
            unauthenticated.abort = transport.abort

    def close(self) -> None:
        """Those who are in stay in."""
        sockets, self.sockets = self.sockets, []
        for listening in sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        for task in list(self._handshakes):
            task.cancel()


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


async def bind_listener(
    loop: asyncio.AbstractEventLoop,
    host: str,
    port: int,
    protocol: Callable[[], asyncio.Protocol],
    connection_limiter: ConnectionLimiter,
    context: ssl.SSLContext | None = None,
    handshake_seconds: float | None = None,
) -> SocketListener:
    """Listen on all addresses that the host has."""
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, number, _, address in dict.fromkeys(found):
            listening = socket.socket(family, kind, number)
            sockets.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.setblocking(False)
            listening.bind(address)
            listening.listen(BACKLOG)
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    return SocketListener(loop, sockets, protocol, connection_limiter, context, handshake_seconds)


# AMQP on one port: the first bytes of a client say which version it speaks.
#
# A `AmqpVersionDetector` holds a connection until it has heard enough, hands it to the terminal of
# that version and is gone: from then on it costs nothing. Whoever begins with neither is 0-9-1's to
# answer.

#: How a client of AMQP 1.0 begins.
AMQP10_HEADERS: Final = (SASL_HEADER, AMQP_HEADER, TLS_HEADER)


class AmqpService:
    """Both versions, as one broker speaks them."""

    __slots__ = ("_detectors", "_v091", "_v10", "host")

    def __init__(self, host: Host) -> None:
        self.host = host
        self._v091 = Amqp091Protocol(host)
        self._v10 = Amqp10Protocol(host)
        self._detectors: set[AmqpVersionDetector] = set()

    def terminal(self) -> asyncio.Protocol:
        """For a connection that has just been made."""
        return AmqpVersionDetector(self)

    def choose(self, received: bytes) -> asyncio.Protocol | None:
        """The terminal for a client that begins so; None while it cannot be told."""
        if received.startswith(AMQP10_HEADERS):
            return self._v10.terminal()
        if any(header.startswith(received) for header in AMQP10_HEADERS):
            return None
        return self._v091.terminal()

    def entered(self, detector: AmqpVersionDetector) -> None:
        self._detectors.add(detector)

    def left(self, detector: AmqpVersionDetector) -> None:
        self._detectors.discard(detector)

    def close(self) -> None:
        for detector in list(self._detectors):
            detector.abort()
        self._v091.close()
        self._v10.close()


class AmqpVersionDetector(asyncio.Protocol):
    __slots__ = ("_received", "_service", "_timer", "_transport")

    def __init__(self, service: AmqpService) -> None:
        self._service = service
        self._received = b""
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._service.entered(self)
        kernel = self._service.host.kernel
        self._timer = kernel.loop.call_later(kernel.settings.handshake_timeout, self.abort)

    def data_received(self, data: bytes) -> None:
        self._received += data
        terminal = self._service.choose(self._received)
        if terminal is not None:
            self._timer.cancel()
            self._service.left(self)
            self._transport.set_protocol(terminal)
            terminal.connection_made(self._transport)
            terminal.data_received(self._received)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._service.left(self)

    def abort(self) -> None:
        self._transport.abort()


class ProtocolService(Protocol):
    """A protocol, as one broker speaks it."""

    def terminal(self) -> asyncio.Protocol:
        """For a connection that has just been made."""

    def close(self) -> None:
        """All its connections have ended."""


#: What is spoken on each scheme.
SCHEMES: Final[dict[str, Callable[[Host], ProtocolService]]] = {
    "amqp": AmqpService,
    "amqps": AmqpService,
    "amqp10": Amqp10Protocol,
    "amqps10": Amqp10Protocol,
    "mqtt": MqttProtocol,
    "mqtts": MqttProtocol,
    "ws": MqttProtocol,
    "wss": MqttProtocol,
    "padres": PadresProtocol,
    "padress": PadresProtocol,
}

# Over WebSocket: where MQTT is offered, and the names it goes by there.
WEBSOCKET_PATHS: Final = frozenset({"/ws", "/mqtt", "/"})
MQTT_SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    assert settings.certificate is not None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate, settings.key)
        if settings.authority is not None:
            context.load_verify_locations(settings.authority)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"tls: cannot use {settings.certificate}: {error}") from error
    if settings.verify_peer:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def open_listener(
    host: Host,
    service: ProtocolService,
    address: ListenAddress,
    context: ssl.SSLContext | None,
    policy: HostPolicy,
    handshaking: set[WebSocketConnection],
) -> tuple[SocketListener, ListenAddress]:
    """Open a listener; returns it with the address it really has.

    Those who have not said yet that they speak WebSocket are among the `handshaking`.
    """
    settings = host.kernel.settings

    def terminal() -> asyncio.Protocol:
        host.kernel.write_batch.expect()
        return service.terminal()

    def gate() -> asyncio.Protocol:
        return WebSocketConnection(
            terminal(),
            MQTT_SUBPROTOCOLS,
            WEBSOCKET_PATHS,
            settings.mqtt.max_packet_bytes + KiB,  # what is too large is MQTT's to say
            settings.handshake_timeout,
            policy,
            handshaking,
        )

    loop = host.kernel.loop
    protocol = gate if address.scheme in ("ws", "wss") else terminal
    try:
        server = await bind_listener(
            loop,
            address.host,
            address.port,
            protocol,
            host.connection_limiter,
            context if address.tls else None,
            settings.handshake_timeout,
        )
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {address}: {error.strerror}") from error
    return server, ListenAddress(address.scheme, address.host, server.sockets[0].getsockname()[1])
