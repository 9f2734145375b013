"""The same hourly traffic of hives from the same raw reports: the flow's way, DuckDB's, Polars's.

All read the Parquet files of bronze, from a fleet with which nothing goes wrong, so that the rule
anybody would write (a total less the one before it, or the total itself after a fall) gives what
our rules give; the tables are compared. The flow's step does more: it knows every kind of message
and trouble, goes on from where sensors stood, and writes what it has decoded.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.accuracy.scoring import profiles_of
from benchmarks.errors import WrongDelivery
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA
from penstock_hives.occupancy.silver import MessageShards, SilverFiles, make_silver
from penstock_hives.sensors.fleet import Fleet, Quirks
from penstock_spark.bronze import (
    MESSAGES_SCHEMA,
    SHARD_COLUMN,
    BronzeFiles,
    open_table,
)
from penstock_spark.lake import Lake, StagedBatch
from penstock_spark.sharding import ShardKey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START: Final = datetime(2026, 3, 2, tzinfo=UTC)
#: Reports a file of bronze has.
_FILE_ROWS: Final = 131_072
_PLUS: Final = 32
_DUCKDB: Final = f"""
    WITH totals AS (
        SELECT "timestamp", "offset", split_part(routing_key, '.', 2) AS serial,
               ('0x' || substr(hex(body), 9, 4))::INTEGER - {_PLUS} AS total_in,
               ('0x' || substr(hex(body), 13, 4))::INTEGER - {_PLUS} AS total_out
        FROM read_parquet($files)
        WHERE routing_key LIKE 'sensors.%.report'
    ), before AS (
        SELECT *, lag(total_in) OVER w AS last_in, lag(total_out) OVER w AS last_out
        FROM totals WINDOW w AS (PARTITION BY serial ORDER BY "offset")
    )
    SELECT hive_id, epoch_us("timestamp") // 3600000000 AS hour,
           sum(CASE WHEN fell THEN total_in ELSE total_in - last_in END)::BIGINT AS entries,
           sum(CASE WHEN fell THEN total_out ELSE total_out - last_out END)::BIGINT AS exits
    FROM (SELECT *, total_in < last_in OR total_out < last_out AS fell FROM before)
    JOIN sensors USING (serial)
    WHERE last_in IS NOT NULL
    GROUP BY hive_id, hour
"""
_SPARK: Final = """
    SELECT hive_id, unix_seconds(received_at) DIV 3600 AS hour,
           sum(delta_in) AS entries, sum(delta_out) AS exits
    FROM {reports} WHERE quality & 256 = 0 GROUP BY 1, 2
"""
Table = list[tuple[int, int, int, int]]


@dataclass(frozen=True, slots=True)
class Took:
    what: str
    reports: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Bronze:
    """Files, and whose sensors they are of."""

    lake: Lake
    stock: BronzeFiles
    fleet: Fleet
    reports: int

    @property
    def paths(self) -> list[str]:
        return [f"{self.stock.location}/{file.path}" for file in self.stock.files]

    @property
    def sensors(self) -> pa.Table:
        rows = [(each.serial, each.hive_id) for each in self.fleet.sensors]
        serials, hives = zip(*rows, strict=True)
        return pa.table({"serial": list(serials), "hive_id": list(hives)})


def compare(spark: SparkSession, reports: int, sensors: int, rounds: int = 3) -> list[Took]:
    """The best of some rounds each, in warm processes."""
    with tempfile.TemporaryDirectory() as folder:
        bronze = fill_bronze(Path(folder), reports, sensors)
        ways: dict[str, Callable[[], Table]] = {
            "silver by the flow's step, then Spark SQL": lambda: _ours(spark, bronze),
            f"DuckDB {duckdb.__version__}": lambda: _duckdb(bronze),
            f"Polars {pl.__version__}": lambda: _polars(bronze),
        }
        took, tables = [], []
        for what, work in ways.items():
            best = float("inf")
            for _ in range(rounds):
                began = time.perf_counter()
                table = work()
                best = min(best, time.perf_counter() - began)
            took.append(Took(what, bronze.reports, best))
            tables.append(sorted(table))
        if any(table != tables[0] for table in tables):
            raise WrongDelivery("the engines do not agree on the traffic of hives")
        return took


def fill_bronze(folder: Path, reports: int, sensors: int, file_rows: int = _FILE_ROWS) -> Bronze:
    fleet = Fleet(start=START, seed=1, sensors=sensors, quirks=Quirks.none())
    lake = Lake(folder, "hives")
    table, shards = open_table(lake)
    draft = StagedBatch(table.location, SHARD_COLUMN)
    files, done = [], 0
    for window in fleet.windows(slots=288):
        rows = pa.Table.from_batches([window.frames]).slice(0, reports - done)
        for start in range(0, len(rows), file_rows):
            writing = draft.open_writer(MESSAGES_SCHEMA)
            writing.add(_messages(rows.slice(start, file_rows), done + start, shards))
            files += writing.close()
        done += len(rows)
        if done >= reports:
            break
    table.commit(lake.flow, 0, files)
    return Bronze(lake, BronzeFiles(table.location, tuple(files), shards=shards), fleet, done)


def _messages(frames: pa.Table, first: int, shards: int) -> pa.Table:
    count = len(frames)
    keys = frames["routing_key"].combine_chunks().cast(pa.string())
    times = frames["timestamp"].cast(MESSAGES_SCHEMA.field("timestamp").type)
    columns: dict[str, Any] = {
        name: pa.nulls(count, MESSAGES_SCHEMA.field(name).type) for name in MESSAGES_SCHEMA.names
    }
    columns |= {
        "stream": pa.repeat("sensors", count),
        "offset": pa.array(np.arange(first, first + count)),
        "timestamp": times,
        "exchange": pa.repeat("amq.topic", count),
        "routing_key": keys,
        "body": frames["body"],
        "day": times.cast(pa.date32()),
        "batch": pa.array(np.zeros(count, np.int32)),
        "shard": pa.array(ShardKey(shards, 2).shards_of(keys)),
    }
    return pa.table(columns, MESSAGES_SCHEMA)


def _ours(spark: SparkSession, bronze: Bronze) -> Table:
    tasks = spark.sparkContext.defaultParallelism
    files = SilverFiles.stage(bronze.lake, 0)
    profiles, none = profiles_of(bronze.fleet), SENSOR_STATE_SCHEMA.empty_table()

    def work(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (each for rows in numbers for each in rows["id"].to_pylist()):
            messages = MessageShards(bronze.stock, number, tasks).read()
            made, _ = make_silver(messages, profiles, none)
            yield pa.RecordBatch.from_pydict({"files": [files.write(made)]})

    written = spark.range(0, tasks, 1, tasks).mapInArrow(work, "files STRING").collect()
    files.commit(bronze.lake, [row.files for row in written])
    rows = spark.sql(_SPARK, reports=bronze.lake.read(spark, "silver.reports")).toArrow()
    return _listed(rows)


def _duckdb(bronze: Bronze) -> Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("sensors", bronze.sensors)
        rows = connection.sql(_DUCKDB, params={"files": bronze.paths})
        return _listed(rows.to_arrow_table())


def _polars(bronze: Bronze) -> Table:
    def total(place: int) -> pl.Expr:
        taken = pl.col("body").bin.slice(place, 2)
        return taken.bin.reinterpret(dtype=pl.UInt16, endianness="big").cast(pl.Int64) - _PLUS

    last_in, last_out = (pl.col(name).shift().over("serial") for name in ("total_in", "total_out"))
    fell = (pl.col("total_in") < pl.col("last_in")) | (pl.col("total_out") < pl.col("last_out"))
    rows = (
        pl.scan_parquet(bronze.paths)
        .select("timestamp", "offset", "routing_key", "body")
        .filter(pl.col("routing_key").str.ends_with(".report"))
        .sort("offset")
        .select(
            (pl.col("timestamp").dt.epoch("s") // 3600).alias("hour"),
            pl.col("routing_key").str.split(".").list.get(1).alias("serial"),
            total(4).alias("total_in"),
            total(6).alias("total_out"),
        )
        .with_columns(last_in.alias("last_in"), last_out.alias("last_out"))
        .filter(pl.col("last_in").is_not_null())
        .with_columns(
            pl.when(fell).then("total_in").otherwise(pl.col("total_in") - pl.col("last_in"))
            .alias("entries"),
            pl.when(fell).then("total_out").otherwise(pl.col("total_out") - pl.col("last_out"))
            .alias("exits"),
        )
        .join(pl.from_arrow(bronze.sensors).lazy(), on="serial")  # type: ignore[union-attr]
        .group_by("hive_id", "hour")
        .agg(pl.col("entries").sum(), pl.col("exits").sum())
    )  # fmt: skip
    return _listed(rows.collect().to_arrow())


def _listed(rows: pa.Table) -> Table:
    columns = (rows[name].to_pylist() for name in ("hive_id", "hour", "entries", "exits"))
    return list(zip(*columns, strict=True))
