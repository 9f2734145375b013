"""Parquet files of a table as workers write them with Arrow.

    writer = DataFileWriter(table.location, schema, partition_by=("day",))   # in each worker
    writer.add(rows)
    files = writer.close()            # to the driver: table.commit(application, batch, files)

A file has the rows of one task and one partition. Its values of the partition columns are in its
path (`day=2026-11-15/….parquet`) and in the table's log, not in the file. It is durable when
`close` returns, and part of the table when it is committed; `vacuum` deletes files that never were.

With `cluster_by`, rows are sorted by a column, in the order of their arrival where it is equal, and
large files have row groups for ranges of its values: a reader of some values reads their part.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.units import MiB
from penstock_spark.lake.storage import StorageLocation, fsync_path, storage_errors

#: Rows are buffered up to this size.
_BUFFER_BYTES: Final = 64 * MiB
#: Row groups of clustered files have at least so many rows.
_MIN_ROW_GROUP: Final = 16_384
#: Longer texts have no maximum in the statistics; of the minimum this prefix is recorded.
_MAX_STATISTIC: Final = 64
_DELTA_ENCODED: Final = (pa.types.is_int64, pa.types.is_timestamp)
#: The folder of a partition whose value is null.
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a table. `lower` and `upper` bound its values by column, in Delta's JSON form."""

    path: str  #: below the table's location
    rows: int
    bytes: int
    partition: Mapping[str, str | None] = field(default_factory=dict)
    lower: Mapping[str, Any] = field(default_factory=dict)
    upper: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)

    def may_contain(self, column: str, first: Any, last: Any) -> bool:
        """Whether a value from `first` to `last` is possible, by partition and statistics."""
        first, last = statistic(first), statistic(last)
        if column in self.partition:
            value = self.partition[column]
            return value is not None and str(first) <= value <= str(last)
        low, high = self.lower.get(column), self.upper.get(column)
        return not ((low is not None and low > last) or (high is not None and high < first))


class DataFileWriter:
    """The files of one task."""

    def __init__(
        self,
        location: StorageLocation,
        schema: pa.Schema,
        partition_by: Sequence[str] = (),
        cluster_by: str | None = None,
    ) -> None:
        self._location = location
        self._filesystem = location.filesystem()
        self._partition_by = tuple(partition_by)
        self._schema = pa.schema([each for each in schema if each.name not in partition_by])
        self._cluster_by = cluster_by
        self._files: dict[tuple[str | None, ...], _ParquetFile] = {}

    def add(self, rows: pa.Table) -> None:
        """Add rows of the schema, in any order."""
        for values, mine in _partitions(rows, self._partition_by):
            file = self._files.get(values)
            if file is None:
                partition = dict(zip(self._partition_by, values, strict=True))
                file = self._files[values] = _ParquetFile(self, partition)
            with storage_errors(self._location):
                file.add(mine.select(self._schema.names))

    def close(self) -> list[DataFile]:
        with storage_errors(self._location):
            files = [file.close() for file in self._files.values()]
        return sorted(files, key=lambda file: file.path)


class _ParquetFile:
    """One file; opened when the buffer is full, or on close."""

    def __init__(self, writer: DataFileWriter, partition: Mapping[str, str | None]) -> None:
        self._location, self._filesystem = writer._location, writer._filesystem
        self._schema, self._cluster_by = writer._schema, writer._cluster_by
        self._partition = partition
        self._path = f"{partition_folder(partition)}{uuid.uuid4().hex}.parquet"
        self._parquet: pq.ParquetWriter | None = None
        self._metadata: list[pq.FileMetaData] = []
        self._waiting: list[pa.Table] = []
        self._bytes = 0

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= _BUFFER_BYTES:
            self._flush(self._open())

    def close(self) -> DataFile:
        parquet = self._open()
        self._flush(parquet)
        parquet.close()
        size = self._sink.tell()
        self._sink.close()
        if self._location.path is not None:
            fsync_path(self._location.path / self._path)
        (metadata,) = self._metadata
        return DataFile(
            self._path, metadata.num_rows, size, self._partition, *_statistics(metadata)
        )

    def _open(self) -> pq.ParquetWriter:
        if self._parquet is None:
            if self._location.path is not None:
                (self._location.path / self._path).parent.mkdir(parents=True, exist_ok=True)
            self._sink = self._filesystem.open_output_stream(self._path)
            self._parquet = pq.ParquetWriter(
                self._sink,
                self._schema,
                metadata_collector=self._metadata,
                **_encoding(self._schema),
            )
        return self._parquet

    def _flush(self, parquet: pq.ParquetWriter) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        self._waiting, self._bytes = [], 0
        for group in _row_groups(rows, self._cluster_by):
            parquet.write_table(group, row_group_size=max(1, len(group)))


def _row_groups(rows: pa.Table, cluster_by: str | None) -> Iterator[pa.Table]:
    if cluster_by is None or len(rows) < 2 * _MIN_ROW_GROUP:
        yield rows
        return
    keys = np.asarray(rows[cluster_by].combine_chunks())
    # NumPy sorts small integers by counting.
    if len(keys) and keys.min() >= 0 and keys.max() < 1 << 16:
        keys = keys.astype(np.uint16)
    if (keys[1:] < keys[:-1]).any():
        order = np.argsort(keys, kind="stable")
        keys, rows = keys[order], rows.combine_chunks().take(pa.array(order))
    begin = 0
    for end in (*(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(keys)):
        large = min(end - begin, len(keys) - end) >= _MIN_ROW_GROUP
        if large or end == len(keys):
            yield rows.slice(begin, end - begin)
            begin = end


def _partitions(
    rows: pa.Table, partition_by: Sequence[str]
) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    if not partition_by:
        yield (), rows
        return
    name, *others = partition_by
    values = pc.unique(rows[name]).to_pylist()
    for value in values:
        if len(values) == 1:
            mine = rows
        elif value is None:
            mine = rows.filter(pc.is_null(rows[name]))
        else:
            mine = rows.filter(pc.equal(rows[name], pa.scalar(value, rows.schema.field(name).type)))
        for further, part in _partitions(mine, others):
            yield (partition_value(value), *further), part


def partition_value(value: Any) -> str | None:
    """A value in the form of Delta's log."""
    match value:
        case None | "":
            return None
        case bool():
            return str(value).lower()
        case datetime():
            text = value.astimezone(UTC) if value.tzinfo else value
            return text.strftime("%Y-%m-%d %H:%M:%S.%f")
        case date():
            return value.isoformat()
    return str(value)


def partition_folder(partition: Mapping[str, str | None]) -> str:
    """The folder as Hive, Spark and delta-rs name it, with a slash if there is one."""
    return "".join(
        f"{name}={NULL_PARTITION if value is None else quote(value, safe='')}/"
        for name, value in partition.items()
    )


def statistic(value: Any) -> Any:
    """A value in the JSON form of Delta's statistics."""
    match value:
        case datetime():
            moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            text = moment.isoformat(timespec="microseconds")
            return f"{text}Z" if value.tzinfo else text
        case date():
            return value.isoformat()
        case Decimal():
            return float(value)
    return value


def _statistics(
    metadata: pq.FileMetaData,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """The least and greatest value and the number of nulls of each column, from the footer."""
    lower: dict[str, Any] = {}
    upper: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    unknown: set[str] = set()
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(row_group.num_columns):
            column = row_group.column(index)
            name, found = column.path_in_schema, column.statistics
            if found is None or metadata.schema.column(index).max_repetition_level:
                continue
            if found.null_count is not None and "." not in name:
                nulls[name] = nulls.get(name, 0) + found.null_count
            if not found.has_min_max:
                if found.null_count != column.num_values:
                    unknown.add(name)
                continue
            low, high = statistic(found.min), statistic(found.max)
            lower[name] = min(low, lower.get(name, low))
            upper[name] = max(high, upper.get(name, high))
    for name in list(lower):
        if name in unknown or "." in name or isinstance(lower[name], bytes) or (
            lower[name] != lower[name] or upper[name] != upper[name]  # NaN
        ):  # fmt: skip
            del lower[name], upper[name]
        elif isinstance(lower[name], str):
            lower[name] = lower[name][:_MAX_STATISTIC]
            if len(upper[name]) > _MAX_STATISTIC:
                del upper[name]
    return lower, upper, nulls


def _encoding(schema: pa.Schema) -> dict[str, Any]:
    """Small and fast: delta encoding for numbers, dictionaries for text."""
    growing = [each.name for each in schema if any(kind(each.type) for kind in _DELTA_ENCODED)]
    named = [
        each.name
        for each in schema
        if each.name not in growing
        and not pa.types.is_binary(each.type)
        and not pa.types.is_nested(each.type)
    ]
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": named,
        "column_encoding": dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
    }
