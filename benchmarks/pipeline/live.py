"""Sensors that report live, and how long it takes until their hives' figures say so.

Every sensor is the only one of its hive, and reports in turn, evenly over its interval. The clock
starts when the broker has taken a report in (its own time, which the figure has as `as_of`) and
stops when a subscriber holds the figure: after the commit of `hive_status`, by the way back through
the broker. So what is measured is more than the commit's latency, never less.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import IO, Final
from zoneinfo import ZoneInfo

import numpy as np

from benchmarks.errors import PeerFailed, WrongDelivery
from benchmarks.pipeline.backlog import EXCHANGE
from benchmarks.pipeline.ground import Ground, ground
from benchmarks.pipeline.parts import command_of
from benchmarks.usage import children_of, proportional_bytes, tree_of
from penstock.client import blocking_client
from penstock.client.amqp091.bulk_publisher import BulkPublisher
from penstock.core.basic_properties import (
    PERSISTENT,
    BasicProperties,
    encode_header,
    encode_shortstr,
)
from penstock.core.errors import PenstockError
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_hives.sensors.fleet import Fleet, Quirks, SimulatedHive, SimulatedSensor
from penstock_hives.sensors.protocol import ReportType, ReportV1

#: How often the sender wakes.
_TICK: Final = 0.05
_START_SECONDS: Final = 180.0
#: What is measured of the beginning, while code is compiled and workers start, is left out.
WARM_SECONDS: Final = 30.0
_MEMORY_SECONDS: Final = 5.0
#: Figures that have not come by then, never will.
_LATEST: Final = 60.0


@dataclass(frozen=True, slots=True)
class Lived:
    sensors: int
    interval: float
    seconds: float
    latencies: np.ndarray[tuple[int], np.dtype[np.float64]]
    memory: Memory
    load: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the pipeline's processes when they had most, as proportional set size."""

    java: int = 0
    driver: int = 0
    workers: int = 0  #: Python's, and the processes that plan
    nightly: int = 0  #: the process of nightly work, with its Java and workers
    at: float = 0.0  #: seconds after the first report

    @property
    def total(self) -> int:
        return self.java + self.driver + self.workers + self.nightly


@dataclass(slots=True)
class _Figures:
    """What a subscriber got: of each hive, up to when it is known, and when that came."""

    seen: list[tuple[int, float, float]] = field(default_factory=list)  #: hive, as of, arrival
    ready: threading.Event = field(default_factory=threading.Event)
    end: threading.Event = field(default_factory=threading.Event)

    def listen(self, url: str) -> None:
        with (
            blocking_client.connect(url) as fabric,
            fabric.subscribe("#", exchange="occupancy") as figures,
        ):
            self.ready.set()
            while not self.end.is_set():
                try:
                    message = figures.receive(timeout=0.5)
                except (TimeoutError, PenstockError):
                    continue
                now = time.time()
                told = message.json()
                as_of = datetime.fromisoformat(told["as_of"]).timestamp()
                self.seen.append((told["hive"], as_of, now))


def live(
    sensors: int,
    seconds: float,
    interval: float,
    warm: float = WARM_SECONDS,
    master: str = "local[2]",
) -> Lived:
    """So many sensors, each with a report every so many seconds."""
    fleet = Fleet(start=datetime.now(UTC), hives=sensors, quirks=Quirks.none())
    first = [next(group) for _, group in groupby(fleet.sensors, lambda sensor: sensor.hive_id)]
    with (
        tempfile.TemporaryDirectory() as folder,
        ground(Path(folder), fleet.hives, first) as found,
        _pipeline(found, Path(folder) / "pipeline.log", master) as pipeline,
    ):
        figures = _Figures()
        memory = _MemorySampler(pipeline)
        listener = threading.Thread(target=figures.listen, args=(found.url,))
        listener.start()
        memory.start()
        try:
            figures.ready.wait(_START_SECONDS)
            began, sent = _report(found.url, fleet.hives, first, interval, warm + seconds)
            _await(figures, sent, time.monotonic() + _LATEST)
        finally:
            figures.end.set()
            memory.end.set()
            listener.join()
        latencies = [now - as_of for _, as_of, now in figures.seen if as_of >= began + warm]
        return Lived(
            *(sensors, interval, seconds, np.array(latencies)),
            *(memory.most, os.getloadavg()[0]),
        )


class _MemorySampler(threading.Thread):
    """Of a pipeline, by its process id."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.most = Memory()
        self.end = threading.Event()
        self._pid = pid

    def run(self) -> None:
        began = time.monotonic()
        while not self.end.wait(_MEMORY_SECONDS):
            now = self._sample(time.monotonic() - began)
            self.most = max(self.most, now, key=lambda memory: memory.total)

    def _sample(self, at: float) -> Memory:
        java = workers = nightly = 0
        for child in children_of(self._pid):
            is_nightly = "java" not in command_of(child)  # the driver forks nothing else
            for pid in tree_of(child):
                size = proportional_bytes(pid)
                if is_nightly:
                    nightly += size
                elif "java" in command_of(pid):
                    java += size
                else:
                    workers += size
        return Memory(java, proportional_bytes(self._pid), workers, nightly, at)


def _report(
    url: str,
    hives: tuple[SimulatedHive, ...],
    sensors: list[SimulatedSensor],
    interval: float,
    seconds: float,
) -> tuple[float, dict[int, float]]:
    """When it began, and when each hive's last report was sent."""
    zones = {hive.id: ZoneInfo(hive.time_zone) for hive in hives}
    sent: dict[int, float] = {}
    pace = len(sensors) / interval
    began = time.time()
    with BulkPublisher(parse_amqp_url(url), mandatory=True, retry_seconds=60.0) as publisher:
        number = 0
        while (elapsed := time.time() - began) < seconds:
            while number < elapsed * pace:
                turn, which = divmod(number, len(sensors))
                sensor = sensors[which]
                local = datetime.now(zones[sensor.hive_id]).replace(tzinfo=None)
                totals = (2 * turn, turn)
                body = ReportV1(ReportType.EVENTS, *totals, local).encode(sensor.profile)
                key = encode_shortstr(f"sensors.{sensor.serial}.report", "routing_key")
                header = encode_header(BasicProperties(delivery_mode=PERSISTENT), len(body))
                publisher.publish(encode_shortstr(EXCHANGE, "exchange") + key, header, body)
                sent[sensor.hive_id] = time.time()
                number += 1
            publisher.flush()
            time.sleep(_TICK)
    return began, sent


def _await(figures: _Figures, sent: dict[int, float], deadline: float) -> None:
    """Returns when the last report of every hive has been told of."""
    while True:
        told: dict[int, float] = {}
        for hive, as_of, _ in list(figures.seen):
            told[hive] = max(as_of, told.get(hive, 0.0))
        # The broker's time is of whole milliseconds, and of a moment before its answer.
        behind = [hive for hive, at in sent.items() if told.get(hive, 0.0) < at - 1.0]
        if not behind:
            return
        if time.monotonic() > deadline:
            raise WrongDelivery(f"nothing was told of the last reports of {len(behind)} hives")
        time.sleep(_TICK)


@contextmanager
def _pipeline(found: Ground, log: Path, master: str) -> Iterator[int]:
    """`penstock pipeline run`, as anybody would run it: its process id."""
    command = [sys.executable, "-m", "penstock", "pipeline", "run", "--url", found.url]
    command += ["--data", str(found.data), "--database", found.database.url, "--master", master]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
    try:
        assert process.stdout is not None
        _ready(process.stdout, log)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_START_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _ready(output: IO[bytes], log: Path) -> None:
    for line in output:
        if b"pipeline ready" in line:
            return
    raise PeerFailed(f"the pipeline did not start: {log.read_text(errors='replace')[-2000:]}")
