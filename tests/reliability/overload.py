"""Overload: what others wait, and how much memory the broker takes, while some ask too much.

Many idle connections, consumers that do not read, and publishers that flood a durable queue which
nobody empties. Meanwhile a bystander publishes a message to a queue of its own and waits for it,
again and again: first beside an idle broker, then beside the overload. At the same time another
bystander does so on a broker with nothing to do: what it waits is due to the machine.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from pika import frame, spec

from penstock.core.resources import raise_descriptor_limit
from tests.integration.amqp091.wire import Wire, message_bytes, method_bytes
from tests.integration.load import PERSISTENT
from tests.peers import Penstock, peak_bytes
from tests.reliability.records import Records

MIB: Final = 1 << 20
BODY_BYTES: Final = 16 * 1024
PATIENCE: Final = 600.0
#: Connections that are opened at a time.
CONNECTING: Final = 32
#: Between two messages of the bystander.
PAUSE_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True)
class Overload:
    connections: int = 10_000
    slow_consumers: int = 100
    publishers: int = 8
    queue_bytes: int = 10 << 30
    memory_bytes: int = 256 * MIB
    idle_seconds: float = 20.0


def measure(overload: Overload) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="overload-")))
        # Of the limit, connections and the interpreter need a part that grows with the connections.
        budget = f"{overload.memory_bytes // 4 // MIB}MiB"
        limits = ("--set", f"broker.memory_budget={budget}", "--set", "broker.disk_free_limit=1GiB")
        brokers = [Penstock(folder / name, *limits) for name in ("flooded", "idle")]
        for broker in brokers:
            stack.callback(broker.kill)
            broker.start()
        return _measure(brokers[0], brokers[1], overload)


def _measure(broker: Penstock, idle_broker: Penstock, overload: Overload) -> dict[str, Any]:
    [idle] = _bystand([broker.port], lambda: time.sleep(overload.idle_seconds))
    with ExitStack() as stack:
        flood = Flood(broker, overload)
        start = time.monotonic()
        ports = [broker.port, idle_broker.port]
        beside, on_idle_broker = _bystand(ports, lambda: flood.run(stack))
        return {
            "connections": overload.connections,
            "slow_consumers": overload.slow_consumers,
            "publishers": overload.publishers,
            "queue_bytes": flood.bytes,
            "idle_p99_ms": _percentile(idle, 99),
            # Of a broker with nothing to do, while the machine is as busy.
            "idle_broker_p50_ms": _percentile(on_idle_broker, 50),
            "idle_broker_p99_ms": _percentile(on_idle_broker, 99),
            "p50_ms": _percentile(beside, 50),
            "p99_ms": _percentile(beside, 99),
            "max_ms": _percentile(beside, 100),
            "limit_mb": overload.memory_bytes // MIB,
            "peak_mb": peak_bytes(broker.pid) // MIB,
            "seconds": round(time.monotonic() - start, 1),
        }


class Flood:
    def __init__(self, broker: Penstock, overload: Overload) -> None:
        self._broker = broker
        self._overload = overload
        self.bytes = 0

    def run(self, stack: ExitStack) -> None:
        raise_descriptor_limit()
        self._connect().call(1, spec.Queue.Declare(queue="flooded", durable=True))
        with ThreadPoolExecutor(CONNECTING) as pool:
            count = self._overload.connections + self._overload.slow_consumers
            wires = list(pool.map(lambda _: self._connect(), range(count)))
        for wire in wires:
            stack.callback(wire.socket.close)
        for wire in wires[: self._overload.slow_consumers]:
            wire.send(method_bytes(1, spec.Basic.Consume(queue="flooded")))
        each = self._overload.queue_bytes // self._overload.publishers
        threads = [
            threading.Thread(target=self._publish, args=(each,))
            for _ in range(self._overload.publishers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _publish(self, size: int) -> None:
        body = b"x" * BODY_BYTES
        batch = message_bytes(1, body, routing_key="flooded", properties=PERSISTENT) * 16
        with self._connect() as wire:
            for _ in range(size // (16 * BODY_BYTES)):
                wire.send(batch)
            wire.ping()  # answered when all before it has been read
        self.bytes += size

    def _connect(self) -> Wire:
        wire = Wire(self._broker.port, PATIENCE)
        wire.negotiate()
        wire.open_channel()
        return wire


def _bystand(ports: list[int], meanwhile: Callable[[], object]) -> list[list[float]]:
    """The seconds that each message took, of a bystander of each broker."""
    context = get_context("spawn")
    pipes = [context.Pipe() for _ in ports]
    processes = [
        context.Process(target=_exchange_messages, args=(port, theirs))
        for port, (_, theirs) in zip(ports, pipes, strict=True)
    ]
    for process in processes:
        process.start()
    for ours, _ in pipes:
        assert ours.poll(PATIENCE), "the bystander was not served"
        ours.recv()
    meanwhile()
    for ours, _ in pipes:
        ours.send(None)
    found: list[list[float]] = [ours.recv() for ours, _ in pipes]
    for process in processes:
        process.join()
    return found


def _exchange_messages(port: int, told: Connection) -> None:
    waits: list[float] = []
    with Wire(port, PATIENCE) as wire:
        wire.negotiate()
        wire.open_channel()
        wire.call(1, spec.Queue.Declare(queue="bystander", exclusive=True))
        wire.call(1, spec.Basic.Consume(queue="bystander", no_ack=True))
        told.send(None)
        while not told.poll(PAUSE_SECONDS):
            start = time.monotonic()
            wire.send(message_bytes(1, b"?", routing_key="bystander"))
            while not isinstance(wire.receive(), frame.Body):
                pass
            waits.append(time.monotonic() - start)
    told.send(waits)


def _percentile(waits: list[float], percent: int) -> float:
    ordered = sorted(waits)
    return round(1000 * ordered[min(len(ordered) - 1, len(ordered) * percent // 100)], 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, required=True, help="a line for each run")
    parser.add_argument("--connections", type=int, default=Overload().connections)
    parser.add_argument("--slow-consumers", type=int, default=Overload().slow_consumers)
    parser.add_argument("--queue-bytes", type=int, default=Overload().queue_bytes)
    options = parser.parse_args()
    records = Records(options.results)
    overload = Overload(
        options.connections, options.slow_consumers, queue_bytes=options.queue_bytes
    )
    records.add(**measure(overload))


if __name__ == "__main__":
    main()
