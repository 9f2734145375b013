"""Tables of the lake: batches whole and once, replaced, parted by day, compacted while read."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from queue import Queue

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.core.errors import NotFound
from penstock_spark.compaction import TARGET_FILE_BYTES, compact, compact_table
from penstock_spark.lake import Lake, LakeTable
from penstock_spark.replay import group_files

DAY = date(2026, 11, 15)
TABLE = "silver.facts"
BRONZE_TABLE = "bronze.messages"
FACTS = pa.schema(
    [("stream", pa.string()), ("offset", pa.int64()), ("batch", pa.int64()), ("day", pa.date32())]
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, "tally")


def facts(spark: SparkSession, batch: int, days: tuple[date, ...] = (DAY,)) -> DataFrame:
    """Two rows a day."""
    rows = [("s", 10 * batch + place, batch, day) for day in days for place in range(2)]
    return spark.createDataFrame(rows, "stream string, offset long, batch long, day date")


def batches(frame: DataFrame) -> Counter[int]:
    return Counter(row.batch for row in frame.collect())


def drafted(batch: int, days: tuple[date, ...] = (DAY,)) -> pa.Table:
    """Two rows a day, written by hand and not entered yet."""
    rows = [("s", 10 * batch + place, batch, day) for day in days for place in range(2)]
    columns = dict(zip(FACTS.names, map(list, zip(*rows, strict=True)), strict=True))
    return pa.table(columns, FACTS)


def put(lake: Lake, batch: int, days: tuple[date, ...] = (DAY,), said: int | None = None) -> None:
    """The same as workers write them, without a job of Spark's; rows may say another batch."""
    writing = lake.stage(TABLE, batch).open_writer(FACTS)
    writing.add(drafted(batch if said is None else said, days))
    lake.commit(TABLE, batch, writing.close(), FACTS)


def held(lake: Lake) -> Counter[int]:
    """What the table has, by its files."""
    table = lake.table(TABLE)
    found: Counter[int] = Counter()
    for file in table.log.files():
        found.update(pq.ParquetFile(table.folder / file.path).read(["batch"])["batch"].to_pylist())
    return found


def parquet_files(lake: Lake) -> int:
    return len(list(lake.root.rglob("*.parquet")))


def test_a_batch_is_there_once_it_is_written(spark: SparkSession, lake: Lake) -> None:
    entry = lake.write(TABLE, 0, facts(spark, 0))

    assert sum(file.rows for file in entry.files) == 2
    assert batches(lake.read(spark, TABLE)) == {0: 2}


def test_written_again_it_is_there_as_the_last_time(spark: SparkSession, lake: Lake) -> None:
    lake.write(TABLE, 0, facts(spark, 7))
    lake.write(TABLE, 0, facts(spark, 8))

    assert batches(lake.read(spark, TABLE)) == {8: 2}


def test_written_again_as_nothing_it_is_gone(spark: SparkSession, lake: Lake) -> None:
    lake.write(TABLE, 0, facts(spark, 0))
    lake.write(TABLE, 0, facts(spark, 0).limit(0))

    assert lake.read(spark, TABLE).count() == 0


def test_a_table_nobody_has_written_is_not_found(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(NotFound, match=r"silver\.facts"):
        lake.read(spark, TABLE)


def test_days_are_read_alone(spark: SparkSession, lake: Lake) -> None:
    lake.write(TABLE, 0, facts(spark, 0, (DAY, DAY + timedelta(1))))

    found = lake.read(spark, TABLE, days=(DAY, DAY))

    assert [row.day for row in found.collect()] == [DAY, DAY]
    assert found.columns == ["stream", "offset", "batch", "day"]


def test_a_column_that_was_added_is_null_in_what_came_before(
    spark: SparkSession, lake: Lake
) -> None:
    from pyspark.sql.functions import lit

    lake.write(TABLE, 0, facts(spark, 0).limit(1))
    lake.write(TABLE, 1, facts(spark, 1).limit(1).withColumn("late", lit("x")))

    assert {(row.batch, row.late) for row in lake.read(spark, TABLE).collect()} == {
        (0, None),
        (1, "x"),
    }


def test_what_a_killed_writer_left_is_no_part_and_is_swept_in_time(
    spark: SparkSession, lake: Lake
) -> None:
    put(lake, 0)
    table = lake.table(TABLE)
    table.write_files(facts(spark, 1), "1", 1, 1)  # files, and no entry

    assert held(lake) == {0: 2}
    assert table.delete_unused(3600.0, time.time()) == 0
    assert table.delete_unused(3600.0, time.time() + 3601) > 0
    assert held(lake) == {0: 2}


def test_compaction_changes_files_and_no_rows(spark: SparkSession, lake: Lake) -> None:
    for batch in range(4):
        put(lake, batch, (DAY, DAY + timedelta(1)))
    before = sorted(lake.read(spark, TABLE).collect())
    planned = lake.read(spark, TABLE)

    compact(spark, lake)

    assert sorted(lake.read(spark, TABLE).collect()) == before
    # A file a day, and the last batch, which may be written again.
    assert lake.table(TABLE).size().files == 2 + len(lake.table(TABLE).log.entry(3).files)  # type: ignore[union-attr]
    assert lake.table(TABLE).log.batches() == [3]
    assert sorted(planned.collect()) == before  # who had begun to read finishes


def test_compacted_again_it_takes_in_what_has_come(spark: SparkSession, lake: Lake) -> None:
    for batch in range(3):
        put(lake, batch)
    compact(spark, lake)
    for batch in range(3, 5):
        put(lake, batch)

    compact(spark, lake, grace=0.0)

    assert held(lake) == dict.fromkeys(range(5), 2)
    live = lake.table(TABLE).size().files
    assert parquet_files(lake) == live


def test_a_batch_written_again_after_a_compaction_is_replaced(
    spark: SparkSession, lake: Lake
) -> None:
    for batch in range(3):
        put(lake, batch)
    compact(spark, lake)

    put(lake, 2, said=99)

    assert held(lake) == {0: 2, 1: 2, 99: 2}


def test_another_generation_has_what_was_before_and_goes_its_own_way(lake: Lake) -> None:
    for batch in range(3):
        put(lake, batch)

    other = lake.branch(1, 2)
    put(other, 2, said=99)

    assert held(other) == {0: 2, 1: 2, 99: 2}
    assert held(lake) == {0: 2, 1: 2, 2: 2}


def test_a_generation_begins_where_files_can_be_parted(spark: SparkSession, lake: Lake) -> None:
    for batch in range(5):
        put(lake, batch)
    compact(spark, lake)  # 0 to 3 are one file

    assert lake.boundary(4) == 4
    assert lake.boundary(2) == 0


def test_a_generation_that_is_dropped_leaves_files_others_have(lake: Lake) -> None:
    for batch in range(3):
        put(lake, batch)
    lake.branch(1, 2)

    lake.drop(0)
    lake.table(TABLE).delete_unused(0.0, time.time() + 1)

    assert held(lake.at(1)) == {0: 2, 1: 2}
    assert lake.generations() == {1}


def test_readers_see_every_batch_whole_and_once_while_it_is_compacted(
    spark: SparkSession, lake: Lake
) -> None:
    wanted = 4
    written: Queue[int] = Queue()
    seen: Queue[int] = Queue()

    def write() -> None:
        for batch in range(wanted):
            put(lake, batch, (DAY, DAY + timedelta(batch % 2)))
            written.put(batch)
            seen.put(batch)

    def tidy() -> None:
        while written.get() < wanted - 1:
            compact(spark, lake)

    threads = [threading.Thread(target=work) for work in (write, tidy)]
    for thread in threads:
        thread.start()
    # A look for every batch, while the next is written and those before are compacted.
    for batch in iter(seen.get, wanted - 1):
        found = held(lake)
        assert set(found.values()) == {4}, found
        assert sorted(found) == list(range(len(found)))
        assert batch in found
    for thread in threads:
        thread.join()

    assert held(lake) == dict.fromkeys(range(wanted), 4)


def test_workers_write_files_that_are_a_batch_once_it_is_entered(
    spark: SparkSession, lake: Lake
) -> None:
    lake.write(TABLE, 0, facts(spark, 0))
    draft = lake.stage(TABLE, 1)
    files = []
    for _ in range(2):  # two tasks
        writing = draft.open_writer(FACTS)
        writing.add(drafted(1, (DAY, DAY + timedelta(1))))
        files += writing.close()
    assert batches(lake.read(spark, TABLE)) == {0: 2}

    lake.commit(TABLE, 1, files, FACTS)

    assert batches(lake.read(spark, TABLE)) == {0: 2, 1: 8}
    assert batches(lake.read(spark, TABLE, days=(DAY, DAY))) == {0: 2, 1: 4}
    assert lake.table(TABLE).size().rows == 10
    compact(spark, lake)
    assert batches(lake.read(spark, TABLE)) == {0: 2, 1: 8}


def test_entered_again_it_is_as_the_last_time(lake: Lake) -> None:
    for batch in (7, 8):
        writing = lake.stage(TABLE, 0).open_writer(FACTS)
        writing.add(drafted(batch))
        lake.commit(TABLE, 0, writing.close(), FACTS)

    assert held(lake) == {8: 2}

    lake.commit(TABLE, 0, [], FACTS)
    assert lake.table(TABLE).log.files() == []


def arrived(batch: int, streams: tuple[str, ...]) -> pa.Table:
    """Two rows of each stream, as bronze has them."""
    rows = [(stream, 10 * batch + place, batch, DAY) for stream in streams for place in range(2)]
    columns = dict(zip(FACTS.names, map(list, zip(*rows, strict=True)), strict=True))
    return pa.table(columns, FACTS)


def keep(table: LakeTable, batch: int, streams: tuple[str, ...]) -> None:
    writing = table.stage(batch).open_writer(FACTS)
    writing.add(arrived(batch, streams))
    table.commit(batch, writing.close(), FACTS)


def by_stream(lake: Lake) -> dict[str, set[str]]:
    """Which streams' rows are in the files of each folder of a stream."""
    found: dict[str, set[str]] = {}
    for file in lake.table(BRONZE_TABLE).log.files():
        path = lake.table(BRONZE_TABLE).folder / file.path
        day, stream = path.parent.parent.name, path.parent.name
        assert day == f"_day={DAY}"
        names = pq.ParquetFile(path).read(["stream"])["stream"].to_pylist()
        assert {file.stream} == set(names)
        found.setdefault(stream, set()).update(names)
    return found


#: As names may be: of a path's own signs, of a glob's, and too long for a folder.
ODD_NAMES = ("a/b", "100 % [x]*", "é=ü", "n" * 250)


def test_bronze_lies_by_day_and_stream_and_is_compacted_so(spark: SparkSession, lake: Lake) -> None:
    table = lake.table(BRONZE_TABLE)
    for batch in range(3):
        keep(table, batch, ("s-0", "s-1", *ODD_NAMES))
    before = sorted(lake.read(spark, BRONZE_TABLE).collect())
    parted = by_stream(lake)
    assert {"_stream=s-0", "_stream=s-1"} < parted.keys()
    assert all(len(names) == 1 for names in parted.values())

    compact(spark, lake, grace=-1.0)

    assert by_stream(lake) == parted
    assert sorted(lake.read(spark, BRONZE_TABLE).collect()) == before
    # A file for each stream, and those of the last batch, which may be written again.
    assert table.size().files == 2 * len(parted)
    assert len(list(table.folder.rglob("*.parquet"))) == 2 * len(parted)


def test_bronze_can_be_parted_between_batches_however_its_streams_differ(
    spark: SparkSession, lake: Lake
) -> None:
    """A replay takes so many rows at a time, and no batch in two: files of a stream that is rarely
    sent to must not reach over those of the others."""
    table = lake.table(BRONZE_TABLE)
    for batch in range(9):
        keep(table, batch, ("busy",) if batch % 3 else ("busy", "quiet"))
        if batch in (4, 8):
            compact_table(spark, table, None, target=3 * table.log.files()[-1].bytes)

    groups = list(group_files(table.log.files(), rows=1))

    assert len(groups) >= 3
    assert sum(group.rows for group in groups) == 2 * (9 + 3)
    assert by_stream(lake) == {"_stream=busy": {"busy"}, "_stream=quiet": {"quiet"}}


def test_a_lake_from_before_streams_lay_apart_is_read_and_parted(
    spark: SparkSession, lake: Lake
) -> None:
    older = LakeTable(BRONZE_TABLE, lake.table(BRONZE_TABLE).folder, 0)
    for batch in range(3):
        keep(older, batch, ("s-0", "s-1"))
    compact_table(spark, older, None, TARGET_FILE_BYTES)
    assert {file.stream for file in older.log.files()} == {None}
    for entry in older.log.folder.glob("*-*.json"):  # as they were written then
        entry.write_text(entry.read_text().replace(',"stream":null', ""))
    keep(lake.table(BRONZE_TABLE), 3, ("s-0", "s-1"))
    before = sorted(lake.read(spark, BRONZE_TABLE).collect())
    assert len(before) == 16

    compact(spark, lake)
    keep(lake.table(BRONZE_TABLE), 3, ("s-0", "s-1"))  # the last batch is tried again

    assert by_stream(lake) == {"_stream=s-0": {"s-0"}, "_stream=s-1": {"s-1"}}
    assert sorted(lake.read(spark, BRONZE_TABLE).collect()) == before
