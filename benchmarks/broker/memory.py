"""Idle connections of AMQP 0-9-1: all of a group take each step of the handshake together, and
stay silent after `connection.open-ok`."""

from __future__ import annotations

from typing import Final

from benchmarks.broker.connection import HANDSHAKE, Connection
from benchmarks.harness.memory import Idleness
from benchmarks.peers import Peer


def _open(peer: Peer, group: range) -> list[Connection]:
    connections = [Connection(peer.port) for _ in group]
    for words, answer in HANDSHAKE:
        for connection in connections:
            connection.socket.sendall(words)
        for connection in connections:
            connection.expect(answer)
    return connections


IDLE: Final = Idleness("connections", _open)
