"""What Spark takes for itself: a source that returns record batches that are ready.

The rows are those of the connector with the same columns, in an Arrow file that workers map. There
is no broker, nothing is decoded, and nothing is copied before Spark does it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock_spark.connector.source import SPARK_SCHEMA

#: As the connector divides a million messages.
TASKS: Final = 8
#: Spark's own default of rows in a record batch would be 10,000.
BATCH_ROWS: Final = 65_536


def store(frame: DataFrame, path: Path) -> None:
    """Write the rows of a DataFrame for the source."""
    table = frame.toArrow()
    schema = pa.schema([(name, table.schema.field(name).type) for name in table.schema.names])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table.cast(schema), max_chunksize=BATCH_ROWS)


@dataclass
class Slice(InputPartition):
    path: str
    first: int
    stop: int


def slices(path: str) -> list[InputPartition]:
    with pa.memory_map(path) as source:
        count = pa.ipc.open_file(source).num_record_batches
    edges = [count * index // TASKS for index in range(TASKS + 1)]
    return [Slice(path, *edge) for edge in pairwise(edges) if edge[0] < edge[1]]


def batches(part: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(part, Slice)
    with pa.memory_map(part.path) as source:
        file = pa.ipc.open_file(source)
        for index in range(part.first, part.stop):
            yield file.get_batch(index)


class FloorSource(DataSource):
    """Format `floor`, with the option `path`."""

    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> StructType:
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Batch(self.options["path"])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Query(self.options["path"])


class _Batch(DataSourceReader):
    def __init__(self, path: str) -> None:
        self._path = path

    def partitions(self) -> list[InputPartition]:
        return slices(self._path)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(partition)


class _Query(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, path: str) -> None:
        self._path = path

    def initialOffset(self) -> dict[str, Any]:
        return {"end": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """There is one batch."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"end": 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return slices(self._path)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(partition)
