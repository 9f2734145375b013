"""Whatever the shards, the batches and the way, the rows are the same; the driver has few."""

from __future__ import annotations

import pickle
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from penstock_hives.occupancy import silver, writer
from penstock_hives.occupancy.batch_job import BatchJob, JobResult
from penstock_hives.occupancy.gold.catalogue import HiveShard, read_sensors
from penstock_hives.occupancy.gold.ledger import HiveFacts, OccupancyLedger
from penstock_hives.occupancy.gold.staging import GoldStaging
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA
from penstock_hives.occupancy.silver import make_silver
from penstock_hives.occupancy.slots import merge_counts
from penstock_hives.sensors.fleet import Fleet, Quirks
from penstock_spark.bronze import BronzeFiles
from penstock_spark.flow import FlowBatch
from penstock_spark.lake import StorageLocation
from penstock_store import Database
from tests.hives.occupancy.gold.fleets import START, Line, gold
from tests.hives.occupancy.gold.ledger import Bookkeeper, clock
from tests.hives.occupancy.sensed import after, messages_of, profiles_of

QUIRKS = Quirks(restarts=1.0, duplicates=0.02, late=0.02, corrupt=0.01)
FLEET = Fleet(start=START, seed=9, hives=5, quirks=QUIRKS)
MESSAGES = pa.Table.from_batches(messages_of(FLEET, START + timedelta(hours=26)))
NONE = SENSOR_STATE_SCHEMA.empty_table()


@settings(max_examples=12, deadline=None)
@given(tasks=st.integers(1, 5), cuts=st.lists(st.integers(1, len(MESSAGES) - 1), max_size=3))
def test_silver_does_not_depend_on_shards_and_batches(tasks: int, cuts: list[int]) -> None:
    profiles = profiles_of(FLEET)
    whole, summary = make_silver(MESSAGES.to_batches(), profiles, NONE)
    keys = MESSAGES["routing_key"].to_pylist()
    shard = np.array([hash(key.split(".")[1]) % tasks for key in keys])
    rows: dict[str, list[pa.Table]] = {name: [] for name in whole}
    counts, states = [], []
    for task in range(tasks):
        known, ends = NONE, sorted({*cuts, len(MESSAGES)})
        for begin, end in zip([0, *ends], ends, strict=False):
            mine = MESSAGES.slice(begin, end - begin).filter(pa.array(shard[begin:end] == task))
            made, part = make_silver(mine.combine_chunks().to_batches(), profiles, known)
            for name, found in made.items():
                rows[name].append(found)
            counts.append(part.counts)
            known = after(known, part.states.to_batches()[0]) if len(part.states) else known
        states.append(known)

    for name, parts in rows.items():
        assert pa.concat_tables(parts).sort_by("offset").equals(whole[name].sort_by("offset"))
    merged = merge_counts(counts)
    for name in ("hive", "slot", "entries", "exits"):
        assert getattr(merged, name).tolist() == getattr(summary.counts, name).tolist()
    assert pa.concat_tables(states).sort_by("sensor").equals(summary.states.sort_by("sensor"))


@pytest.mark.parametrize("shards", [2, 3, 7])
def test_gold_does_not_depend_on_shards(books: Bookkeeper, shards: int) -> None:
    dice = random.Random(shards)
    for hive in range(1, 9):
        books.hive(hive, zone=("UTC", "Asia/Tokyo")[hive % 2], doors=(hive, hive + 10))
    books.enter(*(passage(dice, hours=20) for _ in range(60)))
    books.count_heads(3, clock(21), 9)
    facts, _ = books.facts(*(passage(dice, hours=34) for _ in range(60)))
    with books.database.transaction() as connection:
        whole = OccupancyLedger(connection).apply(facts, HiveShard())
        parts = [
            OccupancyLedger(connection).apply(facts.of(shard), shard)
            for shard in (HiveShard(number, shards) for number in range(shards))
        ]
    for name, rows in whole.items():
        found = [part[name] for part in parts if name in part and len(part[name])]
        assert listed(pa.concat_tables(found)) == listed(rows)
    assert len(whole["hive_status"]) == 8


def passage(dice: random.Random, hours: float) -> Any:
    at = clock(0) + timedelta(hours=dice.uniform(0, hours))
    return dice.choice((0, 10)) + dice.randint(1, 8), at, dice.randint(0, 9), dice.randint(0, 9)


def listed(table: pa.Table) -> list[Any]:
    return sorted(table.to_pylist(), key=str)


def test_facts_survive_the_way_to_other_tasks(books: Bookkeeper) -> None:
    books.hive(1)
    facts, _ = books.facts((1, clock(12), 5, 0), (1, clock(13), 2, 1))
    rows = pa.RecordBatch.from_pydict(facts.to_columns())
    again = HiveFacts.from_rows(pa.Table.from_batches([rows, rows]))
    assert again.counts.entries.tolist() == [10, 4]
    assert again.clock == facts.clock
    assert again.receipts.received.tolist() == facts.receipts.received.tolist() * 2


def test_only_the_sensors_of_a_batch_are_read(books: Bookkeeper) -> None:
    for hive in range(1, 6):
        books.hive(hive)
    books.enter(*((hive, clock(12), 1, 0) for hive in range(1, 4)))
    with books.database.transaction() as connection:
        found = read_sensors(connection, pa.array(["s2", "s5", "nobody"]))
    assert sorted(found.profiles.serials.to_pylist()) == ["s2", "s5"]
    assert found.states["sensor"].to_pylist() == ["s2"]


def test_the_driver_of_a_large_batch_gets_names_of_files_only(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks do everything: here neither messages are read nor sensors nor hives."""
    results: list[JobResult] = []
    run = BatchJob.run

    def recorded(self: BatchJob, *arguments: Any) -> JobResult:
        results.append(run(self, *arguments))
        return results[-1]

    monkeypatch.setattr(writer, "SMALL_BATCH", 10)
    monkeypatch.setattr(writer, "_TASK_ROWS", 100)
    monkeypatch.setattr(writer, "_MAX_TASK_ROWS", 500)  # more tasks by message than by hive
    monkeypatch.setattr(writer, "available_tasks", lambda _: 2)
    monkeypatch.setattr(BatchJob, "run", recorded)
    line = Line.laid(spark, database, tmp_path, Quirks(), days=0.5, hives=12)
    middle = len(line.frames) // 2
    with monkeypatch.context() as patched:
        for module, name in ((writer, "write_silver"), (writer, "apply_facts")):
            patched.setattr(module, name, lambda *_: 1 // 0)
        patched.setattr(silver.MessageShards, "read", lambda _: 1 // 0)
        line.apply([middle])
    assert len(results) == 2
    for result in results:
        assert len(result.files) > 2
        assert len(pickle.dumps(result)) < 30_000
    large = gold(line)

    monkeypatch.setattr(writer, "SMALL_BATCH", 1 << 30)
    line.flow.begin_rebuild(1, 0)
    line.apply([middle // 2, middle, middle + 50], generation=1)
    line.flow.adopt(1)
    assert gold(line) == large
    assert staging_tables(database) == []


@pytest.mark.parametrize(
    ("rows", "available", "tasks"),
    [(6_000, 2, 1), (120_000, 8, 2), (500_000, 2, 2), (2_000_000, 2, 8), (2_000_000, 64, 16)],
)
def test_tasks_of_a_batch_by_its_messages_the_cores_and_the_shards(
    rows: int, available: int, tasks: int
) -> None:
    files = BronzeFiles(StorageLocation.parse("lake"), (), shards=16)
    batch = FlowBatch(0, None, files, rows, None)  # type: ignore[arg-type]

    assert writer.silver_tasks(batch, available) == tasks


def test_a_repeated_task_replaces_its_rows(books: Bookkeeper) -> None:
    books.hive(1)
    books.hive(2)
    staging = GoldStaging.of_batch("hives", 0, 7)
    rows = {
        part: {"hive_offset": correction_rows(hive, amount)}
        for part, hive, amount in ((0, 1, 5), (1, 2, 6))
    }
    with books.database.transaction() as connection:
        GoldStaging.of_batch("hives", 0, 6).create(connection)  # of a process that was killed
        staging.create(connection)
    for part in (0, 1, 0):
        with books.database.transaction() as connection:
            staging.copy(connection, rows[part], "gold", part)
    with books.database.transaction() as connection:
        staging.merge(connection)
        staging.drop(connection)
    assert [(row[0], row[2]) for row in books.table("hive_offset")] == [(1, 5), (2, 6)]
    assert staging_tables(books.database) == []


def correction_rows(hive: int, amount: int) -> pa.Table:
    at = pa.array([clock(4)], pa.timestamp("us", "UTC"))
    return pa.table({"hive_id": [hive], "at": at, "correction": [amount], "cause": ["nightly"]})


def staging_tables(database: Database) -> list[Any]:
    return database.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'staging'")


@pytest.mark.parametrize("where", ["merge", "drop"])
def test_a_large_batch_that_broke_off_is_applied_once(
    spark: SparkSession,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    """Before the transaction that publishes it, and after it."""
    monkeypatch.setattr(writer, "SMALL_BATCH", 10)
    line = Line.laid(spark, database, tmp_path, Quirks(), days=0.3)
    end = len(line.frames)
    with monkeypatch.context() as patched:
        patched.setattr(GoldStaging, where, lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            line.flow.apply(line.batch(0, 0, end - 60))
    line.flow.close()
    assert len(line.table("pipeline_batch")) == (where == "drop")

    line.apply([end - 60])

    found = gold(line)
    assert staging_tables(database) == []
    line.flow.begin_rebuild(1, 0)
    line.apply([], generation=1)
    line.flow.adopt(1)
    assert gold(line) == found


def test_a_task_reads_the_messages_of_its_sensors_only(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    line = Line.laid(spark, database, tmp_path, Quirks(), days=0.3, hives=12)
    files = line.batch(0, 0, len(line.frames)).bronze_files
    shares = [silver.MessageShards(files, number, 3).read() for number in range(3)]
    keys = [
        [key for batch in share for key in batch["routing_key"].to_pylist()] for share in shares
    ]
    sensors = [{key.replace("/", ".").split(".")[1] for key in each} for each in keys]
    assert sum(map(len, keys)) == len(line.frames)
    assert all(sensors)
    assert sum(map(len, sensors)) == len(set.union(*sensors))
