"""Where connections come in: listening sockets, and a terminal for each who arrives."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final

from penstock.core.logs import get_logger
from penstock.server.poll import BrokerLoop
from penstock.server.transport import SocketTransport

#: Connections let in before others have their turn.
AT_ONCE: Final = 64
#: How long the door stays shut when the system has no room for one more.
REST_SECONDS: Final = 1.0
#: The system's words for that.
NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_log = get_logger("penstock.door")


class Door:
    def __init__(
        self,
        loop: BrokerLoop,
        sockets: list[socket.socket],
        protocol: Callable[[], asyncio.Protocol],
    ) -> None:
        self._loop = loop
        self._protocol = protocol
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
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            SocketTransport(self._loop, connection, peer, self._protocol())

    def close(self) -> None:
        """Those who are in stay in."""
        sockets, self.sockets = self.sockets, []
        for listening in sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()


async def open_door(
    loop: BrokerLoop,
    host: str,
    port: int,
    protocol: Callable[[], asyncio.Protocol],
    backlog: int,
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
            listening.listen(backlog)
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    return Door(loop, sockets, protocol)
