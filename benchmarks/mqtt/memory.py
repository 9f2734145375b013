"""Idle connections of MQTT 3.1.1: all of a group take each step together, and stay silent after
CONNACK, or after the SUBACK of one subscription to a topic of their own."""

from __future__ import annotations

from typing import Final

from benchmarks.harness.memory import Idleness
from benchmarks.mqtt.connection import Connection
from benchmarks.peers import Peer


def _open(peer: Peer, group: range) -> list[Connection]:
    connections = [Connection(peer.port) for _ in group]
    for connection, index in zip(connections, group, strict=True):
        connection.ask_to_connect(f"idle-{index}")
    for connection in connections:
        connection.connected()
    return connections


def _open_and_subscribe(peer: Peer, group: range) -> list[Connection]:
    connections = _open(peer, group)
    for connection, index in zip(connections, group, strict=True):
        connection.ask_to_subscribe(f"commands/sensor/{index}", 1)
    for connection in connections:
        connection.subscribed(1)
    return connections


IDLE: Final = Idleness("connections", _open)
SUBSCRIBED: Final = Idleness("subscribers", _open_and_subscribe)
