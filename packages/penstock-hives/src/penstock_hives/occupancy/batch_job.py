"""A large batch as a Spark job of two stages: silver by message shard, then gold by hive shard.

A silver task reads the messages and the sensors of its shards, writes files of the silver tables
and stages sensor states. It passes the counts of each hive shard on, by a shuffle of one row for
each pair of tasks. A gold task computes what the counts change at its hives and stages it. Tasks
return names of files; the driver publishes what they have staged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock_hives.occupancy.gold import generations
from penstock_hives.occupancy.gold.catalogue import HiveShard
from penstock_hives.occupancy.gold.ledger import FACT_SCHEMA, HiveFacts, OccupancyLedger
from penstock_hives.occupancy.gold.staging import GoldStaging
from penstock_hives.occupancy.silver import MessageShards, SilverFiles, write_silver
from penstock_store import Connection, Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock_spark.bronze import BronzeFiles

_PART: Final = "part"
_REPORT_SCHEMA: Final = pa.schema([("files", pa.string()), ("notices", pa.string())])
_SILVER_SCHEMA: Final = pa.schema([(_PART, pa.int32()), *_REPORT_SCHEMA, *FACT_SCHEMA])
_GOLD_SCHEMA: Final = pa.schema([*_REPORT_SCHEMA, ("clock", pa.int64())])


@dataclass(frozen=True, slots=True)
class JobResult:
    files: Sequence[str]  #: of the silver tables
    notices: Sequence[dict[str, Any]]
    clock: int  #: when the last message was received: microseconds


@dataclass(frozen=True, slots=True)
class BatchJob:
    flow: str
    database: str  #: its URL
    generation: int
    staging: GoldStaging
    silver: SilverFiles
    tasks: int  #: that decode and count
    hive_tasks: int  #: that compute gold: what they hold are counts, not messages

    def run(self, spark: SparkSession, files: BronzeFiles, clock: int) -> JobResult:
        """`clock` is the time so far."""
        from pyspark.sql.pandas.types import from_arrow_schema

        numbers = spark.range(0, self.tasks, 1, self.tasks)
        counted = numbers.mapInArrow(_SilverTask(self, files), from_arrow_schema(_SILVER_SCHEMA))
        by_hive = counted.repartitionById(self.hive_tasks, _PART)
        gold = by_hive.mapInArrow(_GoldTask(self, clock), from_arrow_schema(_GOLD_SCHEMA))
        rows = gold.collect()
        return JobResult(
            [row.files for row in rows if row.files],
            [notice for row in rows for notice in json.loads(row.notices)],
            max(row.clock for row in rows),
        )

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """In a task."""
        with Database(self.database) as database, database.transaction() as connection:
            if self.generation:
                generations.use_generation(connection, self.flow, self.generation)
            yield connection


@dataclass(frozen=True, slots=True)
class _SilverTask:
    """A row in, the number of the task; a row out for each task of gold."""

    job: BatchJob
    files: BronzeFiles

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in numbers:
            for number in rows["id"].to_pylist():
                yield from self._work(number)

    def _work(self, number: int) -> Iterator[pa.RecordBatch]:
        job = self.job
        messages = MessageShards(self.files, number, job.tasks)
        with job.transaction() as connection:
            done = write_silver(connection, messages, job.silver)
            job.staging.copy(connection, done.rows, "silver", number)
        for part in range(job.hive_tasks):
            mine = part == number % job.hive_tasks
            columns = {
                _PART: [part],
                "files": [done.files if mine else ""],
                "notices": [json.dumps(done.notices if mine else [], default=str)],
                **done.hives.of(HiveShard(part, job.hive_tasks)).to_columns(),
            }
            yield pa.RecordBatch.from_pydict(columns, _SILVER_SCHEMA)


@dataclass(frozen=True, slots=True)
class _GoldTask:
    """Rows of all silver tasks in, about the hives of one shard; their reports out."""

    job: BatchJob
    clock: int

    def __call__(self, counted: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        job, rows = self.job, pa.Table.from_batches(counted, _SILVER_SCHEMA)
        for number in rows[_PART].unique().to_pylist():
            mine = rows.filter(pa.compute.equal(rows[_PART], number))
            facts = HiveFacts.from_rows(mine)
            facts = replace(facts, clock=max(facts.clock, self.clock))
            with job.transaction() as connection:
                changes = OccupancyLedger(connection).apply(
                    facts, HiveShard(number, job.hive_tasks)
                )
                job.staging.copy(connection, changes, "gold", number)
            reports = mine.select(_REPORT_SCHEMA.names)
            clocks = pa.repeat(pa.scalar(facts.clock, pa.int64()), len(reports))
            yield from reports.append_column("clock", clocks).to_batches()
