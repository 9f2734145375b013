"""`python -m benchmarks.scale`: a broker with very many topics, queues or messages.

What a subscription to all of 100,000 retained topics costs, beside mosquitto; what 50,000 durable
queues take, and how long a broker with them takes to start; the memory of a million retained topics
together with 100,000 queues; and the start with a million messages in a queue.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final, NamedTuple

import typer

from benchmarks.broker import frames
from benchmarks.broker.connection import CHANNEL, connect
from benchmarks.broker.layout import Layout
from benchmarks.harness.command import names
from benchmarks.harness.page import put_chapter
from benchmarks.harness.rounds import running
from benchmarks.harness.rows import Key
from benchmarks.mqtt import packets
from benchmarks.mqtt.connection import connected
from benchmarks.peers import MQTT_STARTERS, Peer, available, free_port, start_penstock

RETAINED_TOPICS: Final = 100_000
DURABLE_QUEUES: Final = 50_000
MOST_TOPICS: Final = 1_000_000
MOST_QUEUES: Final = 100_000
QUEUED_MESSAGES: Final = 1_000_000

_RETAIN: Final = 1
_TOGETHER: Final = 1000  #: requests in one write
_READ_BYTES: Final = 1 << 18
_COLUMNS: Final = ("work", "figure", "value", "bar")
_ACCOUNT: Final = """# Many topics, queues and messages

`{command}`. Retained messages have 8 bytes, queued ones 16; these are persistent.
Memory is resident memory. A broker is ready when its line on standard output says so. The load
average of the machine ({cores} cores) was {load:.1f} at the start.

{table}
"""


class Figure(NamedTuple):
    work: str
    name: str
    value: float
    unit: str
    bar: float | None = None  #: the most that is wanted

    def row(self) -> tuple[str, ...]:
        bar = "" if self.bar is None else f"{self.bar:,g} {self.unit}"
        return (self.work, self.name, f"{self.value:,.2f} {self.unit}", bar)


def retained() -> Iterator[Figure]:
    """CPU seconds of a broker for a subscription to `#`, without the publications before it."""
    work = f"`#` on {RETAINED_TOPICS:,} retained topics"
    fewest = math.inf
    for name in ("mosquitto", "mosquitto-2.1", "penstock"):
        if not available(name):
            continue
        with running(MQTT_STARTERS[name]) as peer:
            _retain(peer, RETAINED_TOPICS)
            spent = subscription_cost(peer, RETAINED_TOPICS)
        if name != "penstock":
            fewest = min(fewest, spent)
        bar = 2 * fewest if name == "penstock" and fewest < math.inf else None
        yield Figure(work, f"CPU of {peer.name} {peer.version}", spent, "s", bar)


def queues() -> Iterator[Figure]:
    work = f"{DURABLE_QUEUES:,} durable queues"
    with TemporaryDirectory(prefix="penstock-bench-") as folder:
        with _stopped(start_penstock(Path(folder))) as peer:
            began = peer.usage().cpu_seconds
            _declare(peer.port, DURABLE_QUEUES)
            yield Figure(work, "CPU to declare them", peer.usage().cpu_seconds - began, "s")
            yield Figure(work, "memory", peer.usage().rss_bytes / 2**20, "MiB", 250)
            stopping = time.perf_counter()
        yield Figure(work, "stop", time.perf_counter() - stopping, "s")
        yield from _restarted(Path(folder), work, 4, DURABLE_QUEUES)


def topics() -> Iterator[Figure]:
    work = f"{MOST_TOPICS:,} retained topics, {MOST_QUEUES:,} durable queues"
    mqtt = free_port()
    with TemporaryDirectory(prefix="penstock-bench-") as folder:
        peer = start_penstock(Path(folder), more=[f"mqtt://127.0.0.1:{mqtt}"])
        with _stopped(peer):
            _retain(peer, MOST_TOPICS, mqtt)
            _declare(peer.port, MOST_QUEUES)
            yield Figure(work, "memory", peer.usage().rss_bytes / 1e6, "MB", 1500)


def messages() -> Iterator[Figure]:
    work = f"{QUEUED_MESSAGES:,} queued messages"
    with TemporaryDirectory(prefix="penstock-bench-") as folder:
        with _stopped(start_penstock(Path(folder))) as peer:
            _publish(peer.port, QUEUED_MESSAGES)
        yield from _restarted(Path(folder), work, 2, 1, QUEUED_MESSAGES)


WORKS: Final[dict[str, Callable[[], Iterator[Figure]]]] = {
    "retained": retained,
    "queues": queues,
    "topics": topics,
    "messages": messages,
}


def main(
    works: Annotated[
        str, typer.Option(help=f"Comma-separated: {', '.join(WORKS)}; or all.")
    ] = "all",
    markdown: Annotated[Path | None, typer.Option(help="A page to write the table to.")] = None,
) -> None:
    """Measure brokers that have very many topics, queues or messages."""
    load = os.getloadavg()[0]
    rows = []
    for name in names(works, list(WORKS), "--works"):
        for figure in WORKS[name]():
            rows.append(figure.row())
            print(" | ".join(rows[-1]), flush=True)
    if markdown is not None:
        table = "\n".join(
            f"| {' | '.join(row)} |" for row in (_COLUMNS, ("---", "---", "--:", "--:"), *rows)
        )
        command = f"python -m benchmarks.scale --works {works}"
        put_chapter(
            markdown,
            _ACCOUNT.format(command=command, table=table, cores=os.cpu_count(), load=load),
        )


def subscription_cost(peer: Peer, topics: int) -> float:
    """CPU seconds until a subscription to `#` has received the message of every topic."""
    with connected(peer, packets.V3, "all") as connection:
        began = peer.usage().cpu_seconds
        connection.ask_to_subscribe("#", 0)
        left = len(packets.packet(packets.SUBACK, bytes(3))) + sum(map(len, _retaining(topics)))
        while left > 0:
            left -= len(connection.socket.recv(_READ_BYTES))
        return peer.usage().cpu_seconds - began


def _retaining(count: int) -> Iterator[bytes]:
    """PUBLISH packets, as a subscriber receives them, too."""
    for number in range(count):
        variable = packets.text(f"sensors/{number:07}/count")
        yield packets.packet(packets.PUBLISH | _RETAIN, variable + b"12345678")


def _retain(peer: Peer, count: int, port: int = 0) -> None:
    with connected(peer if not port else _at(peer, port), packets.V3, "retainer") as connection:
        waiting: list[bytes] = []
        for number, packet in enumerate(_retaining(count), 1):
            waiting.append(packet)
            if number % _TOGETHER == 0 or number == count:
                connection.socket.sendall(b"".join(waiting))
                waiting.clear()
                connection.settle()


def _at(peer: Peer, port: int) -> Peer:
    return Peer(peer.name, peer.version, port, peer.processes, peer.log)


def _declare(port: int, count: int) -> None:
    with closing(connect(port)) as connection:
        for first in range(0, count, _TOGETHER):
            numbers = range(first, min(first + _TOGETHER, count))
            declared = (
                bytes(2) + frames.short_string(f"queue-{number}") + b"\x02" + frames.EMPTY_TABLE
                for number in numbers
            )
            connection.socket.sendall(
                b"".join(
                    frames.method(CHANNEL, frames.QUEUE_DECLARE, arguments)
                    for arguments in declared
                )
            )
            for _ in numbers:
                connection.expect(frames.QUEUE_DECLARE_OK)


def _publish(port: int, count: int) -> None:
    """Persistent messages to a durable queue."""
    with closing(connect(port)) as connection:
        connection.declare_queue("queue-0", durable=True)
        rows = Layout("", Key("queue-0"), 16, persistent=True).published(CHANNEL, _TOGETHER)
        for first in range(0, count, _TOGETHER):
            connection.socket.sendall(rows.octets(first, min(_TOGETHER, count - first)))
            connection.declare_queue("queue-0", durable=True)  # answered behind the messages


def _restarted(
    folder: Path, work: str, bar: float, queues: int, messages: int = 0
) -> Iterator[Figure]:
    began = time.perf_counter()
    peer = start_penstock(folder)
    seconds = time.perf_counter() - began
    with _stopped(peer):
        used = peer.usage()
        with closing(connect(peer.port)) as connection:
            if connection.delete_queue(f"queue-{queues - 1}") != messages:
                raise AssertionError(f"a restart lost messages of queue-{queues - 1}")
        yield Figure(work, "restart, ready", seconds, "s", bar)
        yield Figure(work, "restart, CPU", used.cpu_seconds, "s")
        yield Figure(work, "restart, memory", used.rss_bytes / 2**20, "MiB")


@contextmanager
def _stopped(peer: Peer) -> Iterator[Peer]:
    try:
        yield peer
    finally:
        peer.close()


if __name__ == "__main__":
    typer.run(main)
