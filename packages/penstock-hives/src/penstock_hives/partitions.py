"""Read PostgreSQL into Spark by partition: tasks read, and no rows pass through the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock_store import Connection, connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The most tasks that read at a time, each over its own connection.
MAX_PARTITIONS: Final = 16

Fetch = Callable[[Connection, str, Mapping[str, Any], pa.Schema], pa.Table]


def fetch_rows(
    connection: Connection, statement: str, parameters: Mapping[str, Any], schema: pa.Schema
) -> pa.Table:
    return pa.Table.from_pylist(connection.execute(statement, parameters).fetchall(), schema)


def read_partitioned(
    spark: SparkSession,
    url: str,
    statement: str,
    schema: pa.Schema,
    parameters: Mapping[str, Any],
    fetch: Fetch = fetch_rows,
) -> DataFrame:
    """Each task reads the rows that the statement selects by `%(share)s` and `%(shares)s`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    shares = min(MAX_PARTITIONS, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
    reader = _PartitionReader(url, statement, schema, {**parameters, "shares": shares}, fetch)
    return spark.range(0, shares, 1, shares).mapInArrow(reader, from_arrow_schema(schema))


@dataclass(frozen=True, slots=True)
class _PartitionReader:
    url: str
    statement: str
    schema: pa.Schema
    parameters: dict[str, Any]
    fetch: Fetch

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch["id"].to_pylist():
                parameters = {**self.parameters, "share": share}
                with connect(self.url) as connection:
                    rows = self.fetch(connection, self.statement, parameters, self.schema)
                yield from rows.to_batches()
