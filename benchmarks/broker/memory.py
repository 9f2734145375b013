"""What a broker takes while nothing happens: by itself, and for each connection that stays open.

Connections are opened in groups, all of a group taking each step of the handshake together, and
stay silent after `connection.open-ok`. Memory is read when the broker has stopped growing.
"""

from __future__ import annotations

import resource
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from benchmarks.broker.connection import HANDSHAKE, Connection
from benchmarks.broker.pump import Progress
from benchmarks.errors import PeerFailed
from benchmarks.peers import Peer

CONNECTIONS: Final = 5_000
#: Fewer than the backlog of any listener.
_GROUP: Final = 100
#: Descriptors a process needs beside its connections: files, standard streams, the poll.
_SPARE_DESCRIPTORS: Final = 256
#: A broker has settled when its memory has changed by less than this in a second.
_SETTLED_BYTES: Final = 256 * 1024
_SETTLE_SECONDS: Final = 20


@dataclass(frozen=True, slots=True)
class Footprint:
    peer: str
    connections: int
    idle_bytes: int
    connected_bytes: int

    @property
    def bytes_per_connection(self) -> float:
        return (self.connected_bytes - self.idle_bytes) / self.connections


def raise_descriptor_limit(connections: int) -> None:
    """For this process and those it starts, so before the brokers are started."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _SPARE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise PeerFailed(
            f"{connections} connections need {needed} file descriptors; the hard limit is {hard}"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def footprint(peer: Peer, connections: int, progress: Progress) -> Footprint:
    """To be taken of a broker that was just started: a load before it would leave its mark."""
    idle = _settled(peer)
    with ExitStack() as stack:
        opened = 0
        while opened < connections:
            count = min(_GROUP, connections - opened)
            group = [Connection(peer.port) for _ in range(count)]
            for connection in group:
                stack.callback(connection.close)
            _shake_hands(group)
            opened += count
            progress(opened)
        connected = _settled(peer)
    return Footprint(peer.name, connections, idle, connected)


def _shake_hands(group: list[Connection]) -> None:
    for words, answer in HANDSHAKE:
        for connection in group:
            connection.socket.sendall(words)
        for connection in group:
            connection.expect(answer)


def _settled(peer: Peer) -> int:
    last = peer.usage().rss_bytes
    for _ in range(_SETTLE_SECONDS):
        time.sleep(1)
        now = peer.usage().rss_bytes
        if abs(now - last) < _SETTLED_BYTES:
            return now
        last = now
    return last
