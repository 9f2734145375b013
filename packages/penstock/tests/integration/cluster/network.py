"""TCP proxies between processes, which can stall in one direction or both, and be slow.

They are what is between members where these cannot have network namespaces.
"""

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

    def __init__(self, target: int | str, host: str = "127.0.0.1") -> None:
        """The target is a port of this machine, or the path of a socket."""
        self.port = free_port()
        self._target = target
        self._gates = (threading.Event(), threading.Event())
        self.delay = 0.0
        self.heal()
        self._connections: set[socket.socket] = set()
        self._listening = socket.create_server((host, self.port))
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
            if isinstance(self._target, str):
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
            else:
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


class ProxyLinks:
    """What a member reaches, and who reaches it, by proxies."""

    host: Final = "127.0.0.1"
    prefix: Final[tuple[str, ...]] = ()  #: of its command

    def __init__(self, coordinator: int | str, replication: int) -> None:
        self._to_coordinator = Proxy(coordinator)
        self._from_followers = Proxy(replication)  # while it leads
        self.coordinator = f"127.0.0.1:{self._to_coordinator.port}"
        self.advertised = f"127.0.0.1:{self._from_followers.port}"

    def cut_off_coordinator(self) -> None:
        self._to_coordinator.stall()

    def lose_changes(self) -> None:
        """Of this leader, on their way to followers."""
        self._from_followers.stall(BACK)

    def lose_acknowledgements(self) -> None:
        """Of followers, on their way to this leader."""
        self._from_followers.stall(THERE)

    def slow_down(self) -> None:
        self._from_followers.delay = 0.05

    def heal(self) -> None:
        self._to_coordinator.heal()
        self._from_followers.heal()

    def close(self) -> None:
        self._to_coordinator.close()
        self._from_followers.close()
