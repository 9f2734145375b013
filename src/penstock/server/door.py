"""Where connections come in: listening sockets, and a terminal for each who arrives.

On the broker's own loop a plain connection gets our own transport; one with TLS, or on another
loop, gets asyncio's. Whether there is room for one more is for the admission to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.broker.admission import Admission, Stranger
from penstock.core.logs import get_logger
from penstock.server.poll import BrokerLoop
from penstock.server.transport import SocketTransport

#: Connections let in before others have their turn.
AT_ONCE: Final = 64
#: Connections the system holds for us before we accept them.
BACKLOG: Final = 1024
#: How long the door stays shut when the system has no room for one more.
REST_SECONDS: Final = 1.0
#: The system's words for that.
NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_log = get_logger("penstock.door")


class Door:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        protocol: Callable[[], asyncio.Protocol],
        admission: Admission,
        context: ssl.SSLContext | None = None,
        handshake_seconds: float | None = None,
    ) -> None:
        """With a context, connections speak TLS; a handshake may take so long."""
        self._loop = loop
        self._protocol = protocol
        self._admission = admission
        self._context = context
        self._handshake_seconds = handshake_seconds if context is not None else None
        self._handshakes: set[asyncio.Task[None]] = set()
        self.sockets = sockets
        for listening in sockets:
            self._open(listening)

    def _open(self, listening: socket.socket) -> None:
        if listening in self.sockets:
            self._loop.add_reader(listening.fileno(), self._let_in, listening)

    def _let_in(self, listening: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                _log.error("no room for a connection", error=error.strerror)
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(REST_SECONDS, self._open, listening)
                return
            if self._admission.has_room(connection):
                self._receive(connection, peer)
            else:
                connection.close()

    def _receive(self, connection: socket.socket, peer: Any) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None and isinstance(self._loop, BrokerLoop):
            transport = SocketTransport(self._loop, connection, peer, self._protocol())
            self._admission.enter(connection, peer[0], transport.abort)
            return
        stranger = self._admission.enter(connection, peer[0], partial(_hang_up, connection))
        task = self._loop.create_task(self._shake_hands(connection, stranger))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, connection: socket.socket, stranger: Stranger) -> None:
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                self._protocol,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_seconds,
            )
        except OSError as error:  # of TLS as well
            _log.info("handshake failed", peer=stranger.address, error=str(error))
            connection.close()
        else:
            stranger.abort = transport.abort

    def close(self) -> None:
        """Those who are in stay in."""
        sockets, self.sockets = self.sockets, []
        for listening in sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        for task in list(self._handshakes):
            task.cancel()


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


async def open_door(
    loop: asyncio.AbstractEventLoop,
    host: str,
    port: int,
    protocol: Callable[[], asyncio.Protocol],
    admission: Admission,
    context: ssl.SSLContext | None = None,
    handshake_seconds: float | None = None,
) -> Door:
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
    return Door(loop, sockets, protocol, admission, context, handshake_seconds)
