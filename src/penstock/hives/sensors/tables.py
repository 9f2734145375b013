"""Record batches to a file as they come: Parquet or CSV, by the file's name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from penstock.core.errors import ConfigurationError


class Table:
    """Opened by its first batch, which says what the columns are."""

    def __init__(self, path: Path) -> None:
        if path.suffix not in (".parquet", ".csv"):
            raise ConfigurationError(f"{path}: a table is a .parquet or a .csv file")
        self._path = path
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._path.suffix == ".csv":
            batch = _plain(batch)
        if self._writer is None:
            make = csv.CSVWriter if self._path.suffix == ".csv" else pq.ParquetWriter
            self._writer = make(str(self._path), batch.schema)
        self._writer.write_batch(batch)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


@contextmanager
def open_table(path: Path) -> Iterator[Table]:
    table = Table(path)
    try:
        yield table
    finally:
        table.close()


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """CSV has no dictionaries."""
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)
