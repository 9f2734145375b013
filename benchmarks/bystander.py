"""`python -m benchmarks.bystander`: how long others wait while one client keeps the broker busy.

A load runs in a process of its own. Meanwhile a bystander logs in by AMQP, and asks for a sign of
life by MQTT (PINGREQ), again and again; each answer is timed. What is idle is the same without a
load. A load is done when its last message has been confirmed or has arrived.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import numpy as np
import pika
import typer

from benchmarks.broker.connection import connect
from benchmarks.harness.page import put_chapter

_COLUMNS: Final = ("load", "seconds", "login p50", "p99", "max", "ping p50", "p99", "max")
_ACCOUNT: Final = """# Bystanders

`{command}`. One client loads the broker. Meanwhile another logs in (AMQP) and pings (MQTT)
repeatedly; the table has the milliseconds until the response. The first login checks a password,
the others use the cached result. The load average of the machine ({cores} cores) was {load:.1f} at
the start.

{table}
"""
#: Between two looks of the bystander.
_PAUSE: Final = 0.005
_CONNECT: Final = b"\x10\x15\x00\x04MQTT\x04\x02\x00\x00\x00\x09bystander"
_PINGREQ: Final = b"\xc0\x00"


@dataclass(frozen=True, slots=True)
class Ports:
    amqp: int
    mqtt: int


@dataclass(frozen=True, slots=True)
class Waits:
    load: str
    seconds: float
    logins: list[float]
    pings: list[float]

    def row(self) -> tuple[str, ...]:
        figures = (
            f"{1000 * float(np.percentile(waits, percent)):.1f}"
            for waits in (self.logins, self.pings)
            for percent in (50, 99, 100)
        )
        return (self.load, f"{self.seconds:.1f}", *figures)


def main(
    loads: Annotated[str, typer.Option(help="Comma-separated, of those there are.")] = "all",
    markdown: Annotated[Path | None, typer.Option(help="A page to write the table to.")] = None,
) -> None:
    """Measure the bystander beside each load."""
    measured = []
    load_average = os.getloadavg()[0]
    for name in LOADS if loads == "all" else loads.split(","):
        with TemporaryDirectory() as folder, _Broker(Path(folder)) as ports:
            one = measure(name, ports)
        measured.append(one)
        print(" | ".join(one.row()), flush=True)
    if markdown is not None:
        head = f"| {' | '.join(_COLUMNS)} |\n|:--|{'--:|' * (len(_COLUMNS) - 1)}\n"
        table = head + "\n".join(f"| {' | '.join(one.row())} |" for one in measured)
        account = _ACCOUNT.format(
            command="python -m benchmarks.bystander",
            table=table,
            cores=os.cpu_count(),
            load=load_average,
        )
        put_chapter(markdown, account)


class _Broker:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Ports:
        command = [sys.executable, "-m", "penstock", "broker", "--data", str(self._folder / "data")]
        command += ["--listen", "amqp://127.0.0.1:0", "--listen", "mqtt://127.0.0.1:0"]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        ready = self._process.stdout.readline().decode()
        amqp, mqtt = (int(address.rpartition(":")[2]) for address in ready.split()[3:])
        return Ports(amqp, mqtt)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def measure(name: str, ports: Ports) -> Waits:
    """The waits of a bystander from when the load has begun until it is done."""
    processes = get_context("spawn")
    begun = processes.Event()
    load = processes.Process(target=_run, args=(name, ports, begun))
    load.start()
    begun.wait()
    began = time.monotonic()
    logins: list[float] = []
    pings: list[float] = []
    with closing(socket.create_connection(("127.0.0.1", ports.mqtt))) as mqtt:
        mqtt.sendall(_CONNECT)
        mqtt.recv(16)
        while load.is_alive():
            pings.append(_timed(lambda: _ping(mqtt)))
            logins.append(_timed(lambda: connect(ports.amqp).close()))
            time.sleep(_PAUSE)
    load.join()
    return Waits(name, time.monotonic() - began, logins, pings)


def _run(name: str, ports: Ports, begun: object) -> None:
    LOADS[name](ports, begun.set)  # type: ignore[attr-defined]


def _timed(act: Callable[[], None]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _ping(mqtt: socket.socket) -> None:
    mqtt.sendall(_PINGREQ)
    mqtt.recv(16)


# Loads.


def idle(ports: Ports, begin: Callable[[], None]) -> None:
    begin()
    time.sleep(3)


def fanout(
    ports: Ports, begin: Callable[[], None], queues: int = 100, durable: bool = True
) -> None:
    """1,000 persistent messages, published at once to many durable queues, with confirms."""
    parameters = pika.ConnectionParameters("127.0.0.1", ports.amqp, heartbeat=0)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.exchange_declare("everywhere", "fanout")
        for number in range(queues):
            channel.queue_declare(f"q{number}", durable=durable)
            channel.queue_bind(f"q{number}", "everywhere")
        begin()
        properties = pika.BasicProperties(delivery_mode=2 if durable else 1)
        for _ in range(1000):
            channel.basic_publish("everywhere", "", bytes(100), properties)
        channel.queue_declare("q0", passive=True)  # answered behind all of them


def wide(ports: Ports, begin: Callable[[], None]) -> None:
    """The same to 2,000 transient queues."""
    fanout(ports, begin, queues=2000, durable=False)


def content(ports: Ports, begin: Callable[[], None]) -> None:
    """2,000 queues bound by content, and 1,000 messages that a quarter of them want."""
    parameters = pika.ConnectionParameters("127.0.0.1", ports.amqp, heartbeat=0)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.exchange_declare("quotes", "x-content")
        begin()
        for number in range(2000):
            channel.queue_declare(f"q{number}")
            wanted = {"x-subscription": f"[class,eq,stock],[price,<,{number % 4 * 10}]"}
            channel.queue_bind(f"q{number}", "quotes", "", wanted)
        for number in range(1000):
            properties = pika.BasicProperties(headers={"class": "stock", "price": 5 + number % 30})
            channel.basic_publish("quotes", "", b"", properties)
        channel.queue_declare("q0", passive=True)


def retained(ports: Ports, begin: Callable[[], None], topics: int = 100_000) -> None:
    """A subscription to `#` where 100,000 topics have a retained message."""
    with closing(socket.create_connection(("127.0.0.1", ports.mqtt))) as client:
        client.sendall(_CONNECT.replace(b"bystander", b"retention"))
        client.recv(16)
        for start in range(0, topics, 1000):
            client.sendall(b"".join(map(_retain, range(start, start + 1000))))
            _ping(client)
        begin()
        client.sendall(b"\x82\x06\x00\x01\x00\x01#\x00")
        expected = 5 + sum(len(_retain(number)) for number in range(topics))
        while expected > 0:
            expected -= len(client.recv(1 << 18))


def _retain(number: int) -> bytes:
    topic = f"sensors/{number:06d}/count".encode()
    return bytes((0x31, len(topic) + 10, 0, len(topic))) + topic + b"12345678"


LOADS: Final[dict[str, Callable[[Ports, Callable[[], None]], None]]] = {
    "idle": idle,
    "fanout": fanout,
    "wide": wide,
    "content": content,
    "retained": retained,
}


if __name__ == "__main__":
    typer.run(main)
