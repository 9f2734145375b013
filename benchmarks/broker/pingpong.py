"""One message in flight: publish, wait for the delivery, publish the next.

What is measured is the broker's and the kernel's shortest way. Deliveries are therefore checked a
thousand at a time, between two round trips, not within them.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.errors import PeerFailed
from benchmarks.harness.checker import Checker
from benchmarks.harness.latency import Seconds
from benchmarks.harness.pump import Progress
from benchmarks.harness.rows import Rows

_STALL: Final = struct.pack("ll", 30, 0)


def ping_pong(
    publisher: socket.socket,
    consumer: socket.socket,
    published: Rows,
    checker: Checker,
    progress: Progress,
) -> Seconds:
    """The seconds of each round trip. The rows' capacity is the number between two checks."""
    for sock in (publisher, consumer):
        # The kernel's own time limit: Python's would cost another system call at each read.
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _STALL)
    seconds: Seconds = np.zeros(checker.total)
    while checker.received < checker.total:
        first = checker.received
        count = min(published.capacity, checker.total - first)
        balls = published.octets(first, count)
        rally = _Rally(publisher, consumer, balls, published.stride, checker.stride)
        arrived = rally.play(checker.room(), seconds[first : first + count])
        checker.took(arrived)
        progress(checker.received)
    return seconds


@dataclass(frozen=True, slots=True)
class _Rally:
    """Some round trips in a row: `balls` go out, `out` octets each, and come back as `back`."""

    publisher: socket.socket
    consumer: socket.socket
    balls: memoryview
    out: int
    back: int

    def play(self, room: memoryview, seconds: Seconds) -> int:
        """Fills in the seconds of each; returns how many octets arrived in `room`."""
        arrived = 0
        for index in range(len(seconds)):
            ball = self.balls[index * self.out : (index + 1) * self.out]
            due = (index + 1) * self.back
            began = time.perf_counter()
            self.publisher.sendall(ball)
            while arrived < due:
                arrived += _read(self.consumer, room[arrived:])
            seconds[index] = time.perf_counter() - began
        return arrived


def _read(consumer: socket.socket, room: memoryview) -> int:
    try:
        octets = consumer.recv_into(room)
    except BlockingIOError:
        raise PeerFailed("a message was published and does not arrive") from None
    if not octets:
        raise PeerFailed("the broker closed the connection")
    return octets
