"""Killed anywhere, any number of times: the tables are those of an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time

import pytest

from penstock_spark.directory import FlowDirectory
from tests.peers import Process
from tests.pipeline.flow.conftest import Town, in_lake
from tests.pipeline.flow.tally import SILVER, Tally

pytestmark = pytest.mark.usefixtures("java")

PROGRAM = [sys.executable, "-c", "from penstock_spark.commands.pipeline import app; app()"]
MASTER = "local[2]"
#: A process that lives for a few batches is better off without much compiling.
HASTE = (
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage=false",
    "spark.sql.shuffle.partitions=2",
)
KILLS = 20
#: Before Spark knows, before silver, before gold; and any moment, twice.
POINTS = ("gold", "bronze", "silver", "", "")


class Pipeline:
    """`penstock pipeline` as a process, started as often as it takes."""

    def __init__(self, tally: Tally, town: Town) -> None:
        self._tally = tally
        self._town = town
        self._starts = 0

    def start(self, command: str, *flags: str, master: str = MASTER, die: str = "") -> Process:
        self._starts += 1
        arguments = [
            *(command, "--flow", "tests.pipeline.flow.tally:open_tally"),
            *("--url", self._town.url, "--data", str(self._tally.folder), "--master", master),
            *(word for setting in HASTE for word in ("--spark", setting)),
        ]
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TALLY_STREAMS": self._tally.streams,
            "TALLY_DIE": die,
        }
        log = self._tally.folder / f"pipeline-{self._starts}.log"
        return Process([*PROGRAM, *arguments, *flags], log, environment)

    def finish(self, master: str = MASTER) -> None:
        process = self.start("once", master=master)
        try:
            ended(process)
        finally:
            process.end_group(signal.SIGKILL)


@pytest.fixture
def pipeline(tally: Tally, town: Town) -> Pipeline:
    return Pipeline(tally, town)


def ended(process: Process, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while process.running():
        assert time.monotonic() < deadline, process.output()[-4000:]
        time.sleep(0.05)


def more_batches(process: Process, tally: Tally, count: int) -> None:
    """Returns when so many have been applied since."""
    wanted = len(tally.marks()) + count
    deadline = time.monotonic() + 300
    while len(tally.marks()) < wanted:
        assert process.running(), process.output()[-4000:]
        assert time.monotonic() < deadline, process.output()[-4000:]
        time.sleep(0.02)


class Publishing:
    """Messages that keep coming."""

    def __init__(self, town: Town) -> None:
        self._town = town
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._end.wait(0.2):
            self._town.publish(random.randrange(1, 40))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_totals_are_those_of_an_undisturbed_run(
    pipeline: Pipeline, tally: Tally, directory: FlowDirectory, town: Town
) -> None:
    with Publishing(town):
        for kill in range(KILLS):
            point = POINTS[kill % len(POINTS)]
            last = max(tally.marks(), default=-1)
            process = pipeline.start("run", die=f"{point}:{last + 1}" if point else "")
            if point:
                ended(process)
            else:
                more_batches(process, tally, random.randrange(1, 3))
                time.sleep(random.uniform(0, 0.5))  # anywhere in a batch
            process.end_group(signal.SIGKILL)

    pipeline.finish()

    assert tally.counts() == town.sent
    assert in_lake(directory, "bronze.messages") == town.sent
    assert in_lake(directory, SILVER) == town.sent


@pytest.mark.timeout(900)
def test_killed_before_spark_knew_it_goes_on_in_several_processes_and_stops_when_told(
    pipeline: Pipeline, tally: Tally, directory: FlowDirectory, town: Town
) -> None:
    town.publish(60)
    ended(pipeline.start("run", die="gold:0"))
    assert tally.counts() == town.sent
    town.publish(60)
    process = pipeline.start("run", master="local-cluster[2,1,1024]")
    more_batches(process, tally, 1)

    status = process.end(signal.SIGTERM)

    assert status == 0, process.output()[-4000:]
    assert "penstock pipeline ready: tally" in process.output()
    assert tally.counts() == town.sent
    assert in_lake(directory, "bronze.messages") == town.sent
    assert in_lake(directory, SILVER) == town.sent


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_runs_over_spark_connect(pipeline: Pipeline, tally: Tally, town: Town) -> None:
    pytest.importorskip("grpc", reason="Spark Connect is not installed")
    town.publish(60)
    process = pipeline.start("once", "--remote", "local[2]")

    ended(process)

    assert tally.counts() == town.sent, process.output()[-4000:]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", ["adopt:1", "adopted:1"])
def test_a_replay_killed_while_tables_change_places(
    pipeline: Pipeline, tally: Tally, directory: FlowDirectory, town: Town, point: str
) -> None:
    town.publish(60)
    pipeline.finish()
    ended(pipeline.start("replay", die=point))
    town.publish(60)

    pipeline.finish()

    assert directory.lake.generation == 1
    assert tally.counts() == town.sent
    assert in_lake(directory, SILVER) == town.sent
