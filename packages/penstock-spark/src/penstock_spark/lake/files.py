"""Files of a table as workers write them with Arrow, and the folders of a batch.

    staged = table.stage(batch)           # in the driver; passed to the workers
    writer = staged.open_writer(schema)   # in each worker
    writer.add(rows)
    files = writer.close()                # to the driver: table.commit(batch, files, …)

A file has the rows of one task and one day, in bronze also of one stream:

    _day=2026-11-15/_stream=sensors-0/….parquet

It is durable when `close` returns, and part of the table when the driver has committed it: files of
a task attempt that Spark does not count are deleted later. Files contain both columns, so that each
can be read alone; the folders' names differ from the columns', so that readers which turn folders
into columns get no duplicates. No information is read from a path: it is in the table's log.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.units import MiB
from penstock_spark.lake.log import DataFile, fsync_path

#: Rows are buffered up to this size of a row group.
_ROW_GROUP_BYTES: Final = 64 * MiB
_DELTA_ENCODED: Final = (pa.types.is_int64, pa.types.is_timestamp)


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """The location of the files of a batch, or of several from `first` to `last`. Picklable."""

    folder: Path  #: the table's
    place: str  #: below it, of this attempt only
    first: int
    last: int
    by_stream: bool = False  #: each stream has its own files

    @classmethod
    def new(cls, folder: Path, first: int, last: int, *, by_stream: bool = False) -> StagedBatch:
        place = f"data/{last}-{uuid.uuid4().hex[:12]}"
        return cls(folder, place, first, last, by_stream)

    def open_writer(self, schema: pa.Schema) -> StagedBatchWriter:
        return StagedBatchWriter(self, schema)


@dataclass(slots=True)
class _ParquetFile:
    """One file; opened when a row group is full, or on close."""

    path: Path
    schema: pa.Schema
    writer: Any = None
    rows: int = 0
    waiting: list[pa.Table] = field(default_factory=list)
    bytes: int = 0

    def add(self, rows: pa.Table) -> None:
        self.rows += len(rows)
        self.bytes += rows.nbytes
        self.waiting.append(rows)
        if self.bytes >= _ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self.writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.writer = pq.ParquetWriter(self.path, self.schema, **_encoding(self.schema))
        if self.waiting:
            self.writer.write_table(pa.concat_tables(self.waiting))
            self.waiting, self.bytes = [], 0

    def close(self) -> int:
        """Returns the size of the file."""
        self.flush()
        self.writer.close()
        fsync_path(self.path)
        return self.path.stat().st_size


class StagedBatchWriter:
    """The files of one task."""

    __slots__ = ("_files", "_schema", "_staged")

    def __init__(self, staged: StagedBatch, schema: pa.Schema) -> None:
        self._staged = staged
        self._schema = schema
        self._files: dict[tuple[int, str | None], _ParquetFile] = {}

    def add(self, rows: pa.Table) -> None:
        """Add rows of the schema, which has `day`, in any order."""
        for stream, of_stream in _streams(rows) if self._staged.by_stream else [(None, rows)]:
            for day, mine in _days(of_stream):
                file = self._files.get((day, stream))
                if file is None:
                    file = self._files[day, stream] = self._new(day, stream)
                file.add(mine)

    def close(self) -> list[DataFile]:
        files = []
        staged = self._staged
        for (day, stream), file in self._files.items():
            size = file.close()
            path = str(file.path.relative_to(staged.folder))
            files.append(
                DataFile(path, _name(day), file.rows, size, staged.first, staged.last, stream)
            )
        return sorted(files, key=lambda file: (file.day, file.stream or ""))

    def _new(self, day: int, stream: str | None) -> _ParquetFile:
        place = self._staged.folder / self._staged.place / partition_folder(_name(day), stream)
        return _ParquetFile(place / f"{uuid.uuid4().hex}.parquet", self._schema)


def _streams(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    names = pc.unique(rows[STREAM_COLUMN]).to_pylist()
    for name in names:
        yield name, rows if len(names) == 1 else rows.filter(pc.equal(rows[STREAM_COLUMN], name))


def _days(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    days = np.asarray(rows[DAY_COLUMN].cast(pa.int32()))
    for day in np.unique(days).tolist():
        of_day = days == day
        yield day, rows if of_day.all() else rows.filter(pa.array(of_day))


def _encoding(schema: pa.Schema) -> dict[str, Any]:
    """Small and fast: delta encoding for numbers, dictionaries for text."""
    growing = [each.name for each in schema if any(kind(each.type) for kind in _DELTA_ENCODED)]
    named = [
        each.name
        for each in schema
        if each.name not in growing and not pa.types.is_binary(each.type)
        and not pa.types.is_nested(each.type)
    ]  # fmt: skip
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": named,
        "column_encoding": dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
    }


def _name(day: int) -> str:
    return str(pc.cast(pa.scalar(day, pa.int32()), pa.date32()).as_py().isoformat())


def parent_folders(folder: Path, files: Sequence[DataFile]) -> list[Path]:
    """The folders between the table's folder and these files, deepest first."""
    found: dict[Path, None] = {}
    for file in files:
        path = (folder / file.path).parent
        while path != folder:
            found[path] = None
            path = path.parent
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


#: In every table: the UTC day of a row.
DAY_COLUMN: Final = "day"
#: In tables with files per stream.
STREAM_COLUMN: Final = "stream"
DAY_FOLDER: Final = "_day"
STREAM_FOLDER: Final = "_stream"
#: The escaped name of a stream may exceed the limit of the file system.
_MAX_NAME_CHARACTERS: Final = 120


def partition_folder(day: str, stream: str | None) -> str:
    of_day = f"{DAY_FOLDER}={day}"
    return of_day if stream is None else f"{of_day}/{STREAM_FOLDER}={stream_folder(stream)}"


def stream_folder(stream: str) -> str:
    """The name escaped to letters, digits and `-._~+`, which file systems and Spark accept."""
    spelled = quote(stream, safe="").replace("%", "+")
    if len(spelled) <= _MAX_NAME_CHARACTERS:
        return spelled
    return f"{spelled[:_MAX_NAME_CHARACTERS]}-{hashlib.sha256(stream.encode()).hexdigest()[:16]}"
