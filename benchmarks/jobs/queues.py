"""The queues that are compared: how each is sent to, and how its workers are started.

All have two processes that work, persistent messages, and acknowledge when the work is done. Each
is sent to by its own client; none waits for the broker's word that a request is safe.
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

from benchmarks.errors import PeerFailed
from benchmarks.jobs import stamps
from penstock.client.amqp091.connection import connect
from penstock.core.basic_properties import PERSISTENT, BasicProperties
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_jobs.queue.topology import declare, request_name

URL: Final = "JOBS_BENCH_URL"
FORK: Final = 2
_EXCHANGE: Final = request_name("call")
_SAID: Final = BasicProperties("application/json", delivery_mode=PERSISTENT)
_STOP_SECONDS: Final = 60.0


class WorkerProgram(Protocol):
    name: str

    def command(self, url: str) -> list[str]:
        """Of the workers."""


class JobQueue(WorkerProgram, Protocol):
    @property
    def version(self) -> str: ...

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
        return PenstockSender(
            url, "benchmarks.jobs.stamps:stamp", lambda number: [number, time.monotonic_ns()]
        )


class PenstockSender:
    """By the client that all of Penstock's applications use."""

    def __init__(self, url: str, function: str, arguments: Callable[[int], list[int]]) -> None:
        self._function = function
        self._arguments = arguments
        self._loop = asyncio.new_event_loop()
        self._run = os.urandom(4).hex()
        self._loop.run_until_complete(self._open(url))

    async def _open(self, url: str) -> None:
        self._connection = await connect(parse_amqp_url(url), "benchmark")
        await declare(self._connection, "call")
        self._channel = await self._connection.channel()

    def send(self, number: int) -> None:
        request = {
            "type": "call",
            "id": f"{self._run}-{number}",
            "function": self._function,
            "arguments": self._arguments(number),
        }
        self._channel.publish(_EXCHANGE, "", json.dumps(request).encode(), _SAID)
        self._loop.call_soon(self._loop.stop)
        self._loop.run_forever()  # for one turn, in which it is written

    def close(self) -> None:
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()


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


class TaskiqQueue:
    name = "taskiq"
    version = version("taskiq")

    def command(self, url: str) -> list[str]:
        return TASKIQ_WORKER

    def sender(self, url: str) -> Sender:
        return TaskiqSender("stamp", lambda number: [number, time.monotonic_ns()])


#: Two processes, each with as many coroutines at a time as it has by default.
TASKIQ_WORKER: Final = [
    *(sys.executable, "-m", "taskiq", "worker", "benchmarks.jobs.taskiq_app:broker"),
    *("--workers", str(FORK), "--log-level", "ERROR", "--ack-type", "when_executed"),
]


class TaskiqSender:
    """Its client waits for a confirm, which is after the time at which a job is sent."""

    def __init__(self, task: str, arguments: Callable[[int], list[int]]) -> None:
        from benchmarks.jobs import taskiq_app

        self._broker = taskiq_app.broker
        self._task = getattr(taskiq_app, task)
        self._arguments = arguments
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._broker.startup())

    def send(self, number: int) -> None:
        self._loop.run_until_complete(self._task.kiq(*self._arguments(number)))

    def close(self) -> None:
        self._loop.run_until_complete(self._broker.shutdown())
        self._loop.close()


QUEUES: Final[dict[str, JobQueue]] = {
    queue.name: queue for queue in (PenstockQueue(), DramatiqQueue(), TaskiqQueue(), CeleryQueue())
}


@contextmanager
def working(
    queue: WorkerProgram, url: str, folder: Path, log: Path, copies: int = 1
) -> Iterator[list[int]]:
    """The workers run; the ids of the processes that are above them all."""
    environment = os.environ | {URL: url, stamps.FOLDER: str(folder), "PYTHONPATH": str(Path.cwd())}
    with log.open("ab") as output:
        processes = [
            subprocess.Popen(
                queue.command(url),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            for _ in range(copies)
        ]
    try:
        yield [process.pid for process in processes]
        if any(process.poll() is not None for process in processes):
            words = log.read_text(errors="replace")[-2000:]
            raise PeerFailed(f"{queue.name}'s workers ended: {words}")
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
