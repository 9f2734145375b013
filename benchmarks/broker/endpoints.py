"""The two ends of a load: what publishes prebuilt messages, and what reads and checks deliveries.

Neither waits: their sockets do not block, and the pump asks them again when a socket is ready.
"""

from __future__ import annotations

import socket
import time

import numpy as np

from benchmarks.broker import frames
from benchmarks.broker.checker import Checker
from benchmarks.broker.confirms import Confirms
from benchmarks.broker.connection import CHANNEL
from benchmarks.broker.latency import BATCH, Latencies, Seconds
from benchmarks.broker.rows import Rows


class Outbox:
    """A non-blocking socket's way out, with what it has not taken yet."""

    __slots__ = ("_rest", "_socket")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._rest = memoryview(b"")

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


class Publisher:
    """Writes batches of prebuilt messages."""

    __slots__ = (
        "_block",
        "_block_first",
        "_outbox",
        "_rows",
        "confirms",
        "departures",
        "sent",
        "socket",
    )

    def __init__(
        self, sock: socket.socket, rows: Rows, total: int, confirms: Confirms | None
    ) -> None:
        self.socket = sock
        self.sent = 0
        self.confirms = confirms
        #: When each whole batch left; a shorter one at the end has no latency.
        self.departures: Seconds = np.zeros(total // BATCH)
        self._outbox = Outbox(sock)
        self._rows = rows
        self._block = memoryview(b"")
        self._block_first = -rows.capacity

    def push(self, count: int) -> bool:
        """Write the next `count` messages; false while the socket has not taken all it was given.

        A block of rows is written over only when the last of it has gone.
        """
        if not self._outbox.empty():
            return False
        if not count:
            return True
        capacity = self._rows.capacity
        if self.sent - self._block_first == capacity:
            self._block_first = self.sent
            self._block = self._rows.octets(self.sent, capacity)
        if count == BATCH:
            self.departures[self.sent // BATCH] = time.perf_counter()
        start = (self.sent - self._block_first) * self._rows.stride
        self.sent += count
        return self._outbox.put(self._block[start : start + count * self._rows.stride])


class Consumer:
    """Reads and checks deliveries; acknowledges every `BATCH` of them when asked to."""

    __slots__ = (
        "_acknowledged",
        "_acknowledges",
        "_due",
        "_outbox",
        "checker",
        "latencies",
        "socket",
    )

    def __init__(
        self, sock: socket.socket, checker: Checker, latencies: Latencies, *, acknowledges: bool
    ) -> None:
        self.socket = sock
        self.checker = checker
        self.latencies = latencies
        self._acknowledges = acknowledges
        self._acknowledged = 0
        self._due = b""
        self._outbox = Outbox(sock)

    def took(self, octets: int) -> None:
        received = self.checker.took(octets)
        self.latencies.arrived(received, time.perf_counter())
        if self._acknowledges:
            due = received if received == self.checker.total else received - received % BATCH
            while self._acknowledged < due:
                self._acknowledged = min(self._acknowledged + BATCH, due)
                self._due += frames.ack(CHANNEL, self._acknowledged, multiple=True)

    def push(self) -> bool:
        """Write the acknowledgements that are due; false while the socket takes no more."""
        if not self._outbox.empty():
            return False
        due, self._due = self._due, b""
        return self._outbox.put(due)
