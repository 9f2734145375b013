"""Files of a table as they are read with Arrow, with the values of their partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.errors import PreconditionFailed
from penstock_spark.lake.data_file import DataFile
from penstock_spark.lake.storage import StorageLocation, error_text, storage_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class CorruptFile(PreconditionFailed):
    """A file of a table that cannot be read: missing, cut, or changed."""


def read_file(
    location: StorageLocation,
    file: DataFile,
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    table: str = "",
) -> pa.Table:
    """Columns of a file in the types of the table; columns that it lacks are null."""
    wanted = schema.names if columns is None else columns
    with read_errors(location, file, table), storage_errors(location):
        with pq.ParquetFile(location.filesystem().open_input_file(file.path)) as opened:
            present = set(opened.schema_arrow.names)
            rows = opened.read([name for name in wanted if name in present], use_threads=False)
    return with_partition(rows, file, schema, wanted)


def with_partition(
    rows: pa.Table, file: DataFile, schema: pa.Schema, wanted: Sequence[str]
) -> pa.Table:
    """The wanted columns, in order and in the types of the schema."""
    columns = []
    for name in wanted:
        kind = schema.field(name).type
        if name in file.partition:
            value = pa.scalar(file.partition[name], pa.string()).cast(kind)
            columns.append(pa.repeat(value, rows.num_rows))
        elif name in rows.schema.names:
            columns.append(rows[name].cast(kind))
        else:
            columns.append(pa.nulls(rows.num_rows, kind))
    return pa.table(columns, names=list(wanted))


@contextmanager
def read_errors(location: StorageLocation, file: DataFile, table: str) -> Iterator[None]:
    """Report a file that is missing or damaged."""
    try:
        yield
    except (pa.ArrowException, FileNotFoundError) as error:
        raise _corrupt(location, file, table, error_text(error)) from error
    except OSError as error:
        if type(error) is not OSError or error.errno is not None:
            raise
        # Arrow's own error for damaged pages.
        raise _corrupt(location, file, table, error_text(error)) from error


def _corrupt(location: StorageLocation, file: DataFile, table: str, reason: str) -> CorruptFile:
    first, last = file.lower.get("batch"), file.upper.get("batch")
    batches = "" if first is None else f" (batch {first})" if first == last else (
        f" (batches {first} to {last})"
    )  # fmt: skip
    return CorruptFile(
        f"table {table or location.name}: file {location}/{file.path}{batches} with {file.rows:,} "
        f"rows cannot be read: {reason}"
    )


def read_by_workers(
    spark: SparkSession,
    location: StorageLocation,
    files: Sequence[DataFile],
    schema: pa.Schema,
    table: str,
) -> DataFrame:
    """Workers read the files with Arrow: Spark needs no library for the store."""
    from pyspark.sql.pandas.types import from_arrow_schema

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch["id"].to_pylist():
                rows = read_file(location, files[number], schema, table=table)
                yield from rows.combine_chunks().to_batches(max_chunksize=65_536)

    columns = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return spark.range(0, len(files), 1, min(len(files), 256)).mapInArrow(read, columns)
