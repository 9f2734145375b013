"""How small messages fare while a huge one passes: `python -m benchmarks.big_message`.

One connection plays ping-pong with a small message, first alone, then while another process sends
a message of many megabytes through the broker: straight to a waiting consumer, and through a
durable queue with a confirm. Printed are the round trips' p50 and p99, their ratio to the idle
ones, the rate of the big message and how much the broker's memory grew at its peak.

The bar is a p99 of at most twice the idle one and less than 128 MiB of growth. The process that
carries the big message runs at a lower priority: on a machine with few cores it would otherwise
take the processor from the broker, and that would be measured instead.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.broker import frames
from benchmarks.broker.connection import CHANNEL, connect
from benchmarks.errors import PeerFailed
from benchmarks.harness.latency import percentile
from benchmarks.peers import Peer, start_penstock

_MIB: Final = 1 << 20
_FRAME_BYTES: Final = 131072 - 8
_IDLE_SECONDS: Final = 3.0
_NICENESS: Final = 10


@dataclass(frozen=True, slots=True)
class Row:
    """One regime: what passed meanwhile, and how the small messages fared."""

    regime: str
    seconds: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    bulk_rate: float
    grown_bytes: int


def ping_pong(port: int, over: Callable[[], bool]) -> list[float]:
    """Round trips of a 16-byte message until it is over."""
    connection = connect(port)
    connection.declare_queue("ping-pong")
    connection.consume("ping-pong", "p", prefetch=0)
    ball = frames.publish(CHANNEL, "", "ping-pong")
    ball += frames.content(CHANNEL, bytes(16), persistent=False)
    seconds: list[float] = []
    while not over():
        began = time.perf_counter()
        connection.socket.sendall(ball)
        _read_delivery(connection.socket.recv)
        seconds.append(time.perf_counter() - began)
    connection.delete_queue("ping-pong")
    connection.close()
    return seconds


def _read_delivery(receive: Callable[[int], bytes]) -> None:
    """Read up to the end of the 16-byte body: it is the last thing in a delivery."""
    arrived = b""
    ending = frames.frame(frames.BODY, CHANNEL, bytes(16))
    while not arrived.endswith(ending):
        data = receive(65536)
        if not data:
            raise PeerFailed("the broker closed the connection")
        arrived += data


def carry(port: int, size: int, durable: bool, done: Event) -> None:
    """In a process of its own: bring one big message through the broker."""
    os.nice(_NICENESS)
    sender, receiver = connect(port), connect(port)
    sender.declare_queue("big", durable=durable)
    if durable:
        sender.select_confirms()
        _send(sender.socket.sendall, size, persistent=True)
        sender.expect(frames.BASIC_ACK)
        receiver.consume("big", "b", prefetch=0)
        _receive(receiver.socket.recv_into, size)
    else:
        receiver.consume("big", "b", prefetch=0)
        reading = threading.Thread(target=_receive, args=(receiver.socket.recv_into, size))
        reading.start()
        _send(sender.socket.sendall, size, persistent=False)
        reading.join()
    sender.delete_queue("big")
    done.set()


def _send(send: Callable[[bytes], None], size: int, *, persistent: bool) -> None:
    properties = struct.pack(">HB", 1 << 12, 2) if persistent else bytes(2)
    header = struct.pack(">HHQ", frames.BASIC_PUBLISH[0], 0, size) + properties
    send(frames.publish(CHANNEL, "", "big") + frames.frame(frames.HEADER, CHANNEL, header))
    whole = frames.frame(frames.BODY, CHANNEL, bytes(_FRAME_BYTES))
    for _ in range(size // _FRAME_BYTES):
        send(whole)
    if rest := size % _FRAME_BYTES:
        send(frames.frame(frames.BODY, CHANNEL, bytes(rest)))


def _receive(receive_into: Callable[[bytearray], int], size: int) -> None:
    """Count octets: the tests check what they are."""
    room = bytearray(_MIB)
    received = 0
    while received < size:
        octets = receive_into(room)
        if not octets:
            raise PeerFailed("the broker closed the connection")
        received += octets


def measure_idle(peer: Peer) -> Row:
    end = time.monotonic() + _IDLE_SECONDS
    seconds = ping_pong(peer.port, lambda: time.monotonic() > end)
    return Row("idle", np.array(seconds), 0.0, 0)


def measure_with(peer: Peer, size: int, durable: bool) -> Row:
    context = multiprocessing.get_context("spawn")
    done = context.Event()
    before = peer.usage().rss_bytes
    bulk = context.Process(target=carry, args=(peer.port, size, durable, done))
    bulk.start()
    began = time.monotonic()
    seconds = ping_pong(peer.port, lambda: done.is_set() or not bulk.is_alive())
    took = time.monotonic() - began
    bulk.join()
    if bulk.exitcode:
        raise PeerFailed("the big message did not pass")
    regime = "through a durable queue" if durable else "to a waiting consumer"
    return Row(regime, np.array(seconds), size / took, _peak_bytes(peer) - before)


def _peak_bytes(peer: Peer) -> int:
    status = Path(f"/proc/{peer.processes[0].pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def report(rows: list[Row], size: int) -> Table:
    table = Table(title=f"Small messages beside one of {size // _MIB} MiB")
    for heading in (
        "big message",
        "round trips",
        "p50 µs",
        "p99 µs",
        "p99 / idle",
        "MiB/s",
        "grown",
    ):
        table.add_column(heading, justify="left" if heading == "big message" else "right")
    idle = percentile(rows[0].seconds, 99)
    for row in rows:
        p50, p99 = percentile(row.seconds, 50), percentile(row.seconds, 99)
        table.add_row(
            row.regime,
            f"{len(row.seconds):,}",
            f"{p50 * 1e6:.0f}",
            f"{p99 * 1e6:.0f}",
            f"{p99 / idle:.2f}",
            f"{row.bulk_rate / _MIB:.0f}" if row.bulk_rate else "",
            f"{row.grown_bytes / _MIB:.0f} MiB" if row.bulk_rate else "",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.big_message")
    parser.add_argument("--mebibytes", type=int, default=2048, help="the size of the big message")
    size = parser.parse_args().mebibytes * _MIB
    with tempfile.TemporaryDirectory(prefix="penstock-big-") as folder:
        peer = start_penstock(Path(folder))
        try:
            measure_idle(peer)  # to warm up
            rows = [measure_idle(peer)]
            rows += [measure_with(peer, size, durable) for durable in (False, True)]
        finally:
            peer.close()
    Console().print(report(rows, size))


if __name__ == "__main__":
    main()
