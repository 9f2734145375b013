"""Silver in the lake, in one pass of Spark over a batch.

Workers write `silver.reports` through Spark and leave what else they have found in a folder of the
lake's, a file a partition, which the driver reads when the job is done: for a batch of live
messages each further job would take longer than the batch itself. A task that is run again leaves
the same file. `silver.statuses` and `silver.dead_letters` are written after gold, of batches that
have any: nobody waits for them.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.hives.sensors.sending import RECEIVED_AT
from penstock.hives.steps import silver
from penstock.hives.steps.decoded import MESSAGES
from penstock.hives.steps.profiles import Profiles
from penstock.hives.steps.reading import REPORTS, Carried, make
from penstock.pipeline.flow import Batch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REPORTS_TABLE: Final = "silver.reports"
_APART: Final = {"silver.statuses": silver.statuses, "silver.dead_letters": silver.dead_letters}
_CARRIED: Final = ".carried"


def write(batch: Batch, profiles: Profiles, states: pa.Table) -> Carried:
    """`silver.reports` of a batch, of sensors that stood so; what else there is of it."""
    from pyspark.sql import functions as F

    with _folder(batch) as folder:
        apart = received(batch.messages).select(*MESSAGES.names).repartition(_sensor())
        reports = apart.mapInArrow(_Work(profiles, states, folder), silver.ddl(REPORTS))
        _keep(batch, REPORTS_TABLE, reports.withColumn("day", F.to_date("received_at")))
        return Carried.joined(path.read_bytes() for path in sorted(folder.iterdir()))


def write_apart(batch: Batch, carried: Carried) -> None:
    """The tables nobody waits for."""
    for (table, choose), rows in zip(
        _APART.items(), (carried.statuses, carried.letters), strict=True
    ):
        if rows.num_rows:
            _keep(batch, table, choose(batch.spark.createDataFrame(rows)))
        else:
            batch.lake.clear(table, batch.id)


def write_apart_again(batch: Batch, profiles: Profiles) -> None:
    """The same, of a batch whose gold is there already. They do not ask where sensors stand."""
    rows = silver.decode(received(batch.messages), profiles)
    for table, choose in _APART.items():
        _keep(batch, table, choose(rows))


def received(messages: DataFrame) -> DataFrame:
    """Messages sent at another time than their own say when they were received."""
    from pyspark.sql import functions as F

    told = F.timestamp_millis(F.col("headers")[RECEIVED_AT].try_cast("bigint"))
    return messages.withColumn("timestamp", F.coalesce(told, "timestamp"))


@dataclass(frozen=True, slots=True)
class _Work:
    """What a task does with the messages of its sensors."""

    profiles: Profiles
    states: pa.Table
    folder: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        reports, carried = make(batches, self.profiles, self.states)
        yield from reports
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        # Whole or not there, whichever of several runs of the task is the last.
        aside = self.folder / f".{uuid.uuid4().hex}"
        aside.write_bytes(carried.to_bytes())
        aside.replace(self.folder / f"{partition:06}")


@contextmanager
def _folder(batch: Batch) -> Iterator[Path]:
    """Where tasks leave what they carry; what an earlier try of the batch left goes."""
    lake = batch.lake
    name = f"{lake.flow}-{lake.generation}-{batch.id}"
    for left in (lake.root / _CARRIED).glob(f"{lake.flow}-{lake.generation}-*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = lake.root / _CARRIED / f"{name}-{uuid.uuid4().hex[:12]}"
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keep(batch: Batch, table: str, rows: DataFrame) -> None:
    from pyspark.sql import functions as F

    batch.lake.write(table, batch.id, rows.withColumn("batch", F.lit(batch.id).cast("long")))


def _sensor() -> Column:
    """What all topics of a sensor begin with, however they are spelled."""
    from pyspark.sql import functions as F

    return F.substring_index(F.translate("routing_key", "/", "."), ".", 2)
