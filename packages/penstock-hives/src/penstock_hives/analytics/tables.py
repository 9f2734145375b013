"""Tables of analytics: PostgreSQL to DataFrames, and results to PostgreSQL and the lake.

Large tables are read by tasks, each a partition. Results are written in one transaction with the id
of the day; the same day again changes only what differs. Recommendations replace those of the day
before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock_spark.lake import Lake
from penstock_store import (
    AppliedBatches,
    Connection,
    Database,
    connect,
    copy_rows,
    create_staging_table,
    drop_staging_table,
    merge_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: At most so many read at a time, each over a connection of its own.
MAX_PARTITIONS: Final = 16


def read_partitioned(
    spark: SparkSession,
    url: str,
    statement: str,
    schema: pa.Schema,
    given: Mapping[str, Any],
) -> DataFrame:
    """Rows that never pass through the driver. A task has a share of them, by what the statement
    makes of `%(share)s` and `%(shares)s`; as many as the session shuffles into."""
    from pyspark.sql.pandas.types import from_arrow_schema

    shares = min(MAX_PARTITIONS, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
    reading = _PartitionReader(url, statement, schema, {**given, "shares": shares})
    rows = spark.range(0, shares, 1, shares)
    return rows.mapInArrow(reading, from_arrow_schema(schema))


def read_small(
    spark: SparkSession,
    database: Database,
    statement: str,
    schema: pa.Schema,
    given: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Few rows: plans of businesses, not deeds of people."""
    rows = database.rows(statement, given or {})
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema))


@dataclass(frozen=True, slots=True)
class _PartitionReader:
    url: str
    statement: str
    schema: pa.Schema
    given: dict[str, Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch["id"].to_pylist():
                wanted = {**self.given, "share": share}
                with connect(self.url) as connection:
                    rows = connection.execute(self.statement, wanted).fetchall()
                yield from pa.Table.from_pylist(rows, self.schema).to_batches()


#: Names the marks and the staging tables, and in the lake the folder of these tables.
FLOW: Final = "analytics"


@dataclass(frozen=True, slots=True)
class AnalyticsTable:
    """A table, what its rows are known by, and whether yesterday's rows go."""

    keys: tuple[str, ...]
    replaced: bool = False


ANALYTICS_TABLES: Final[Mapping[str, AnalyticsTable]] = {
    "hive_popularity": AnalyticsTable(("day", "window_days", "hive_id")),
    "preference_shift": AnalyticsTable(("day", "window_days", "hive_type")),
    "hive_comparison": AnalyticsTable(("hive_id", "day", "window_days")),
    "deal_effect": AnalyticsTable(("deal_id",)),
    "custom_metric_value": AnalyticsTable(("metric_id", "hive_id", "day")),
    "deal_recommendation": AnalyticsTable(("user_id", "deal_id"), replaced=True),
    "insight": AnalyticsTable(("account_id", "hive_id", "kind", "day")),
}


def is_analysed(database: Database, day: date) -> bool:
    with database.transaction() as connection:
        return AppliedBatches(connection).applied(FLOW, day.toordinal())


def write_findings(
    database: Database, found: Mapping[str, pa.Table], day: date, now: datetime
) -> dict[str, int]:
    """How many rows of each table there are; a day that was done is done again, and marked once."""
    written = {}
    with database.transaction() as connection:
        for name, rows in found.items():
            written[name] = _put(connection, name, _made(rows, now), day)
        batches = AppliedBatches(connection)
        if not batches.applied(FLOW, day.toordinal()):
            batches.mark(FLOW, day.toordinal(), sum(written.values()))
    return written


def write_to_lake(lake: Lake, found: Mapping[str, pa.Table], day: date, now: datetime) -> None:
    """The same in the lake, as `gold.<table>`: a batch is a day."""
    for name, rows in found.items():
        whole = _dated(_made(rows, now), day)
        table = f"gold.{name}"
        writing = lake.draft(table, day.toordinal()).begin(whole.schema)
        if len(whole):
            writing.add(whole)
        lake.enter(table, day.toordinal(), writing.close(), whole.schema)


def _put(connection: Connection, name: str, rows: pa.Table, day: date) -> int:
    gold = ANALYTICS_TABLES[name]
    if gold.replaced:
        connection.execute(f"DELETE FROM {name}")
    staging = create_staging_table(connection, FLOW, day.toordinal(), name, rows.schema.names)
    count = copy_rows(connection, staging, rows.to_batches(), part=0)
    update = {
        column: f"excluded.{column}" for column in rows.schema.names if column not in gold.keys
    }
    merge_rows(connection, staging, name, gold.keys, update)
    drop_staging_table(connection, staging)
    return count


def _made(rows: pa.Table, now: datetime) -> pa.Table:
    if "made_at" in rows.schema.names:
        return rows
    return rows.append_column("made_at", _repeated(now, pa.timestamp("us", tz="UTC"), len(rows)))


def _dated(rows: pa.Table, day: date) -> pa.Table:
    if "day" not in rows.schema.names:
        rows = rows.append_column("day", _repeated(day, pa.date32(), len(rows)))
    return rows.append_column("batch", _repeated(day.toordinal(), pa.int64(), len(rows)))


def _repeated(value: Any, kind: Any, count: int) -> Any:
    return pa.repeat(pa.scalar(value, kind), count)
