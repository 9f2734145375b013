"""The queues that are compared: how each is sent to, and how its workers are started.

All have two processes that work, persistent messages, and acknowledge when the work is done. Where
a queue has a client of its own that is used; Penstock's requests are published by pika, as
Dramatiq's are.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Protocol

import pika

from benchmarks.errors import PeerFailed
from benchmarks.jobs import stamps

URL: Final = "JOBS_BENCH_URL"
FORK: Final = 2
_STOP_SECONDS: Final = 60.0


class JobQueue(Protocol):
    name: str

    @property
    def version(self) -> str: ...

    def command(self, url: str) -> list[str]:
        """Of the workers."""

    def sender(self, url: str) -> Sender:
        """Connected; what is sent to is there, whether anybody works or not."""


class Sender(Protocol):
    def send(self, number: int) -> None: ...

    def close(self) -> None: ...


class PenstockQueue:
    name = "penstock"
    version = version("penstock")

    def command(self, url: str) -> list[str]:
        words = ["-m", "penstock", "job", "worker", "--url", url, "--fork", str(FORK)]
        return [sys.executable, *words, "--allow", "benchmarks.jobs.stamps"]

    def sender(self, url: str) -> Sender:
        return _PenstockSender(url)


class _PenstockSender:
    def __init__(self, url: str) -> None:
        asyncio.run(_declare(url))
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
        self._run = os.urandom(4).hex()

    def send(self, number: int) -> None:
        request = {
            "type": "call",
            "id": f"{self._run}-{number}",
            "function": "benchmarks.jobs.stamps:stamp",
            "arguments": [number, time.monotonic_ns()],
        }
        self._channel.basic_publish(
            "ichnaea.call.request", "", json.dumps(request).encode(), self._properties
        )

    def close(self) -> None:
        self._connection.close()


async def _declare(url: str) -> None:
    from penstock.client.amqp091.connection import connect
    from penstock.jobs.queue.topology import declare
    from penstock.wire.amqp091.address import parse_address

    connection = await connect(parse_address(url), "benchmark")
    try:
        await declare(connection, "call")
    finally:
        await connection.close()


class DramatiqQueue:
    name = "dramatiq"
    version = version("dramatiq")

    def command(self, url: str) -> list[str]:
        words = ["-m", "dramatiq", "benchmarks.jobs.dramatiq_app", "--skip-logging"]
        return [sys.executable, *words, "--processes", str(FORK), "--threads", "1"]

    def sender(self, url: str) -> Sender:
        from benchmarks.jobs import dramatiq_app

        return _ActorSender(dramatiq_app.stamp.send, dramatiq_app.broker.close)


class CeleryQueue:
    name = "celery"
    version = version("celery")

    def command(self, url: str) -> list[str]:
        words = ["-m", "celery", "-A", "benchmarks.jobs.celery_app", "worker"]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
        return [sys.executable, *words, "--concurrency", str(FORK), *quiet]

    def sender(self, url: str) -> Sender:
        from benchmarks.jobs import celery_app

        return _ActorSender(celery_app.stamp.delay, celery_app.app.close)


class _ActorSender:
    def __init__(self, send: Callable[[int, int], Any], close: Callable[[], Any]) -> None:
        self._send = send
        self.close = close

    def send(self, number: int) -> None:
        self._send(number, time.monotonic_ns())


QUEUES: Final[dict[str, JobQueue]] = {
    queue.name: queue for queue in (PenstockQueue(), DramatiqQueue(), CeleryQueue())
}


@contextmanager
def working(queue: JobQueue, url: str, folder: Path, log: Path) -> Iterator[int]:
    """The workers run; the id of the process that is above them all."""
    environment = os.environ | {URL: url, stamps.FOLDER: str(folder), "PYTHONPATH": str(Path.cwd())}
    with log.open("ab") as output:
        process = subprocess.Popen(
            queue.command(url),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process.pid
        if process.poll() is not None:
            words = log.read_text(errors="replace")[-2000:]
            raise PeerFailed(f"{queue.name}'s workers ended: {words}")
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
