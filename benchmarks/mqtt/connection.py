"""A connection to a broker for what happens before and after the load: open, subscribe, and shut.

Blocking, one question at a time. During the load the socket belongs to the pump.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.errors import PeerFailed
from benchmarks.mqtt import packets
from benchmarks.peers import Peer

#: What a broker is given to answer one question.
_ANSWER_SECONDS: Final = 60.0
#: Longer than any run: no pings between deliveries. Brokers pay for their timers all the same.
_KEEP_ALIVE: Final = 600
_SUBSCRIBE_NUMBER: Final = 1
#: What may go unanswered when a broker does not say.
_UNANSWERED: Final = 65535


class Connection:
    """One socket, one client. After `connect` it may be asked to `subscribe` and to `settle`."""

    __slots__ = ("_version", "receive_maximum", "socket")

    def __init__(self, port: int, version: int = packets.V3) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.receive_maximum = _UNANSWERED  #: how many publications the broker lets go unanswered
        self._version = version

    # Questions and answers apart, for those who ask many brokers' connections at once.

    def ask_to_connect(self, client_id: str) -> None:
        words = packets.connect(self._version, client_id, _KEEP_ALIVE, "guest", "guest")
        self.socket.sendall(words)

    def connected(self) -> None:
        answer = self._expect(packets.CONNACK)
        if answer[1]:
            raise PeerFailed(f"the broker refused a connection: reason {answer[1]:#04x}")
        if self._version == packets.V5:
            self.receive_maximum = _receive_maximum(answer[3:])

    def ask_to_subscribe(self, topic_filter: str, qos: int) -> None:
        words = packets.subscribe(self._version, _SUBSCRIBE_NUMBER, topic_filter, qos)
        self.socket.sendall(words)

    def subscribed(self, qos: int) -> None:
        granted = self._expect(packets.SUBACK)[-1]
        if granted != qos:
            raise PeerFailed(f"asked for QoS {qos}, the broker granted {granted:#04x}")

    def settle(self) -> None:
        """An answer means that the broker has handled all that came before. Whatever it still had
        to deliver comes before that, and fails the expectation."""
        self.socket.settimeout(_ANSWER_SECONDS)
        self.socket.sendall(packets.PINGREQ)
        self._expect(packets.PINGRESP[0])

    def close(self) -> None:
        """Without the farewell: brokers must bear that, and there is nothing left to lose."""
        self.socket.close()

    def _expect(self, first: int) -> bytes:
        """The body of the packet that must come next; none here is longer than 127 octets."""
        came, size = self._read(2)
        body = self._read(size)
        if came != first:
            raise PeerFailed(f"expected a packet {first:#04x}, got {bytes((came, size)) + body!r}")
        return body

    def _read(self, size: int) -> bytes:
        octets = b""
        while len(octets) < size:
            more = self.socket.recv(size - len(octets))
            if not more:
                raise PeerFailed(f"the broker closed the connection; its last octets: {octets!r}")
            octets += more
        return octets


@contextmanager
def connected(peer: Peer, version: int, client_id: str) -> Iterator[Connection]:
    connection = Connection(peer.port, version)
    try:
        connection.ask_to_connect(client_id)
        connection.connected()
        yield connection
    finally:
        connection.close()


def _receive_maximum(properties: bytes) -> int:
    """Those of CONNACK, as far as they have a fixed size; text comes after it in all brokers."""
    at = 0
    while at < len(properties):
        name = properties[at]
        if name == packets.RECEIVE_MAXIMUM:
            return int.from_bytes(properties[at + 1 : at + 3])
        if name not in packets.PROPERTY_BYTES:
            break
        at += 1 + packets.PROPERTY_BYTES[name]
    return _UNANSWERED
