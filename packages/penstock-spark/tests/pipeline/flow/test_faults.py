"""Faults of the lake: damaged files, a full disk, a second writer, an object store that fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from penstock.core.errors import ConfigurationError
from penstock_spark import bronze, progress
from penstock_spark.bronze import MESSAGES_SCHEMA, MESSAGES_TABLE, BronzeFiles, FlowTakenOver
from penstock_spark.directory import FlowDirectory
from penstock_spark.lake import CorruptFile, DataFile, Lake, StagedBatch, StorageLocation, storage
from penstock_spark.lake.storage import StorageFull
from penstock_spark.progress import FlowProgress, RunState
from penstock_spark.replay import FlowReplay
from penstock_spark.runner import classify_failure
from penstock_spark.status import flow_metrics
from tests.peers import free_port
from tests.pipeline.flow.conftest import Live, in_lake
from tests.pipeline.flow.tally import SILVER, Tally
from tests.pipeline.object_store import ObjectStore, OneFault, faulty_process

FLOW = {"flow": "tally"}
NOWHERE = f"amqp://guest:guest@127.0.0.1:{free_port()}/"


def test_a_damaged_file_is_reported_and_the_others_are_replayed(
    spark: SparkSession, live: Live, tally: Tally, directory: FlowDirectory
) -> None:
    live.apply(300)
    table = directory.lake.table(MESSAGES_TABLE)
    damaged = next(file for file in table.files() if file.lower["batch"] == 1)
    path = Path(table.location.url) / damaged.path
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])

    done = FlowReplay(spark, tally, directory, batch_rows=100).run()

    assert done.rows == 200
    assert sum(tally.counts().values()) == 200
    (found,) = FlowProgress(directory.progress, "tally").damaged_files()
    assert (found["table"], found["file"]) == (MESSAGES_TABLE, damaged.path)
    assert (found["batches"], found["rows"]) == ([1, 1], 100)
    assert damaged.path in found["reason"]
    metrics = flow_metrics(directory, NOWHERE)
    live.apply(100)  # new batches go on
    FlowProgress(directory.progress, "tally").set_state(RunState.RUNNING, 0.0)
    assert metrics.get_sample_value("penstock_pipeline_damaged_files", FLOW) == 1

    path.write_bytes(whole)  # restored
    FlowReplay(spark, tally, directory).run()

    assert tally.counts() == live.sent
    assert FlowProgress(directory.progress, "tally").damaged_files() == []


def test_a_worker_that_reads_columns_names_the_damaged_file(tmp_path: Path) -> None:
    table, _ = bronze.open_table(Lake(tmp_path, "tally"))
    files = BronzeFiles(
        table.location, (DataFile("gone.parquet", 7, 1, {}, {"batch": 3}, {"batch": 3}),)
    )
    seen: list[tuple[str, str]] = []

    def apply(readable: BronzeFiles) -> None:
        try:
            list(readable.read(["offset"]))
        except CorruptFile as error:
            raise PythonException(f"Job aborted\n{error}\n") from error  # as Spark passes it on

    bronze.apply_readable(files, apply, lambda file, reason: seen.append((file.path, reason)))

    ((path, reason),) = seen
    assert path == "gone.parquet"
    assert "table bronze.messages: file" in reason
    assert "(batch 3) with 7 rows cannot be read" in reason


def test_other_errors_of_a_batch_are_not_about_files(tmp_path: Path) -> None:
    def apply(_: BronzeFiles) -> None:
        raise KeyError("colour")

    with pytest.raises(KeyError, match="colour"):
        bronze.apply_readable(BronzeFiles(StorageLocation.parse(tmp_path), ()), apply, print)


def test_a_full_disk_is_waited_for_and_raises_an_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = bronze.open_table(Lake(tmp_path / "lake", "tally"))
    writing = StagedBatch(table.location).open_writer(MESSAGES_SCHEMA)
    columns = {name: [None] for name in MESSAGES_SCHEMA.names}
    writing.add(pa.table(columns, MESSAGES_SCHEMA))
    fsync = os.fsync

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFull, match="no space left") as raised:
        writing.close()
    monkeypatch.setattr(os, "fsync", fsync)

    failure = classify_failure(raised.value, None)
    of_java = classify_failure(
        PythonException("java.io.IOException: No space left on device\n\tat x"), None
    )
    assert failure.transient
    assert of_java.transient
    directory = FlowDirectory(tmp_path, "tally")
    for each in (failure, of_java):
        FlowProgress(directory.progress, "tally").set_state(RunState.WAITING, 0.0, each.reason)
        metrics = flow_metrics(directory, NOWHERE)
        assert metrics.get_sample_value("penstock_pipeline_storage_full", FLOW) == 1
    FlowProgress(directory.progress, "tally").set_state(RunState.RUNNING, 0.0)
    assert metrics.get_sample_value("penstock_pipeline_storage_full", FLOW) == 0


def test_the_state_is_recorded_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = FlowProgress(tmp_path, "tally")
    found.set_state(RunState.RUNNING, 0.0)
    write = storage.write_atomically

    def full(path: Path, text: str) -> None:
        if (tmp_path / "tally.reserve").exists():
            raise OSError(errno.ENOSPC, "full")
        write(path, text)

    monkeypatch.setattr(progress, "write_atomically", full)
    found.set_state(RunState.WAITING, 1.0, "StorageFull: no space left")

    status = found.run_status()
    assert status is not None
    assert status.state is RunState.WAITING


def test_a_writer_that_was_replaced_by_another_ends(
    spark: SparkSession, live: Live, directory: FlowDirectory
) -> None:
    live.writer = bronze.claim(directory.lake)
    live.apply(100)
    other = FlowDirectory(directory.data / "elsewhere", "tally", directory.lake.root)
    bronze.claim(other.lake)

    with pytest.raises(FlowTakenOver, match="another process has begun to write") as raised:
        live.apply(100)

    assert classify_failure(raised.value, None).permanent
    assert sum(in_lake(directory, MESSAGES_TABLE).values()) == 100


def test_the_number_of_shards_is_fixed_when_bronze_is_created(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "tally")

    assert bronze.open_table(lake, 8)[1] == 8
    assert bronze.open_table(Lake(tmp_path, "tally"))[1] == 8
    with pytest.raises(ConfigurationError, match="has 8 shards"):
        bronze.open_table(Lake(tmp_path, "tally"), 16)


def test_a_flow_in_an_object_store_survives_lost_answers_and_errors(
    spark: SparkSession, tally: Tally, s3: ObjectStore, tmp_path: Path, name: str
) -> None:
    """Each kind of fault once; every layer has what was sent."""
    faults = [
        OneFault(("PUT", "bronze", "3.json"), "lose"),
        OneFault(("PUT", "silver", "1.json"), 503),
    ]
    with faulty_process(s3, faults) as proxy:
        directory = FlowDirectory(tmp_path, tally.name, s3.location(name, proxy.port))
        live = Live(spark, tally, directory)
        live.apply(300)
        live.apply_again()

        assert in_lake(directory, MESSAGES_TABLE) == live.sent
        assert in_lake(directory, SILVER) == live.sent == tally.counts()
        assert proxy.left() == []
        assert FlowReplay(spark, tally, directory).run().rows == 300
        assert in_lake(directory, SILVER) == live.sent == tally.counts()
