"""What is measured of a queue: how fast a backlog is worked off, and how soon a job begins."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from benchmarks.errors import PeerFailed, WrongDelivery
from benchmarks.harness.latency import percentile
from benchmarks.jobs import stamps
from benchmarks.jobs.queues import JobQueue, working
from benchmarks.peers import Peer
from benchmarks.usage import usage_of

#: Before this share has begun workers are still starting.
_WARM: Final = 0.1
_LIMIT_SECONDS: Final = 600.0
_LOOK_SECONDS: Final = 0.01
#: Between two jobs on an idle worker.
PAUSE_SECONDS: Final = 0.01
_WARMING: Final = 50


@dataclass(frozen=True, slots=True)
class Drain:
    queue: str
    broker: str
    jobs: int
    rate: float
    worker_cpu_per_job: float  #: seconds
    broker_cpu_per_job: float


@dataclass(frozen=True, slots=True)
class Latency:
    queue: str
    broker: str
    jobs: int
    p50: float
    p99: float


def drain(queue: JobQueue, broker: Peer, url: str, jobs: int) -> Drain:
    """Workers find a backlog. Timed from when a tenth has begun, for they take time to start."""
    with TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name) / "stamps"
        folder.mkdir()
        sender = queue.sender(url)
        for number in range(jobs):
            sender.send(number)
        sender.close()
        with working(queue, url, folder, Path(name) / "log") as pids:
            until(lambda: stamps.count(folder) >= jobs * _WARM, queue.name)
            begun = stamps.count(folder)
            workers, served = usage_of(pids).cpu_seconds, broker.usage().cpu_seconds
            until(lambda: stamps.count(folder) >= jobs, queue.name)
            timed = stamps.count(folder) - begun
            workers = usage_of(pids).cpu_seconds - workers
            served = broker.usage().cpu_seconds - served
        found = stamps.read(folder)
    each_once(queue.name, found, jobs)
    first = int(jobs * _WARM)
    span = (found[-1].began - found[first].began) / 1e9
    return Drain(
        queue.name,
        broker.name,
        jobs,
        (jobs - 1 - first) / span,
        workers / max(timed, 1),
        served / max(timed, 1),
    )


def latency(queue: JobQueue, broker: Peer, url: str, jobs: int) -> Latency:
    """Jobs one at a time, for workers that have nothing else to do: from send to start."""
    with TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name) / "stamps"
        folder.mkdir()
        sender = queue.sender(url)
        with working(queue, url, folder, Path(name) / "log"):
            for number in range(_WARMING):
                sender.send(number)
            until(lambda: stamps.count(folder) >= _WARMING, queue.name)
            stamps.clear(folder)
            for number in range(_WARMING, _WARMING + jobs):
                sender.send(number)
                time.sleep(PAUSE_SECONDS)
            until(lambda: stamps.count(folder) >= jobs, queue.name)
        sender.close()
        found = stamps.read(folder)
    each_once(queue.name, found, jobs)
    spans = np.array([stamp.seconds for stamp in found])
    return Latency(queue.name, broker.name, jobs, percentile(spans, 50), percentile(spans, 99))


def until(done: Callable[[], bool], queue: str) -> None:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise PeerFailed(f"{queue} did not come to an end in {_LIMIT_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)


def each_once(queue: str, found: list[stamps.Stamp], jobs: int) -> None:
    different = len({stamp.number for stamp in found})
    if different != jobs or len(found) != jobs:
        text = f"{queue}: {jobs} jobs were sent; {len(found)} ran, {different} different ones"
        raise WrongDelivery(text)
