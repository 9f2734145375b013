"""TCP proxies between processes, which can stall in one direction or both, and be slow."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Final

from tests.peers import free_port

#: Directions: towards the server, and back.
THERE: Final = 0
BACK: Final = 1


class Proxy:
    """A port that leads to another. Stalled bytes are not lost: they arrive when it is healed."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._gates = (threading.Event(), threading.Event())
        self.delay = 0.0
        self.heal()
        self._connections: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self, *directions: int) -> None:
        for direction in directions or (THERE, BACK):
            self._gates[direction].clear()

    def heal(self) -> None:
        self.delay = 0.0
        for gate in self._gates:
            gate.set()

    def close(self) -> None:
        self.heal()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._gates[THERE].wait()
        try:
            server = socket.create_connection(("127.0.0.1", self._target), 5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        self._connections |= {client, server}
        back = threading.Thread(target=self._copy, args=(server, client, BACK), daemon=True)
        back.start()
        self._copy(client, server, THERE)
        back.join()
        self._connections -= {client, server}
        client.close()
        server.close()

    def _copy(self, source: socket.socket, target: socket.socket, direction: int) -> None:
        try:
            while data := source.recv(65536):
                self._gates[direction].wait()
                if self.delay:
                    time.sleep(self.delay)
                target.sendall(data)
        except OSError:
            pass
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
