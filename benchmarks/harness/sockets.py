"""Non-blocking sockets: what they take, and what they bring."""

from __future__ import annotations

import socket

from benchmarks.errors import PeerFailed


class Outbox:
    """A socket's way out, with what it has not taken yet."""

    __slots__ = ("_rest", "_socket")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._rest = memoryview(b"")

    @property
    def descriptor(self) -> int:
        return self._socket.fileno()

    def empty(self) -> bool:
        """Push what is left; true when all has gone."""
        while self._rest:
            try:
                self._rest = self._rest[self._socket.send(self._rest) :]
            except BlockingIOError:
                return False
        return True

    def put(self, octets: memoryview | bytes) -> bool:
        """Takes more, only after all has gone; true when this has gone too."""
        self._rest = memoryview(octets)
        return self.empty()


def read(sock: socket.socket, room: memoryview) -> int:
    """How many octets were there; there must be some."""
    octets = sock.recv_into(room)
    if not octets:
        raise PeerFailed("the broker closed the connection under load")
    return octets
