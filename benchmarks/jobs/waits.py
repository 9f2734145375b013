"""Jobs that wait, as for a slow server: many at once, each by what its queue has for that.

Penstock and Taskiq run coroutines, Celery greenlets, Dramatiq threads. A job writes down when it
began and when it ended, so the number of jobs that ran at once is known.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

from benchmarks.jobs import stamps
from benchmarks.jobs.measuring import each_once, until
from benchmarks.jobs.queues import (
    TASKIQ_WORKER,
    PenstockSender,
    Sender,
    TaskiqSender,
    working,
)
from benchmarks.usage import usage_of

#: How long a job waits.
WAIT_SECONDS: Final = 1.0
#: Jobs that run at once, in two processes; Celery has one for greenlets.
AT_ONCE: Final = 1_000
_EACH: Final = AT_ONCE // 2
_FUNCTION: Final = "benchmarks.jobs.waits:wait"


@dataclass(frozen=True, slots=True)
class Waits:
    queue: str
    how: str
    jobs: int
    seconds: float  #: from the first start to the last end
    at_once: int  #: the most jobs that ran at the same time
    cpu: float  #: seconds of the worker
    memory: int  #: bytes of the worker


async def wait(number: int) -> None:
    began = time.monotonic_ns()
    await asyncio.sleep(WAIT_SECONDS)
    stamps.stamp(number, began)


def wait_blocking(number: int) -> None:
    began = time.monotonic_ns()
    time.sleep(WAIT_SECONDS)
    stamps.stamp(number, began)


class WaitQueue(Protocol):
    name: str
    how: str
    copies: int  #: of the command

    @property
    def version(self) -> str: ...

    def command(self, url: str) -> list[str]: ...

    def sender(self, url: str) -> Sender: ...


class PenstockWaits:
    name = "penstock"
    how = "coroutines"
    copies = 2
    version = version("penstock")

    def command(self, url: str) -> list[str]:
        words = ["-m", "penstock", "job", "worker", "--url", url, "--async"]
        return [sys.executable, *words, "--fork", str(_EACH), "--allow", "benchmarks.jobs.waits"]

    def sender(self, url: str) -> Sender:
        return PenstockSender(url, _FUNCTION, lambda number: [number])


class CeleryWaits:
    name = "celery"
    how = "greenlets"
    copies = 1
    version = version("celery")

    def command(self, url: str) -> list[str]:
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
        words = ["-m", "celery", "-A", "benchmarks.jobs.celery_app", "worker", "-P", "gevent"]
        return [sys.executable, *words, "-Q", "bench-celery-waits", "-c", str(AT_ONCE), *quiet]

    def sender(self, url: str) -> Sender:
        from benchmarks.jobs import celery_app

        return _Waiting(celery_app.wait.delay, celery_app.app.close)


class DramatiqWaits:
    name = "dramatiq"
    how = "threads"
    copies = 1
    version = version("dramatiq")

    def command(self, url: str) -> list[str]:
        words = ["-m", "dramatiq", "benchmarks.jobs.dramatiq_app", "--skip-logging"]
        words += ["--queues", "bench-dramatiq-waits"]
        return [sys.executable, *words, "--processes", "2", "--threads", str(_EACH)]

    def sender(self, url: str) -> Sender:
        from benchmarks.jobs import dramatiq_app

        return _Waiting(dramatiq_app.wait.send, dramatiq_app.broker.close)


class TaskiqWaits:
    name = "taskiq"
    how = "coroutines"
    copies = 1
    version = version("taskiq")

    def command(self, url: str) -> list[str]:
        return [*TASKIQ_WORKER, "--max-async-tasks", str(_EACH), "--max-prefetch", str(_EACH)]

    def sender(self, url: str) -> Sender:
        return TaskiqSender("wait", lambda number: [number])


class _Waiting:
    def __init__(self, send: Callable[[int], Any], close: Callable[[], Any]) -> None:
        self.send = send
        self.close = close


WAIT_QUEUES: Final[Sequence[WaitQueue]] = (
    PenstockWaits(),
    TaskiqWaits(),
    CeleryWaits(),
    DramatiqWaits(),
)


def measure(queue: WaitQueue, url: str, jobs: int) -> Waits:
    """A backlog of jobs that wait; timed from the first start to the last end."""
    with TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name) / "stamps"
        folder.mkdir()
        sender = queue.sender(url)
        for number in range(jobs):
            sender.send(number)
        sender.close()
        with working(queue, url, folder, Path(name) / "log", queue.copies) as pids:
            until(lambda: stamps.count(folder) >= jobs, queue.name)
            used = usage_of(pids)
        found = stamps.read(folder)
    each_once(queue.name, found, jobs)
    ended = max(stamp.began for stamp in found)
    seconds = (ended - min(stamp.sent for stamp in found)) / 1e9
    return Waits(
        queue.name,
        queue.how,
        jobs,
        seconds,
        _at_once(found),
        used.cpu_seconds,
        used.rss_bytes,
    )


def _at_once(found: Sequence[stamps.Stamp]) -> int:
    changes = sorted([(each.sent, 1) for each in found] + [(each.began, -1) for each in found])
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most
