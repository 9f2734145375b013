"""Who publishes: writes prebuilt messages, a batch at a time, by one connection or many in turn.

It does not wait: its sockets do not block, and the pump asks it again when they are ready.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from benchmarks.errors import PeerFailed
from benchmarks.harness.latency import Seconds
from benchmarks.harness.rows import Rows
from benchmarks.harness.sockets import Outbox, read


class Answers(Protocol):
    """The stream in which a broker says what it has got, read through the buffer this lends."""

    @property
    def confirmed(self) -> int: ...

    def room(self) -> memoryview: ...

    def took(self, octets: int, published: int) -> int:
        """Take in `octets`, when `published` messages have been; how many are confirmed now."""


class Publisher:
    """Each connection writes `batch` messages, then it is the next one's turn."""

    __slots__ = (
        "_answers",
        "_block",
        "_block_first",
        "_outbox",
        "_outboxes",
        "_rows",
        "batch",
        "confirmed",
        "departures",
        "sent",
        "sockets",
    )

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        rows: Rows,
        total: int,
        batch: int,
        answers: Sequence[Answers] = (),
    ) -> None:
        """The rows' capacity is a multiple of the batch; answers are one for each socket."""
        self.sockets = {sock.fileno(): sock for sock in sockets}
        self.batch = batch
        self.sent = 0
        self.confirmed = 0
        #: When each whole batch left; a shorter one at the end has no latency.
        self.departures: Seconds = np.zeros(total // batch)
        self._answers = dict(zip(self.sockets, answers, strict=True)) if answers else {}
        self._outboxes = [Outbox(sock) for sock in sockets]
        self._outbox = self._outboxes[0]
        self._rows = rows
        self._block = memoryview(b"")
        self._block_first = -rows.capacity

    @property
    def awaits_answers(self) -> bool:
        return bool(self._answers)

    @property
    def descriptor(self) -> int:
        """Of the socket that was written to last: the one that may be full."""
        return self._outbox.descriptor

    def push(self, count: int) -> bool:
        """Write the next `count` messages; false while the socket has not taken all it was given.

        A block of rows is written over only when the last of it has gone.
        """
        if not self._outbox.empty():
            return False
        if not count:
            return True
        rows, sent, batch = self._rows, self.sent, self.batch
        if sent - self._block_first == rows.capacity:
            self._block_first = sent
            self._block = rows.octets(sent, rows.capacity)
        turn = sent // batch
        self._outbox = self._outboxes[turn % len(self._outboxes)]
        start = (sent - self._block_first) * rows.stride
        self.sent = sent + count
        if count == batch:
            self.departures[turn] = time.perf_counter()
        return self._outbox.put(self._block[start : start + count * rows.stride])

    def take(self, descriptor: int) -> None:
        """A socket has something to read: an answer, if we asked for answers."""
        sock, answers = self.sockets[descriptor], self._answers.get(descriptor)
        if answers is None:
            raise PeerFailed(f"the broker said to a publisher: {sock.recv(4096)!r}")
        before = answers.confirmed
        self.confirmed += answers.took(read(sock, answers.room()), self.sent) - before
