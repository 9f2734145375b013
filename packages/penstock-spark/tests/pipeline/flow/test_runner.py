"""The engine: batches applied in order and once, restarts, stops."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.client.errors import BrokerUnreachable
from penstock.core.errors import AccessRefused, ResourceLocked
from penstock.core.retry import RetryPolicy
from penstock_spark import runner
from penstock_spark.batch_processor import BatchProcessor, open_checkpoint
from penstock_spark.directory import FlowDirectory, FlowLock
from penstock_spark.flow import FlowBatch
from penstock_spark.progress import FlowProgress, RunState
from penstock_spark.runner import FlowRunner, SourceOptions
from penstock_spark.status import flow_status
from penstock_spark.stream_declaration import StreamDeclaration
from penstock_store import StoreUnavailable
from tests.peers import Penstock, free_port
from tests.pipeline.flow.conftest import Live, Town, in_lake
from tests.pipeline.flow.tally import SILVER, Tally

#: A machine at a load of ten may take several tries to start a process of Spark's.
SOON = RetryPolicy(0.01, 0.01, float("inf"))


def test_what_is_in_the_streams_is_in_all_three_layers_and_then_what_is_new(
    engine: FlowRunner, tally: Tally, directory: FlowDirectory, town: Town
) -> None:
    town.publish(150)
    engine.run_available_now()
    assert tally.counts() == town.sent
    assert len(tally.marks()) >= 2

    town.publish(60)
    engine.run_available_now()

    assert tally.counts() == town.sent
    assert in_lake(directory, SILVER) == town.sent
    assert in_lake(directory, "bronze.messages") == town.sent


def test_a_batch_has_at_most_so_many_bytes(
    spark: SparkSession, tally: Tally, directory: FlowDirectory, town: Town
) -> None:
    town.publish(150)
    source = SourceOptions(town.url, max_bytes=2000)

    FlowRunner(spark, tally, directory, source).run_available_now()

    assert tally.counts() == town.sent
    assert len(tally.marks()) >= 2


def test_a_batch_applied_and_not_committed_is_not_applied_twice(
    live: Live, tally: Tally, directory: FlowDirectory
) -> None:
    live.apply(60)

    live.apply_again()

    assert tally.counts() == live.sent
    assert in_lake(directory, SILVER) == live.sent
    assert in_lake(directory, "bronze.messages") == live.sent


def test_without_its_checkpoint_it_goes_on_where_bronze_ends(
    engine: FlowRunner, tally: Tally, directory: FlowDirectory, town: Town
) -> None:
    town.publish(60)
    engine.run_available_now()
    shutil.rmtree(directory.checkpoint)
    town.publish(60)

    engine.run_available_now()

    assert tally.counts() == town.sent
    assert in_lake(directory, "bronze.messages") == town.sent
    assert len(set(tally.marks())) == len(tally.marks())


def test_a_batch_lost_between_bronze_and_gold_is_found_without_a_checkpoint(
    spark: SparkSession, tally: Tally, directory: FlowDirectory
) -> None:
    class Failing(Tally):
        def apply(self, batch: FlowBatch) -> None:
            raise AccessRefused("not today")

    live = Live(spark, Failing(tally.folder, tally.streams), directory)
    with pytest.raises(AccessRefused):
        live.apply(60)
    shutil.rmtree(directory.checkpoint)

    BatchProcessor(
        tally, directory, open_checkpoint(directory.checkpoint, directory.lake)
    ).reapply_last_batch(spark)

    assert tally.counts() == live.sent


def test_it_follows_until_told_to_stop_and_finishes_its_batch(
    engine: FlowRunner, tally: Tally, directory: FlowDirectory, town: Town
) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=engine.run, args=(stop,))
    town.publish(60)
    thread.start()
    wait_for(lambda: sum(tally.counts().values()) == 60)
    town.publish(60)
    wait_for(lambda: sum(tally.counts().values()) == 120)

    stop.set()
    thread.join(120)

    assert not thread.is_alive()
    assert FlowProgress(directory.progress, "tally").run_status().state is RunState.STOPPED  # type: ignore[union-attr]
    done = FlowProgress(directory.progress, "tally").last_batch()
    assert done is not None
    assert (directory.checkpoint / "commits" / str(done.batch)).exists()
    assert not directory.locks.held(FlowLock.RUNNING)


def test_planners_of_a_running_query_end_and_the_next_query_has_new_ones(
    spark: SparkSession,
    tally: Tally,
    directory: FlowDirectory,
    town: Town,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = SourceOptions(town.url, max_offsets=100)
    town.publish(60)
    for total in (60, 120):
        stop = threading.Event()
        engine = FlowRunner(spark, tally, directory, source, owns_session=True)
        thread = threading.Thread(target=engine.run, args=(stop,))
        thread.start()
        wait_for(lambda total=total: sum(tally.counts().values()) == total)  # type: ignore[misc]
        wait_for(lambda: not planners(spark))
        stop.set()
        thread.join(120)
        assert not thread.is_alive()
        town.publish(60)
    # Of a process that Spark takes for idle. A busy machine may need another start.
    assert "Stream closed" not in caplog.text


def planners(spark: SparkSession) -> list[str]:
    """The commands of Spark's Python processes that plan data sources."""
    children = spark.sparkContext._jvm.java.lang.ProcessHandle.current().children().toList()  # type: ignore[union-attr]
    commands = [child.info().commandLine().orElse("") for child in children]
    return [command for command in commands if "pyspark.sql.worker." in command]


def test_a_machine_that_is_busy_is_waited_for(
    engine: FlowRunner, tally: Tally, town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = FlowRunner._start
    faults = [PySparkException("Python worker failed to connect back.")]

    def started(self: FlowRunner, *details: Any) -> StreamingQuery:
        if faults:
            raise faults.pop()
        return start(self, *details)

    # Ten minutes pass each time somebody looks.
    clock = SimpleNamespace(time=time.time, sleep=time.sleep, monotonic=count(0, 600).__next__)
    monkeypatch.setattr(FlowRunner, "_start", started)
    monkeypatch.setattr(runner, "time", clock)
    town.publish(6)

    engine.run_available_now()

    assert tally.counts() == town.sent
    assert not faults


def test_one_engine_at_a_time(engine: FlowRunner, directory: FlowDirectory) -> None:
    with (
        directory.locks.hold(FlowLock.RUNNING),
        pytest.raises(ResourceLocked, match="running already"),
    ):
        engine.run_available_now()


def test_what_is_away_is_waited_for(
    spark: SparkSession, tally: Tally, directory: FlowDirectory, town: Town
) -> None:
    class Away(Tally):
        """Its database is away, once."""

        tries: ClassVar[list[int]] = []

        def apply(self, batch: FlowBatch) -> None:
            self.tries.append(batch.id)
            if len(self.tries) == 1:
                raise StoreUnavailable("no database answers")
            super().apply(batch)

    town.publish(60)

    FlowRunner(
        spark, Away(tally.folder, tally.streams), directory, SourceOptions(town.url)
    ).run_available_now(SOON)

    assert tally.counts() == town.sent
    run_status = FlowProgress(directory.progress, "tally").run_status()
    assert run_status is not None
    # On a busy machine Spark's own workers may start too late, which is waited for, too.
    assert run_status.restarts >= 1


def test_a_mistake_is_raised_after_a_few_tries(
    spark: SparkSession,
    tally: Tally,
    directory: FlowDirectory,
    town: Town,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock_spark.runner._MAX_ATTEMPTS", 2)

    class Mistaken(Tally):
        tries: ClassVar[list[int]] = []

        def apply(self, batch: FlowBatch) -> None:
            self.tries.append(batch.id)
            raise KeyError("colour")

    town.publish(6)
    flow = Mistaken(tally.folder, tally.streams)

    with pytest.raises(KeyError, match="colour"):
        FlowRunner(spark, flow, directory, SourceOptions(town.url)).run_available_now(SOON)

    run_status = FlowProgress(directory.progress, "tally").run_status()
    assert run_status is not None
    assert (run_status.state, run_status.reason) == (RunState.FAILED, "KeyError: 'colour'")
    assert len(Mistaken.tries) == 2


def test_a_broker_that_is_away_is_told(
    spark: SparkSession, tally: Tally, directory: FlowDirectory
) -> None:
    nowhere = SourceOptions(f"amqp://guest:guest@127.0.0.1:{free_port()}/")
    flow = replace(tally, sources=(StreamDeclaration("colours", "amq.topic", ("colours.#",)),))

    with pytest.raises(BrokerUnreachable, match="refused"):
        FlowRunner(spark, flow, directory, nowhere).run_available_now(RetryPolicy(0.01, 0.01, 0.0))


def test_a_broker_that_is_away_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    late = Penstock(tmp_path / "late")
    flow = Tally(
        tmp_path, "late-*", sources=(StreamDeclaration("late-0", "amq.topic", ("late.#",)),)
    )
    directory = FlowDirectory(tmp_path, flow.name)
    progress = FlowProgress(directory.progress, flow.name)
    stop, ready = threading.Event(), threading.Event()
    engine = FlowRunner(spark, flow, directory, SourceOptions(late.url))
    follow = {"retry": RetryPolicy(0.05, 0.1, float("inf")), "ready": ready.set}
    thread = threading.Thread(target=engine.run, args=(stop,), kwargs=follow)
    thread.start()
    try:
        # More often than a fault that is not known to pass would be tried.
        wait_for(lambda: (seen := progress.run_status()) is not None and seen.restarts > 3)
        assert not ready.is_set()
        late.start()
        town = Town(late.url, "late")
        town.publish(30)

        wait_for(lambda: flow.counts() == town.sent)

        assert ready.is_set()
    finally:
        stop.set()
        thread.join(120)
        late.stop()


def test_status_tells_of_batches_lag_and_tables(
    engine: FlowRunner, tally: Tally, directory: FlowDirectory, town: Town
) -> None:
    town.publish(60)
    engine.run_available_now()
    town.publish(5)

    found = flow_status(directory, town.url, time.time())

    assert found.state is RunState.STOPPED
    assert found.lag.messages == 5
    assert found.lag.seconds is not None
    assert found.tables["bronze.messages"].rows == 60
    assert found.done is not None
    assert found.done.total_rows == 60


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.05)
