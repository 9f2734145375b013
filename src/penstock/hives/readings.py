"""Silver in the lake: what every message came to, written in one pass of Spark.

`silver.readings` has the rows of all parts (`steps.silver`), computed and written once: for a batch
of live messages each further job would take longer than the batch itself. `read` gives the tables
that are in it. What people look for when something is wrong, `silver.dead_letters`, and the rare
`silver.statuses` are tables of their own, too, of the batches that have any.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.hives.sensors.sending import RECEIVED_AT
from penstock.hives.steps import silver
from penstock.hives.steps.decoded import Part
from penstock.hives.steps.profiles import Profiles
from penstock.pipeline.flow import Batch
from penstock.pipeline.lake import Entry, Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READINGS: Final = "silver.readings"
_TABLES: Final = {
    "reports": silver.reports,
    "events": silver.events,
    "statuses": silver.statuses,
    "dead_letters": silver.dead_letters,
}
_APART: Final = {Part.STATUS: "statuses", Part.DEAD_LETTER: "dead_letters"}


def write(batch: Batch, profiles: Profiles, states: pa.Table) -> Entry:
    """Silver of a batch, of sensors that stood so. Its files."""
    from pyspark.sql import functions as F

    rows = silver.silver(received(batch.messages), profiles, states)
    # What is told of no message's moment is of the day it was learned.
    day = F.coalesce("received_at", "state.received_at", F.current_timestamp())
    filed = rows.withColumns({"day": F.to_date(day), "batch": F.lit(batch.id).cast("long")})
    return batch.lake.write(READINGS, batch.id, filed)


def write_apart(batch: Batch) -> None:
    """The tables of their own: of what a batch has in `silver.readings`, again if need be."""
    from pyspark.sql import functions as F

    entry = batch.lake.table(READINGS).log.entry(batch.id)
    if entry is None:
        return  # and compacted: this was done long ago
    parts = set(load(batch.lake, entry, ["part"])["part"].unique().to_pylist())
    for part, name in _APART.items():
        table = f"silver.{name}"
        if part.value not in parts:
            batch.lake.clear(table, batch.id)
            continue
        rows = batch.lake.table(READINGS).read(batch.spark, files=entry.files)
        made = _TABLES[name](rows).withColumn("batch", F.lit(batch.id).cast("long"))
        batch.lake.write(table, batch.id, made)


def read(
    lake: Lake, spark: SparkSession, table: str, days: tuple[date, date] | None = None
) -> DataFrame:
    """A table of silver: `reports`, `events`, `statuses`, `dead_letters`."""
    return _TABLES[table](lake.read(spark, READINGS, days))


def load(
    lake: Lake, entry: Entry, columns: Sequence[str], chosen: pc.Expression | None = None
) -> pa.Table:
    """Some columns of a batch's rows, here: the driver sees the lake's files as workers do."""
    folder: Path = lake.table(READINGS).folder
    tables = [
        pq.read_table(folder / file.path, columns=list(columns), filters=chosen)
        for file in entry.files
    ]
    return pa.concat_tables(tables).combine_chunks()


def received(messages: DataFrame) -> DataFrame:
    """Messages sent at another time than their own say when they were received."""
    from pyspark.sql import functions as F

    told = F.timestamp_millis(F.col("headers")[RECEIVED_AT].try_cast("bigint"))
    return messages.withColumn("timestamp", F.coalesce(told, "timestamp"))
