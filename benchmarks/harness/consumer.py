"""Who consumes: reads deliveries, has them checked, and acknowledges them when asked to.

It does not wait: its socket does not block, and the pump asks it again when it is ready.
"""

from __future__ import annotations

import socket
import time
from typing import Protocol

from benchmarks.harness.checker import Checker
from benchmarks.harness.latency import Latencies
from benchmarks.harness.sockets import Outbox, read


class Acknowledgements(Protocol):
    def due(self, checker: Checker) -> bytes:
        """What the broker is to be told, now that so much has been received."""


class Consumer:
    __slots__ = ("_acknowledgements", "_due", "_outbox", "checker", "latencies", "socket")

    def __init__(
        self,
        sock: socket.socket,
        checker: Checker,
        latencies: Latencies,
        acknowledgements: Acknowledgements | None = None,
    ) -> None:
        self.socket = sock
        self.checker = checker
        self.latencies = latencies
        self._acknowledgements = acknowledgements
        self._due = b""
        self._outbox = Outbox(sock)

    def take(self) -> None:
        """Its socket has something to read."""
        received = self.checker.took(read(self.socket, self.checker.room()))
        self.latencies.arrived(received, time.perf_counter())
        if self._acknowledgements is not None:
            self._due += self._acknowledgements.due(self.checker)

    def push(self) -> bool:
        """Write the acknowledgements that are due; false while the socket takes no more."""
        if not self._outbox.empty():
            return False
        due, self._due = self._due, b""
        return self._outbox.put(due)
