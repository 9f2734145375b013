"""Tables of analytics: PostgreSQL to DataFrames, and results to PostgreSQL and the lake.

Results are written in one transaction with the id of the day; the same day again changes only what
differs. Recommendations replace those of the day before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock_spark.lake import Lake
from penstock_store import (
    AppliedBatches,
    Connection,
    Database,
    copy_rows,
    create_staging_table,
    drop_staging_table,
    merge_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_small(
    spark: SparkSession,
    database: Database,
    statement: str,
    schema: pa.Schema,
    given: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A table of few rows, read by the driver."""
    rows = database.rows(statement, given or {})
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema))


#: Name of the batches, the staging tables, and the folder in the lake.
FLOW: Final = "analytics"


@dataclass(frozen=True, slots=True)
class AnalyticsTable:
    """The keys of a table, and whether all its rows are replaced each night."""

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
    """Returns the rows of each table. A repeated day is written again and recorded once."""
    written = {}
    with database.transaction() as connection:
        for name, rows in found.items():
            written[name] = _merge(connection, name, _with_time(rows, now), day)
        batches = AppliedBatches(connection)
        if not batches.applied(FLOW, day.toordinal()):
            batches.mark(FLOW, day.toordinal(), sum(written.values()))
    return written


def write_to_lake(lake: Lake, found: Mapping[str, pa.Table], day: date, now: datetime) -> None:
    """As `gold.<table>`; a batch is a day."""
    for name, rows in found.items():
        whole = _dated(_with_time(rows, now), day)
        table = f"gold.{name}"
        writing = lake.stage(table, day.toordinal()).open_writer(whole.schema)
        if len(whole):
            writing.add(whole)
        lake.commit(table, day.toordinal(), writing.close(), whole.schema)


def _merge(connection: Connection, name: str, rows: pa.Table, day: date) -> int:
    table = ANALYTICS_TABLES[name]
    if table.replaced:
        connection.execute(f"DELETE FROM {name}")
    staging = create_staging_table(connection, FLOW, day.toordinal(), name, rows.schema.names)
    count = copy_rows(connection, staging, rows.to_batches(), part=0)
    update = {
        column: f"excluded.{column}" for column in rows.schema.names if column not in table.keys
    }
    merge_rows(connection, staging, name, table.keys, update)
    drop_staging_table(connection, staging)
    return count


def _with_time(rows: pa.Table, now: datetime) -> pa.Table:
    if "made_at" in rows.schema.names:
        return rows
    return rows.append_column("made_at", _repeated(now, pa.timestamp("us", tz="UTC"), len(rows)))


def _dated(rows: pa.Table, day: date) -> pa.Table:
    if "day" not in rows.schema.names:
        rows = rows.append_column("day", _repeated(day, pa.date32(), len(rows)))
    return rows.append_column("batch", _repeated(day.toordinal(), pa.int64(), len(rows)))


def _repeated(value: Any, kind: Any, count: int) -> Any:
    return pa.repeat(pa.scalar(value, kind), count)
