"""Listening sockets; the scheme of an address selects the protocol of its connections.

On `amqp` a client's first bytes select AMQP 0-9-1 or 1.0; `amqp10` is 1.0 only. A protocol is a
`ProtocolService`, which makes a terminal for each connection: a folder under `protocols/` and its
lines in `SCHEMES`. On the broker's own event loop a connection without TLS has our
`SocketTransport`, any other has asyncio's transport.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from penstock.broker.host import ConnectionLimiter, Host, UnauthenticatedConnection
from penstock.core.addresses import ListenAddress
from penstock.core.config import TlsSettings
from penstock.core.errors import ConfigurationError, FrameError
from penstock.core.host_policy import HostPolicy
from penstock.core.logs import get_logger
from penstock.core.proxy_protocol import (
    MAX_HEADER_BYTES,
    IncompleteHeader,
    TrustedProxies,
    parse_proxy_header,
)
from penstock.core.timer_wheel import TimerBucket
from penstock.core.units import KiB
from penstock.server.event_loop import BrokerEventLoop, SocketTransport
from penstock.wire.amqp10.frames import AMQP_HEADER, SASL_HEADER, TLS_HEADER

if TYPE_CHECKING:
    from penstock.server.websocket import WebSocketConnection

#: Connections accepted in one pass of the event loop.
ACCEPTS_PER_PASS: Final = 64
#: Connections that the system queues before they are accepted.
BACKLOG: Final = 1024
#: How long accepting pauses when the system has no descriptors or memory left.
REST_SECONDS: Final = 1.0
#: How long a trusted proxy may take to send its header, and the pause if it came in pieces.
HEADER_SECONDS: Final = 10.0
HEADER_PAUSE: Final = 0.02
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
        proxies: TrustedProxies | None = None,
    ) -> None:
        """With a context connections use TLS, whose handshake has a timeout. Connections of trusted
        proxies may begin with a header that names the client."""
        self._proxies = proxies or TrustedProxies(())
        self._loop = loop
        self._protocol = protocol
        self._connection_limiter = connection_limiter
        self._context = context
        self._handshake_seconds = handshake_seconds if context is not None else None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._addresses: dict[Any, Any] = {}  # of this machine, for all connections
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
                _log.error("accept failed", error=error.strerror)
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(REST_SECONDS, self._open, listening)
                return
            if self._connection_limiter.has_room(connection):
                connection.setblocking(False)
                if peer[0] in self._proxies:
                    self._await_header(connection, peer, self._loop.time() + HEADER_SECONDS)
                else:
                    self._open_connection(connection, peer)
            else:
                connection.close()

    def _await_header(self, connection: socket.socket, peer: Any, until: float) -> None:
        if self.sockets and self._loop.time() < until:
            self._loop.add_reader(connection.fileno(), self._take_header, connection, peer, until)
        else:
            connection.close()

    def _take_header(self, connection: socket.socket, peer: Any, until: float) -> None:
        """A trusted proxy has sent something."""
        self._loop.remove_reader(connection.fileno())
        try:
            header = parse_proxy_header(connection.recv(MAX_HEADER_BYTES, socket.MSG_PEEK))
            if header is not None:
                connection.recv(header.size)
                if header.client is not None:
                    peer = header.client
                    connection = ForwardedSocket(connection, peer)
        except IncompleteHeader:
            self._loop.call_later(HEADER_PAUSE, self._await_header, connection, peer, until)
        except (OSError, FrameError) as error:
            _log.info("proxy header refused", peer=peer[0], error=str(error))
            connection.close()
        else:
            self._open_connection(connection, peer)

    def _open_connection(self, connection: socket.socket, peer: Any) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None and isinstance(self._loop, BrokerEventLoop):
            here = connection.getsockname()
            here = self._addresses.setdefault(here, here)
            transport = SocketTransport(self._loop, connection, peer, here, self._protocol())
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
        except OSError as error:  # also of TLS
            _log.info("handshake failed", peer=unauthenticated.address, error=str(error))
            connection.close()
        else:
            unauthenticated.abort = transport.abort

    def close(self) -> None:
        """Connections stay open."""
        sockets, self.sockets = self.sockets, []
        for listening in sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        for task in list(self._handshakes):
            task.cancel()


class ForwardedSocket(socket.socket):
    """A socket whose peer is the client behind a proxy."""

    def __init__(self, connection: socket.socket, peer: tuple[str, int]) -> None:
        super().__init__(fileno=connection.detach())
        self._client = peer

    def getpeername(self) -> tuple[str, int]:
        return self._client


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


async def bind_listener(
    host: Host,
    address: ListenAddress,
    protocol: Callable[[], asyncio.Protocol],
    context: ssl.SSLContext | None,
) -> tuple[SocketListener, ListenAddress]:
    """Returns the listener, and the address with its actual port."""
    loop = host.kernel.loop
    try:
        sockets = await _bind(loop, address)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {address}: {error.strerror}") from error
    listener = SocketListener(
        loop,
        sockets,
        protocol,
        host.connection_limiter,
        context if address.tls else None,
        host.kernel.settings.handshake_timeout,
        TrustedProxies(host.kernel.settings.proxy_protocol_from),
    )
    return listener, ListenAddress(address.scheme, address.host, sockets[0].getsockname()[1])


async def _bind(loop: asyncio.AbstractEventLoop, listen: ListenAddress) -> list[socket.socket]:
    """A listening socket for each address of the host."""
    # As bytes, because the codec of international names takes half a megabyte.
    name = listen.host
    host: str | bytes = name.encode() if name and name.isascii() else name
    ask = partial(socket.getaddrinfo, host, listen.port, 0, socket.SOCK_STREAM, 0)
    try:
        found = ask(socket.AI_PASSIVE | socket.AI_NUMERICHOST)
    except socket.gaierror:  # a name, which a server must be asked for
        found = await loop.run_in_executor(None, ask, socket.AI_PASSIVE)
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
    return sockets


#: The first bytes of AMQP 1.0 clients.
AMQP10_HEADERS: Final = (SASL_HEADER, AMQP_HEADER, TLS_HEADER)


class AmqpService:
    """Both versions of AMQP on one port."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._v091 = open_amqp091(host)
        self._v10: ProtocolService | None = None  #: when a client speaks it
        self.detectors: set[AmqpVersionDetector] = set()

    def terminal(self) -> asyncio.Protocol:
        return AmqpVersionDetector(self)

    def choose(self, received: bytes) -> asyncio.Protocol | None:
        """The terminal for the version, 0-9-1 if it is unknown; None if more bytes are needed."""
        if received.startswith(AMQP10_HEADERS):
            if self._v10 is None:
                self._v10 = open_amqp10(self.host)
            return self._v10.terminal()
        if any(header.startswith(received) for header in AMQP10_HEADERS):
            return None
        return self._v091.terminal()

    def close(self) -> None:
        for detector in list(self.detectors):
            detector.abort()
        self._v091.close()
        if self._v10 is not None:
            self._v10.close()


class AmqpVersionDetector(asyncio.Protocol):
    """Holds a connection until its version is known, and hands it to a terminal."""

    __slots__ = ("_received", "_service", "_timer", "_transport")

    def __init__(self, service: AmqpService) -> None:
        self._service = service
        self._received = b""
        self._transport: asyncio.Transport
        self._timer: TimerBucket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._service.detectors.add(self)
        kernel = self._service.host.kernel
        self._timer = kernel.timers.start(self, kernel.settings.handshake_timeout)

    def data_received(self, data: bytes) -> None:
        self._received += data
        terminal = self._service.choose(self._received)
        if terminal is not None:
            self._timer.pop(self, None)
            self._service.detectors.discard(self)
            self._transport.set_protocol(terminal)
            terminal.connection_made(self._transport)
            terminal.data_received(self._received)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.pop(self, None)
        self._service.detectors.discard(self)

    def on_timer(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._transport.abort()


class ProtocolService(Protocol):
    """One protocol of a broker: what its connections share."""

    def terminal(self) -> asyncio.Protocol:
        """For a new connection."""

    def close(self) -> None:
        """Called when all connections have ended."""


# A protocol is imported when it is used: idle brokers stay small.


def open_amqp091(host: Host) -> ProtocolService:
    from penstock.protocols.amqp091.terminal import Amqp091Protocol

    return Amqp091Protocol(host)


def open_amqp10(host: Host) -> ProtocolService:
    from penstock.protocols.amqp10.terminal import Amqp10Protocol

    return Amqp10Protocol(host)


def open_mqtt(host: Host) -> ProtocolService:
    from penstock.protocols.mqtt.terminal import MqttProtocol

    return MqttProtocol(host)


def open_padres(host: Host) -> ProtocolService:
    from penstock.protocols.padres.terminal import PadresProtocol

    return PadresProtocol(host)


#: The protocol of each scheme.
SCHEMES: Final[dict[str, Callable[[Host], ProtocolService]]] = {
    "amqp": AmqpService,
    "amqps": AmqpService,
    "amqp10": open_amqp10,
    "amqps10": open_amqp10,
    "mqtt": open_mqtt,
    "mqtts": open_mqtt,
    "ws": open_mqtt,
    "wss": open_mqtt,
    "padres": open_padres,
    "padress": open_padres,
}

# MQTT over WebSocket.
WEBSOCKET_PATHS: Final = frozenset({"/ws", "/mqtt", "/"})
MQTT_SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")


#: Application protocols that TLS clients may select (ALPN); AMQP and PADRES have none.
ALPN_PROTOCOLS: Final = {
    "mqtts": ["mqtt"],
    "wss": ["http/1.1"],
    "https": ["http/1.1"],
}


def tls_context(settings: TlsSettings, scheme: str = "") -> ssl.SSLContext:
    assert settings.certificate is not None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate, settings.key)
        if settings.authority is not None:
            context.load_verify_locations(settings.authority)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"tls: cannot use {settings.certificate}: {error}") from error
    if settings.authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED if settings.verify_peer else ssl.CERT_OPTIONAL
    if scheme in ALPN_PROTOCOLS:
        context.set_alpn_protocols(ALPN_PROTOCOLS[scheme])
    return context


def certificate_expiry(path: Path) -> float:
    """When a certificate expires, in seconds since the epoch."""
    # The standard library has no public reader of certificate files.
    decoded = ssl._ssl._test_decode_cert(str(path))  # type: ignore[attr-defined]
    return ssl.cert_time_to_seconds(decoded["notAfter"])


async def open_listener(
    host: Host,
    service: ProtocolService,
    address: ListenAddress,
    context: ssl.SSLContext | None,
    policy: HostPolicy,
    handshaking: set[WebSocketConnection],
) -> tuple[SocketListener, ListenAddress]:
    """Connections in the WebSocket handshake are added to `handshaking`."""
    settings = host.kernel.settings

    def terminal() -> asyncio.Protocol:
        host.kernel.write_batch.expect()
        return service.terminal()

    def websocket() -> asyncio.Protocol:
        from penstock.server.websocket import WebSocketConnection

        return WebSocketConnection(
            terminal(),
            MQTT_SUBPROTOCOLS,
            WEBSOCKET_PATHS,
            settings.mqtt.max_packet_bytes + KiB,  # MQTT refuses what is larger
            settings.handshake_timeout,
            policy,
            handshaking,
        )

    protocol = websocket if address.scheme in ("ws", "wss") else terminal
    return await bind_listener(host, address, protocol, context)
