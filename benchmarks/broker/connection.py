"""A connection to a broker for what happens before and after the load: topology, and open and shut.

Blocking, one channel, one question at a time. During the load the socket belongs to the pump.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from benchmarks.broker import frames
from benchmarks.broker.frames import Method, short_string
from benchmarks.errors import PeerFailed

CHANNEL: Final = 1

#: What a broker is given to answer one question; declaring takes milliseconds.
_ANSWER_SECONDS: Final = 60.0
_FRAME_MAX: Final = 131072
_CREDENTIALS: Final = b"\x00guest\x00guest"

START_OK: Final = frames.method(
    0,
    frames.CONNECTION_START_OK,
    frames.EMPTY_TABLE
    + short_string("PLAIN")
    + frames.long_string(_CREDENTIALS)
    + short_string("en_US"),
)
#: One channel. No heartbeats: they would stand between deliveries.
TUNE_OK: Final = frames.method(0, frames.CONNECTION_TUNE_OK, struct.pack(">HIH", 1, _FRAME_MAX, 0))
OPEN: Final = frames.method(0, frames.CONNECTION_OPEN, short_string("/") + bytes(2))

#: The opening of a connection: what we say, and the method that answers it.
HANDSHAKE: Final[tuple[tuple[bytes, Method], ...]] = (
    (frames.PROTOCOL_HEADER, frames.CONNECTION_START),
    (START_OK, frames.CONNECTION_TUNE),
    (TUNE_OK + OPEN, frames.CONNECTION_OPEN_OK),
)


class Connection:
    """One socket; after `open_channel`, questions about topology go through `call`."""

    __slots__ = ("socket",)

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def handshake(self) -> None:
        for words, answer in HANDSHAKE:
            self.socket.sendall(words)
            self.expect(answer)

    def open_channel(self) -> None:
        self.call(frames.CHANNEL_OPEN, bytes(1), frames.CHANNEL_OPEN_OK)

    def call(self, name: Method, arguments: bytes, answer: Method) -> bytes:
        self.socket.sendall(frames.method(CHANNEL, name, arguments))
        return self.expect(answer)

    def expect(self, answer: Method) -> bytes:
        """The arguments of the method that must come next."""
        kind, _, size = frames.PROLOGUE.unpack(self._read(frames.PROLOGUE.size))
        payload = self._read(size + 1)[:-1]
        name = struct.unpack_from(">HH", payload)
        if kind == frames.METHOD and name == answer:
            return payload[4:]
        raise PeerFailed(f"expected method {answer}, got {_describe(kind, name, payload[4:])}")

    def close(self) -> None:
        """Without the farewell: brokers must bear that, and there is nothing left to lose."""
        self.socket.close()

    def declare_exchange(self, name: str, kind: str) -> None:
        arguments = bytes(2) + short_string(name) + short_string(kind) + bytes(1)
        self.call(
            frames.EXCHANGE_DECLARE, arguments + frames.EMPTY_TABLE, frames.EXCHANGE_DECLARE_OK
        )

    def delete_exchange(self, name: str) -> None:
        arguments = bytes(2) + short_string(name) + bytes(1)
        self.call(frames.EXCHANGE_DELETE, arguments, frames.EXCHANGE_DELETE_OK)

    def declare_queue(self, name: str, *, durable: bool = False) -> None:
        flags = bytes([2 if durable else 0])
        arguments = bytes(2) + short_string(name) + flags + frames.EMPTY_TABLE
        self.call(frames.QUEUE_DECLARE, arguments, frames.QUEUE_DECLARE_OK)

    def bind(self, queue: str, exchange: str, key: str) -> None:
        names = short_string(queue) + short_string(exchange) + short_string(key)
        arguments = bytes(2) + names + bytes(1) + frames.EMPTY_TABLE
        self.call(frames.QUEUE_BIND, arguments, frames.QUEUE_BIND_OK)

    def delete_queue(self, name: str) -> int:
        """How many messages were in it."""
        answer = self.call(
            frames.QUEUE_DELETE, bytes(2) + short_string(name) + bytes(1), frames.QUEUE_DELETE_OK
        )
        return int.from_bytes(answer)

    def select_confirms(self) -> None:
        self.call(frames.CONFIRM_SELECT, bytes(1), frames.CONFIRM_SELECT_OK)

    def consume(self, queue: str, tag: str, *, prefetch: int) -> None:
        """Deliveries come without acknowledgements when there is no prefetch."""
        if prefetch:
            limits = struct.pack(">IH?", 0, prefetch, False)
            self.call(frames.BASIC_QOS, limits, frames.BASIC_QOS_OK)
        flags = bytes([0 if prefetch else 2])
        arguments = bytes(2) + short_string(queue) + short_string(tag) + flags + frames.EMPTY_TABLE
        self.call(frames.BASIC_CONSUME, arguments, frames.BASIC_CONSUME_OK)

    def cancel(self, tag: str) -> None:
        """Whatever was still delivered comes before the answer, and fails the expectation."""
        self.call(frames.BASIC_CANCEL, short_string(tag) + bytes(1), frames.BASIC_CANCEL_OK)

    def _read(self, size: int) -> bytes:
        octets = b""
        while len(octets) < size:
            more = self.socket.recv(size - len(octets))
            if not more:
                raise PeerFailed(f"the broker closed the connection; its last octets: {octets!r}")
            octets += more
        return octets


def connect(port: int) -> Connection:
    """A connection with its channel open."""
    connection = Connection(port)
    connection.handshake()
    connection.open_channel()
    return connection


def _describe(kind: int, name: tuple[int, ...], arguments: bytes) -> str:
    if kind != frames.METHOD:
        return f"a frame of type {kind}"
    if name in (frames.CONNECTION_CLOSE, frames.CHANNEL_CLOSE):
        code, length = struct.unpack_from(">HB", arguments)
        return f"a close: {code} {arguments[3 : 3 + length].decode()}"
    return f"method {name}"
