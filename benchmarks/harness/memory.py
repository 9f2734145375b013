"""What a broker takes while nothing happens: by itself, and for each connection that stays open.

Connections are opened in groups, and stay silent. Memory is read when the broker has stopped
growing.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Protocol

from benchmarks.errors import PeerFailed
from benchmarks.harness.pump import Progress
from benchmarks.peers import Peer

CONNECTIONS: Final = 5_000
#: Fewer than the backlog of any listener.
_GROUP: Final = 100
#: Descriptors a process needs beside its connections: files, standard streams, the poll.
_SPARE_DESCRIPTORS: Final = 256
#: A broker has settled when its memory has changed by less than this in a second.
_SETTLED_BYTES: Final = 256 * 1024
_SETTLE_SECONDS: Final = 20


class Closable(Protocol):
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Idleness:
    """Connections that do nothing, and how a group of them is opened."""

    title: str  #: what they are, after their number: "connections"
    open: Callable[[Peer, range], Sequence[Closable]]


@dataclass(frozen=True, slots=True)
class Footprint:
    peer: str
    title: str
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


def footprint(peer: Peer, idleness: Idleness, connections: int, progress: Progress) -> Footprint:
    """To be taken of a broker that was just started: a load before it would leave its mark."""
    idle = _settled(peer)
    with ExitStack() as stack:
        opened = 0
        while opened < connections:
            group = range(opened, min(opened + _GROUP, connections))
            for connection in idleness.open(peer, group):
                stack.callback(connection.close)
            opened = group.stop
            progress(opened)
        connected = _settled(peer)
    return Footprint(peer.name, idleness.title, connections, idle, connected)


def _settled(peer: Peer) -> int:
    last = peer.usage().rss_bytes
    for _ in range(_SETTLE_SECONDS):
        time.sleep(1)
        now = peer.usage().rss_bytes
        if abs(now - last) < _SETTLED_BYTES:
            return now
        last = now
    return last
