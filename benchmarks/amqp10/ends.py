"""The two ends of a load: one sends transfers, the other takes and checks them.

Each has a connection of its own, with one session and one link, and keeps to what the other side
allows: link credit, the session's window. What arrives is looked at delivery by delivery: the body
begins and ends with its number, in order, and has between them what it was sent with.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

from benchmarks.amqp10 import frames
from benchmarks.amqp10.scenarios import CREDIT, SETTLE, WORK_CREDIT, Scenario
from benchmarks.errors import PeerFailed, WrongDelivery
from benchmarks.harness.latency import Latencies
from benchmarks.harness.rows import Rows, body
from benchmarks.harness.sockets import Outbox
from benchmarks.peers import Peer
from penstock.wire.amqp10.codec import decode
from penstock.wire.amqp10.values import Symbol, UInt

_BUFFER_BYTES = 256 * 1024
_SECONDS = 30.0
_WINDOW = 1 << 30


class Talk:
    """A connection with a session, and frames as they come."""

    def __init__(self, peer: Peer, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", peer.port), _SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.outbox = Outbox(self.socket)
        self._rest = b""
        self.window = 0  #: transfers that the broker will take
        self._open(name)

    def ask(self, request: bytes, code: int) -> list[Any]:
        """Say something, and wait for the answer."""
        self.socket.sendall(request)
        while True:
            for answer, _, _, _ in self.read():
                if answer.descriptor == code:
                    return list(answer.value)

    def read(self) -> list[tuple[Any, bytes, int, int]]:
        """The performatives that have come, and where their frames lie."""
        found = []
        for data, at, stop in self.frames():
            if stop - at > 8:
                value, _ = decode(data, at + 8, stop)
                found.append((value, data, at, stop))
        return found

    def frames(self) -> list[tuple[bytes, int, int]]:
        data = self.socket.recv(_BUFFER_BYTES)
        if not data:
            raise PeerFailed("the broker closed the connection")
        data = self._rest + data
        at, end = 0, len(data)
        found = []
        while end - at >= 8:
            if data[at : at + 4] == b"AMQP":
                at += 8
                continue
            stop = at + int.from_bytes(data[at : at + 4], "big")
            if stop > end:
                break
            found.append((data, at, stop))
            at = stop
        self._rest = data[at:]
        return found

    def close(self) -> None:
        self.socket.setblocking(True)
        with suppress(OSError, PeerFailed):
            self.ask(frames.frame(frames.CLOSE), frames.CLOSE)
        self.socket.close()

    def _open(self, name: str) -> None:
        init = frames.frame(0x41, Symbol("PLAIN"), b"\0guest\0guest", kind=1)
        outcome = self.ask(frames.SASL_HEADER + init, 0x44)
        if outcome[0] != 0:
            raise PeerFailed("the broker does not let guest in")
        opened = frames.frame(frames.OPEN, name, "localhost", UInt(1 << 17))
        self.ask(frames.AMQP_HEADER + opened, frames.OPEN)
        begin = frames.frame(frames.BEGIN, None, UInt(0), UInt(1 << 20), UInt(1 << 20))
        self.window = self.ask(begin, frames.BEGIN)[2]


class Sender:
    def __init__(self, talk: Talk, address: str, scenario: Scenario, messages: int) -> None:
        self._talk = talk
        self._scenario = scenario
        self._messages = messages
        rows = max(1, _BUFFER_BYTES // len(frames.transfers(scenario).octets) // scenario.batch)
        self._rows = Rows(frames.transfers(scenario), rows * scenario.batch)
        self.sent = 0
        self.settled = 0
        self._allowed = 0  #: by link credit
        self._room = talk.window  #: by the session's window
        talk.socket.sendall(frames.attach("sender", False, address, scenario.settled))
        while not self._allowed:
            self.take()
        talk.socket.setblocking(False)

    def take(self) -> None:
        """What the broker says: credit, the window, dispositions."""
        for value, _, _, _ in self._talk.read():
            fields = value.value
            if value.descriptor == frames.FLOW:
                self._room = (fields[0] or 0) + fields[1]
                if len(fields) > 6 and fields[4] is not None and fields[6] is not None:
                    self._allowed = (fields[5] or 0) + fields[6]
            elif value.descriptor == frames.DISPOSITION:
                last = fields[1] if len(fields) < 3 or fields[2] is None else fields[2]
                self.settled = max(self.settled, last + 1)
            elif value.descriptor > frames.DISPOSITION:
                raise PeerFailed(f"the broker ended the sender's link: {fields}")

    def push(self, received: int) -> tuple[bool, int]:
        """Send what is allowed; says whether the socket took it, and how many were sent."""
        if not self._talk.outbox.empty():
            return False, 0
        scenario = self._scenario
        limit = min(self._messages, received + scenario.ahead, self._allowed, self._room)
        if scenario.unsettled:
            limit = min(limit, self.settled + scenario.unsettled)
        count = min(scenario.batch, limit - self.sent)
        # More may be allowed when what is under way has arrived.
        moving = received < self.sent or (scenario.unsettled and self.settled < self.sent)
        if count <= 0 or (count < scenario.batch and limit < self._messages and moving):
            return True, 0
        octets = self._rows.octets(self.sent, count)
        self.sent += count
        return self._talk.outbox.put(octets), count


class Receiver:
    def __init__(self, talk: Talk, address: str, scenario: Scenario) -> None:
        self._talk = talk
        self._settles = not scenario.settled
        self._credit = WORK_CREDIT if self._settles else CREDIT
        self._size = scenario.body
        self._between = body(scenario.body)[8:-8]
        self.received = 0
        self._told = 0  #: settled, or accounted for in credit
        self.latencies: Latencies | None = None
        talk.ask(frames.attach("receiver", True, address, scenario.settled), frames.ATTACH)
        talk.socket.sendall(frames.credit(0, self._credit))
        talk.socket.setblocking(False)

    def take(self, now: float) -> None:
        size, between = self._size, self._between
        for data, at, stop in self._talk.frames():
            if stop - at <= 8 or data[at + 10] != frames.TRANSFER:
                continue
            start = stop - size
            number = int.from_bytes(data[start : start + 8], "big")
            if number != self.received or data[start + 8 : stop - 8] != between:
                raise WrongDelivery(f"message {self.received} expected, {number} received")
            if data[stop - 8 : stop] != data[start : start + 8]:
                raise WrongDelivery(f"message {number} is not what was sent")
            self.received = number + 1
        if self.latencies is not None:
            self.latencies.arrived(self.received, now)

    def push(self, last: bool) -> bool:
        """Settle what has come, and give credit again; true when the socket took it."""
        if not self._talk.outbox.empty():
            return False
        behind = self.received - self._told
        if not behind or (not last and behind < (SETTLE if self._settles else self._credit // 2)):
            return True
        words = frames.credit(self.received, self._credit)
        if self._settles:
            words = frames.accepted(self._told, self.received - 1) + words
        self._told = self.received
        return self._talk.outbox.put(words)
