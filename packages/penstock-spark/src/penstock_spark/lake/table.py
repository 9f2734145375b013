"""A table of the lake: batches are written, replaced and read atomically.

The files of a batch are written into a new folder and become part of the table by one log entry. So
a reader sees no incomplete or duplicate batch. A killed process leaves a folder without an entry,
which the next compaction deletes.

Files are written by Spark (`write`, `write_files`) or by workers with Arrow (`stage`, `commit`).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.errors import NotFound
from penstock_spark.lake.files import (
    DAY_COLUMN,
    DAY_FOLDER,
    STREAM_FOLDER,
    StagedBatch,
    parent_folders,
    stream_folder,
)
from penstock_spark.lake.log import (
    DataFile,
    TableLog,
    TableLogEntry,
    files_in_days,
    fsync_path,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class TableSize:
    rows: int
    bytes: int
    files: int


class LakeTable:
    """`generation` selects the log. With `by_stream`, each stream has its own files; older files
    with several streams are read alike."""

    __slots__ = ("by_stream", "folder", "generation", "log", "name")

    def __init__(
        self, name: str, folder: Path, generation: int, *, by_stream: bool = False
    ) -> None:
        self.name = name
        self.folder = folder
        self.generation = generation
        self.by_stream = by_stream
        self.log = TableLog(folder / f"log-{generation}")

    def write(
        self,
        batch: int,
        frame: DataFrame,
        facts: Callable[[Sequence[Path]], Mapping[str, Any]] | None = None,
        first: int | None = None,
    ) -> TableLogEntry:
        """Write a batch by a Spark job; replaces an earlier attempt.

        `facts` are computed from the files and stored in the log entry. A batch may combine
        several, from `first` on.
        """
        files = self.write_files(frame, f"{batch}", batch if first is None else first, batch)
        paths = [self.folder / file.path for file in files]
        entry = TableLogEntry(batch, files, dict(facts(paths)) if facts is not None else {})
        self._publish(entry, frame.schema)
        return entry

    def stage(self, batch: int, first: int | None = None) -> StagedBatch:
        """Let workers write a batch, which may combine several."""
        begin = batch if first is None else first
        return StagedBatch.new(self.folder, begin, batch, by_stream=self.by_stream)

    def commit(
        self,
        batch: int,
        files: Sequence[DataFile],
        schema: pa.Schema,
        facts: Mapping[str, Any] | None = None,
    ) -> TableLogEntry:
        """Make staged files the batch; replaces an earlier attempt."""
        from pyspark.sql.pandas.types import from_arrow_schema

        for folder in parent_folders(self.folder, files):
            fsync_path(folder)
        entry = TableLogEntry(batch, tuple(files), dict(facts or {}))
        self._publish(entry, from_arrow_schema(schema, prefer_timestamp_ntz=True))
        return entry

    def _publish(self, entry: TableLogEntry, schema: StructType) -> None:
        if not entry.files:
            self.remove_batch(entry.batch)
            return
        if (earlier := self.log.entry(entry.batch)) is not None:
            self.mark_unused(earlier.files)
        self.log.set_schema(_columns(schema))
        self.log.publish(entry)

    def remove_batch(self, batch: int) -> None:
        if (earlier := self.log.entry(batch)) is not None:
            self.mark_unused(earlier.files)
            self.log.remove(batch)

    def read(
        self,
        spark: SparkSession,
        days: tuple[date, date] | None = None,
        files: Sequence[DataFile] | None = None,
    ) -> DataFrame:
        """The current content of the table, or of some files."""
        wanted = files_in_days(self.log.files(), days) if files is None else files
        schema = self.schema()
        if not wanted:
            return spark.createDataFrame([], schema)
        paths = [str(self.folder / file.path) for file in wanted]
        return spark.read.schema(schema).parquet(*paths)

    def schema(self) -> StructType:
        from pyspark.sql.types import StructType

        text = self.log.schema()
        if text is None:
            raise NotFound(f"the lake has no table {self.name!r}")
        return StructType.fromJson(json.loads(text))

    def size(self) -> TableSize:
        files = self.log.files()
        rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
        return TableSize(rows, size, len(files))

    def write_files(
        self, frame: DataFrame, label: str, first: int, last: int, stream: str | None = None
    ) -> tuple[DataFile, ...]:
        """Write durable files that are not part of the table yet.

        `stream` is the stream of all rows, in a table with files per stream.
        """
        from pyspark.sql.functions import col, lit

        place = self.folder / "data" / f"{label}-{uuid.uuid4().hex[:12]}"
        folders = {DAY_FOLDER: col(DAY_COLUMN)}
        if stream is not None:
            folders[STREAM_FOLDER] = lit(stream_folder(stream))
        frame.withColumns(folders).write.partitionBy(*folders).parquet(str(place))
        return tuple(self._described(place, first, last, stream))

    def mark_unused(self, files: Iterable[DataFile]) -> None:
        """Start the grace period of files that are about to leave the table."""
        for file in files:
            with suppress(FileNotFoundError):
                os.utime(self.folder / file.path)

    def delete_unused(self, grace: float, now: float) -> int:
        """Delete files that no generation has used for `grace` seconds; returns their number."""
        live = {file.path for log in self._logs() for file in log.files()}
        deleted = 0
        for place in (self.folder / "data").glob("*"):
            with suppress(FileNotFoundError):
                recent = place.stat().st_mtime >= now - grace  # it may be in use by a writer
                for path in place.rglob("*"):
                    known = str(path.relative_to(self.folder)) in live
                    if not known and path.is_file() and path.stat().st_mtime < now - grace:
                        path.unlink()
                        deleted += path.suffix == ".parquet"
                if not recent:
                    _prune(place)
        return deleted

    def _logs(self) -> list[TableLog]:
        return [TableLog(path) for path in self.folder.glob("log-*")]

    def _described(self, place: Path, first: int, last: int, stream: str | None) -> list[DataFile]:
        found = []
        for day in sorted(place.glob(f"{DAY_FOLDER}=*")):
            for path in sorted(day.rglob("*.parquet")):
                # Hadoop's checksum files are redundant: Parquet pages have checksums.
                path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
                fsync_path(path)
                rows = pq.read_metadata(path).num_rows
                size = path.stat().st_size
                text = day.name.partition("=")[2]
                path_below = str(path.relative_to(self.folder))
                found.append(DataFile(path_below, text, rows, size, first, last, stream))
        for folder in parent_folders(self.folder, found):
            fsync_path(folder)
        return found


def _prune(place: Path) -> None:
    """Remove the folder of a batch if it is empty."""
    inner = sorted(place.rglob("*"), key=lambda path: len(path.parts), reverse=True)
    for folder in (*inner, place):
        if folder.is_dir():
            with suppress(OSError):  # not empty
                folder.rmdir()


def _columns(schema: StructType) -> str:
    """The current columns; files from before a column was added have nulls."""
    from pyspark.sql.types import StructField, StructType

    # Columns read from Parquet are nullable.
    return StructType([StructField(each.name, each.dataType) for each in schema]).json()
