"""Tables of PostgreSQL as DataFrames: large ones are read by workers, each its share of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.store import Database, connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: At most so many read at a time, each over a connection of its own.
MOST_SHARES: Final = 16


def shared(
    spark: SparkSession,
    url: str,
    statement: str,
    schema: pa.Schema,
    given: Mapping[str, Any],
) -> DataFrame:
    """Rows that never pass through the driver. A task has a share of them, by what the statement
    makes of `%(share)s` and `%(shares)s`; as many as the session shuffles into."""
    from pyspark.sql.pandas.types import from_arrow_schema

    shares = min(MOST_SHARES, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
    reading = _Reading(url, statement, schema, {**given, "shares": shares})
    rows = spark.range(0, shares, 1, shares)
    return rows.mapInArrow(reading, from_arrow_schema(schema))


def small(
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
class _Reading:
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
