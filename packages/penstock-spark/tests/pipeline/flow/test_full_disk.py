"""A disk that is really full: a file system of a few megabytes, and the flow with all it writes."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.core.retry import RetryPolicy
from penstock_spark.bronze import MESSAGES_TABLE
from penstock_spark.directory import FlowDirectory
from penstock_spark.progress import FlowProgress, RunState
from penstock_spark.runner import FlowRunner, SourceOptions
from penstock_spark.status import flow_metrics
from tests.pipeline.flow.conftest import Town, in_lake
from tests.pipeline.flow.tally import SILVER, Tally

#: A few batches and their checkpoint need less.
DISK_BYTES = 8 << 20
PATIENCE = 240.0
SOON = RetryPolicy(0.05, 0.5, float("inf"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("mount is not installed")
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """A file that takes all the space that is left."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while True:
                    file.write(b"." * size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    return ballast


def until(condition: Callable[[], bool], thread: threading.Thread) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert thread.is_alive(), "the flow has ended"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_full_disk_pauses_the_flow_raises_the_alarm_and_space_resumes_it(
    spark: SparkSession, town: Town, small_disk: Path, name: str
) -> None:
    tally = Tally(small_disk, f"{name}-*")
    directory = FlowDirectory(small_disk, tally.name)
    progress = FlowProgress(directory.progress, tally.name)
    metrics = flow_metrics(directory, town.url)
    engine = FlowRunner(spark, tally, directory, SourceOptions(town.url, max_offsets=100))
    stop = threading.Event()
    thread = threading.Thread(target=engine.run, args=(stop, SOON))

    def is_alarm_raised() -> bool:
        labels = {"flow": tally.name}
        return metrics.get_sample_value("penstock_pipeline_storage_full", labels) == 1

    def state() -> RunState | None:
        found = progress.run_status()
        return None if found is None else found.state

    town.publish(60)
    thread.start()
    try:
        until(lambda: tally.counts() == town.sent, thread)
        assert not is_alarm_raised()
        before = dict(town.sent)
        ballast = fill(small_disk)
        town.publish(60)

        until(is_alarm_raised, thread)

        assert state() is RunState.WAITING
        assert tally.counts() == before
        os.truncate(ballast, 0)

        until(lambda: tally.counts() == town.sent and state() is RunState.RUNNING, thread)
        assert not is_alarm_raised()
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert in_lake(directory, MESSAGES_TABLE) == town.sent
    assert in_lake(directory, SILVER) == town.sent
