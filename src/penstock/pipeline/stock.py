"""The messages of a batch where they lie: files of bronze, which workers may read themselves.

A flow that asks Spark for rows has `batch.messages`. One whose workers want whole columns has the
files as well: reading a few columns of them with Arrow takes a fraction of what it takes to bring
the same rows to Python through Spark, so little that every task may read all of a batch and take
what is its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.lake import File, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Many rows have the same.
_NAMES: Final = ("stream", "exchange", "routing_key")


@dataclass(frozen=True, slots=True)
class Stock:
    """All messages of some files of bronze, or those of them that are wanted. Picklable."""

    folder: Path
    files: tuple[File, ...]
    since: int = 0  #: of this batch and later
    until: datetime | None = None  #: that came before

    @property
    def whole(self) -> bool:
        """Whether all that is in the files is wanted."""
        return self.until is None and all(file.first >= self.since for file in self.files)

    def read(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """File by file; names are dictionaries, and columns without any value are left out."""
        for file in self.files:
            with pq.ParquetFile(self.folder / file.path, read_dictionary=_NAMES) as opened:
                wanted = [name for name in columns if not _empty(opened.metadata, name)]
                also = [] if self.whole else [n for n in ("batch", "timestamp") if n not in wanted]
                rows = opened.read([*wanted, *also], use_threads=False)
            yield rows if self.whole else self._wanted(rows).select(wanted)

    def frame(self, spark: SparkSession, table: Table) -> DataFrame:
        """The same through Spark."""
        from pyspark.sql.functions import col, lit

        messages = table.read(spark, files=self.files)
        if any(file.first < self.since for file in self.files):
            messages = messages.filter(col("batch") >= self.since)
        if self.until is not None:
            messages = messages.filter(col("timestamp") < lit(self.until))
        return messages

    def _wanted(self, rows: pa.Table) -> pa.Table:
        wanted = pc.greater_equal(rows["batch"], self.since)
        if self.until is not None:
            moment = pa.scalar(self.until, rows["timestamp"].type)
            wanted = pc.and_(wanted, pc.less(rows["timestamp"], moment))
        return rows.filter(wanted)


def _empty(metadata: pq.FileMetaData, name: str) -> bool:
    """Whether the file says of a column that it has nothing but nulls."""
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for place in range(row_group.num_columns):
            column = row_group.column(place)
            if column.path_in_schema.partition(".")[0] != name:
                continue
            told = column.statistics
            if told is None or told.null_count is None or told.null_count < column.num_values:
                return False
    return True
