"""The lake of a flow: batches whole and once, replaced, compacted while read; read by others."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from queue import Queue

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.core.errors import NotFound
from penstock_spark.compaction import compact
from penstock_spark.lake import Lake, LakeTable
from penstock_spark.replay import group_files
from tests.pipeline.cloud_stores import CloudStore
from tests.pipeline.object_store import ObjectStore

DAY = date(2026, 11, 15)
TABLE = "silver.facts"
FACTS = pa.schema(
    [("stream", pa.string()), ("offset", pa.int64()), ("batch", pa.int64()), ("day", pa.date32())]
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, "tally")


def facts(spark: SparkSession, batch: int, days: tuple[date, ...] = (DAY,)) -> DataFrame:
    """Two rows a day."""
    rows = [("s", 10 * batch + place, day) for day in days for place in range(2)]
    return spark.createDataFrame(rows, "stream string, offset long, day date")


def put(lake: Lake, batch: int, days: tuple[date, ...] = (DAY,), count: int = 2) -> None:
    """As workers write them, without a job of Spark's."""
    rows = [("s", 10 * batch + place, batch, day) for day in days for place in range(count)]
    columns = dict(zip(FACTS.names, map(list, zip(*rows, strict=True)), strict=True))
    writing = lake.stage(TABLE, batch).open_writer(FACTS)
    writing.add(pa.table(columns, FACTS))
    lake.commit(TABLE, batch, writing.close(), FACTS)


def rows_of(table: LakeTable) -> list[tuple[object, ...]]:
    found = [row for file in table.files() for row in table.read_file(file).to_pylist()]
    return sorted(tuple(row[name] for name in FACTS.names) for row in found)


def held(lake: Lake) -> Counter[int]:
    """How many rows of each batch the table has."""
    return Counter(row[2] for row in rows_of(lake.table(TABLE)))  # type: ignore[misc]


def batches(frame: DataFrame) -> Counter[int]:
    return Counter(row.batch for row in frame.collect())


def test_a_batch_is_there_once_it_is_written_and_as_the_last_time(
    spark: SparkSession, lake: Lake
) -> None:
    lake.write(TABLE, 0, facts(spark, 0, (DAY, DAY + timedelta(1))))
    lake.write(TABLE, 1, facts(spark, 1))
    lake.write(TABLE, 1, facts(spark, 1).limit(1))

    assert batches(lake.read(spark, TABLE)) == {0: 4, 1: 1}
    assert batches(lake.read(spark, TABLE, days=(DAY, DAY))) == {0: 2, 1: 1}
    lake.write(TABLE, 1, facts(spark, 1).limit(0))
    assert batches(lake.read(spark, TABLE)) == {0: 4}


def test_a_table_nobody_has_written_is_not_found(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(NotFound, match=r"silver\.facts"):
        lake.read(spark, TABLE)
    with pytest.raises(ValueError, match="should be like silver"):
        lake.table("Facts")


def test_a_column_that_was_added_is_null_in_what_came_before(
    spark: SparkSession, lake: Lake
) -> None:
    from pyspark.sql.functions import lit

    lake.write(TABLE, 0, facts(spark, 0).limit(1))
    lake.write(TABLE, 1, facts(spark, 1).limit(1).withColumn("late", lit("x")))

    found = {(row.batch, row.late) for row in lake.read(spark, TABLE).collect()}
    assert found == {(0, None), (1, "x")}


def test_every_engine_reads_the_same_rows(spark: SparkSession, lake: Lake) -> None:
    """Also after batches were replaced, merged and replayed, without our code."""
    for batch in range(4):
        put(lake, batch, (DAY, DAY + timedelta(1)))
    compact(lake)
    put(lake, 3, count=1)
    put(lake, 4)
    table = lake.table(TABLE)
    wanted = rows_of(table)
    url = table.location.url
    assert Counter(row[2] for row in wanted) == {0: 4, 1: 4, 2: 4, 3: 1, 4: 2}

    polars = pl.read_delta(url).select(FACTS.names).rows()
    assert sorted(polars) == wanted
    from deltalake import DeltaTable

    delta = DeltaTable(url).to_pyarrow_dataset()
    assert delta.count_rows() == len(wanted)
    files = DeltaTable(url).file_uris()
    with duckdb.connect() as connection:
        columns = 'SELECT stream, "offset", batch, day FROM'
        connection.register("facts", delta)
        assert sorted(connection.execute(f"{columns} facts").fetchall()) == wanted
        listed = f"{columns} read_parquet(?, hive_partitioning = true)"
        assert sorted(connection.execute(listed, [files]).fetchall()) == wanted
    plain = spark.read.option("basePath", url).parquet(*files).select(*FACTS.names)
    assert sorted(tuple(row) for row in plain.collect()) == wanted
    assert sorted(tuple(row) for row in lake.read(spark, TABLE).collect()) == wanted


@pytest.mark.parametrize("store", ["s3", "azure", "azurite", "google"])
def test_a_lake_in_an_object_store_is_written_and_read_by_workers(
    spark: SparkSession, name: str, store: str, request: pytest.FixtureRequest
) -> None:
    found: ObjectStore | CloudStore = request.getfixturevalue(store)
    lake = Lake(found.location(name), "tally")
    lake.write(TABLE, 0, facts(spark, 0, (DAY, DAY + timedelta(1))))
    lake.write(TABLE, 1, facts(spark, 1))
    lake.write(TABLE, 1, facts(spark, 1).limit(1))

    compact(lake)

    assert batches(lake.read(spark, TABLE)) == held(lake) == {0: 4, 1: 1}
    assert batches(lake.branch(spark, 1, 1).read(spark, TABLE)) == {0: 4}
    assert [table.name for table in lake.tables()] == [TABLE]
    lake.drop(1)
    assert lake.generations() == {0}


def test_compaction_changes_files_and_no_rows(spark: SparkSession, lake: Lake) -> None:
    for batch in range(4):
        put(lake, batch, (DAY, DAY + timedelta(1)))
    before = rows_of(lake.table(TABLE))
    planned = lake.read(spark, TABLE)

    (done,) = compact(lake)

    assert (done.rows, done.before, done.after) == (16, 8, 2)
    assert rows_of(lake.table(TABLE)) == before
    assert len(planned.collect()) == 16  # who had begun to read finishes
    for batch in range(4, 6):
        put(lake, batch)
    compact(lake, (DAY, DAY), grace=timedelta())
    assert held(lake) == {**dict.fromkeys(range(4), 4), 4: 2, 5: 2}
    assert len(list(Path(lake.root.url).rglob("day=*/*.parquet"))) == 2
    assert compact(lake) == []


def test_large_files_are_left_alone_and_batches_stay_in_order(lake: Lake) -> None:
    for batch in range(9):
        put(lake, batch)
    size = lake.table(TABLE).files()[0].bytes

    compact(lake, target=3 * size + 10)

    files = lake.table(TABLE).files()
    assert len(files) == 3
    groups = list(group_files(files, rows=1))
    assert [(group.first, group.last) for group in groups] == [(0, 2), (3, 5), (6, 8)]


def test_another_generation_has_what_was_before_and_goes_its_own_way(
    spark: SparkSession, lake: Lake
) -> None:
    for batch in range(3):
        put(lake, batch)
    compact(lake)  # batches in one file are parted

    other = lake.branch(spark, 1, 2)
    put(other, 2, count=1)

    assert held(other) == {0: 2, 1: 2, 2: 1}
    assert held(lake) == {0: 2, 1: 2, 2: 2}
    lake.drop(0)
    assert lake.generations() == {1}
    assert held(other) == {0: 2, 1: 2, 2: 1}


def test_readers_see_every_batch_whole_and_once_while_it_is_compacted(lake: Lake) -> None:
    wanted = 6
    written: Queue[int] = Queue()
    seen: Queue[int] = Queue()

    def write() -> None:
        for batch in range(wanted):
            put(lake, batch, (DAY, DAY + timedelta(batch % 2)))
            written.put(batch)
            seen.put(batch)

    def tidy() -> None:
        while written.get() < wanted - 1:
            compact(lake)

    threads = [threading.Thread(target=work) for work in (write, tidy)]
    for thread in threads:
        thread.start()
    for batch in iter(seen.get, wanted - 1):
        found = held(Lake(lake.root, lake.flow))
        assert set(found.values()) == {4}, found
        assert sorted(found) == list(range(len(found)))
        assert batch in found
    for thread in threads:
        thread.join()

    assert held(lake) == dict.fromkeys(range(wanted), 4)
