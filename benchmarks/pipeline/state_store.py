"""State per sensor between batches: our shards beside Spark's shuffle and state store.

Both read the same files of bronze in the same number of batches and count by the same simple rule,
from a fleet with which nothing goes wrong; the sums of every sensor are compared. *Shards*: a task
reads the rows and the states of its shards, counts with NumPy, and writes the new states to a file.
*State store*: a streaming query decodes with Arrow, shuffles by sensor, and `transformWithState`
keeps the last totals in RocksDB, with changelog checkpoints.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.accuracy.scoring import profiles_of
from benchmarks.errors import WrongDelivery
from benchmarks.pipeline.engines import Bronze, fill_bronze
from benchmarks.usage import usage_of
from penstock_hives.occupancy.schemas import Quality
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA
from penstock_hives.occupancy.silver import MessageShards, make_silver
from penstock_spark.bronze import BronzeFiles

_DECODED: Final = "serial STRING, offset BIGINT, total_in BIGINT, total_out BIGINT"
_COUNTED: Final = "serial STRING, entries BIGINT, exits BIGINT"
_PLUS: Final = 32
_FIRST: Final = int(Quality.FIRST)
#: RocksDB's checkpoints need Hadoop's file system with checksums, which flows do without.
SETTINGS: Final = {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem"}
Sums = dict[str, tuple[int, int]]  #: entries and exits by serial


@dataclass(frozen=True, slots=True)
class Stateful:
    """What one way took."""

    what: str
    reports: int
    batches: int
    seconds: float
    cpu_seconds: float


def compare(
    spark: SparkSession, reports: int, sensors: int, batches: int, rounds: int
) -> list[Stateful]:
    """Alternating; of each way the round with the least CPU time, in a warm session."""
    with tempfile.TemporaryDirectory() as folder:
        bronze = fill_bronze(Path(folder) / "lake", reports, sensors, -(-reports // batches))
        ways: dict[str, Callable[[Path], Sums]] = {
            "shards, all rules of the flow": lambda place: _shards(spark, bronze, place),
            "`transformWithState` on RocksDB, the simple rule": lambda place: _state_store(
                spark, bronze, place
            ),
        }
        took: dict[str, list[Stateful]] = {what: [] for what in ways}
        for turn in range(rounds + 1):
            sums: list[Sums] = []
            for what, work in ways.items():
                place = Path(folder) / f"{turn}-{len(sums)}"
                place.mkdir()
                used, began = usage_of([os.getpid()]).cpu_seconds, time.perf_counter()
                sums.append(work(place))
                seconds = time.perf_counter() - began
                cpu = usage_of([os.getpid()]).cpu_seconds - used
                count = len(bronze.stock.files)
                took[what].append(Stateful(what, bronze.reports, count, seconds, cpu))
            if sums[0] != sums[1]:
                raise WrongDelivery("shards and state store do not agree on the sums of sensors")
        return [min(each[1:], key=lambda one: one.cpu_seconds) for each in took.values()]


def _shards(spark: SparkSession, bronze: Bronze, place: Path) -> Sums:
    """As the flow works, with states in files instead of PostgreSQL."""
    tasks, profiles = spark.sparkContext.defaultParallelism, profiles_of(bronze.fleet)
    serials = {each.serial: row for row, each in enumerate(bronze.fleet.sensors)}
    sums = np.zeros((len(serials), 2), np.int64)
    for batch, file in enumerate(bronze.stock.files):
        files = BronzeFiles(bronze.stock.location, (file,), shards=bronze.stock.shards)
        task = _ShardTask(files, tasks, place, batch, profiles)
        counted = spark.range(0, tasks, 1, tasks).mapInArrow(task, _COUNTED).toArrow()
        rows = [serials[serial] for serial in counted["serial"].to_pylist()]
        for column, name in enumerate(("entries", "exits")):
            np.add.at(sums[:, column], rows, np.asarray(counted[name]))
    return {serial: (int(sums[row][0]), int(sums[row][1])) for serial, row in serials.items()}


@dataclass(frozen=True, slots=True)
class _ShardTask:
    files: BronzeFiles
    tasks: int
    place: Path
    batch: int
    profiles: Any

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (each for rows in numbers for each in rows["id"].to_pylist()):
            states = SENSOR_STATE_SCHEMA.empty_table()
            if self.batch:
                states = pq.read_table(self.place / f"{self.batch - 1}-{number}.parquet")
            messages = MessageShards(self.files, number, self.tasks).read()
            tables, summary = make_silver(messages, self.profiles, states)
            pq.write_table(summary.states, self.place / f"{self.batch}-{number}.parquet")
            reports = tables["silver.reports"]
            reports = reports.filter(pc.equal(pc.bit_wise_and(reports["quality"], _FIRST), 0))
            sums = reports.group_by("sensor").aggregate([("delta_in", "sum"), ("delta_out", "sum")])
            names = {"sensor": "serial", "delta_in_sum": "entries", "delta_out_sum": "exits"}
            counted = sums.rename_columns(names).select(["serial", "entries", "exits"])
            schema = pa.schema(
                [("serial", pa.string()), ("entries", pa.int64()), ("exits", pa.int64())]
            )
            yield from counted.cast(schema).to_batches()


def _state_store(spark: SparkSession, bronze: Bronze, place: Path) -> Sums:
    source = (
        spark.readStream.schema("routing_key STRING, offset BIGINT, body BINARY")
        .option("recursiveFileLookup", "true")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(bronze.stock.location))
    )
    counted = (
        source.mapInArrow(_decode, _DECODED)
        .groupBy("serial")
        .transformWithStateInPandas(
            statefulProcessor=_LastTotals(),
            outputStructType=_COUNTED,
            outputMode="append",
            timeMode="none",
        )
    )
    found: dict[str, list[int]] = {each.serial: [0, 0] for each in bronze.fleet.sensors}

    def collect(rows: DataFrame, batch: int) -> None:
        for serial, *numbers in zip(*rows.toArrow().to_pydict().values(), strict=True):
            for column, number in enumerate(numbers):
                found[serial][column] += number

    query = (
        counted.writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return {serial: (entries, exits) for serial, (entries, exits) in found.items()}


def _decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Serial, offset and totals of reports v1."""
    for rows in batches:
        keys = pc.split_pattern(rows["routing_key"], ".")
        reports = pc.equal(pc.list_element(keys, 2), "report")
        mine = pa.Table.from_batches([rows]).append_column("serial", pc.list_element(keys, 1))
        mine = mine.filter(reports).combine_chunks()
        for part in mine.to_batches():
            bodies, totals = part["body"], []
            _, ends, data = bodies.buffers()
            starts = np.frombuffer(ends, np.int32)[bodies.offset : bodies.offset + len(part)]
            octets = np.frombuffer(data, np.uint8).astype(np.int64)
            for at in (4, 6):
                totals.append((octets[starts + at] << 8 | octets[starts + at + 1]) - _PLUS)
            columns = [part["serial"], part["offset"], *(pa.array(each) for each in totals)]
            yield pa.RecordBatch.from_arrays(columns, ["serial", "offset", "total_in", "total_out"])


class _LastTotals(StatefulProcessor):
    """A total less the one before it, or the total itself after a fall."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._last = handle.getValueState("last", "total_in BIGINT, total_out BIGINT")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        frame = pd.concat(list(rows)).sort_values("offset")
        totals = frame[["total_in", "total_out"]].to_numpy()
        if self._last.exists():
            totals = np.concatenate([np.array([self._last.get()], np.int64), totals])
        self._last.update(tuple(int(each) for each in totals[-1]))
        steps = np.diff(totals, axis=0)
        fell = (steps < 0).any(axis=1)
        added = np.where(fell[:, None], totals[1:], steps).sum(axis=0)
        yield pd.DataFrame({"serial": [key[0]], "entries": [added[0]], "exits": [added[1]]})

    def close(self) -> None:
        """Nothing is open."""
