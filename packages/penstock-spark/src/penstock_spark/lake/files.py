"""Files of a table as workers write them, with Arrow and without Spark's own writers.

    draft = table.stage(batch)            # in the driver; it goes to the workers
    writing = draft.open_writer(schema)         # in each of them
    writing.add(rows)
    files = writing.close()               # back in the driver: table.commit(batch, files, …)

A file has the rows one task has of one day, and of one stream where streams lie apart. It is safe
from a power cut when `close` returns, and nobody's until the driver has entered it: of a task that
is run twice, the files of the run that Spark has counted are told, the others are swept.
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

#: Rows wait until there are so many bytes of them: a row group is worth reading then.
_ROW_GROUP_BYTES: Final = 64 * MiB
_DELTA_ENCODED: Final = (pa.types.is_int64, pa.types.is_timestamp)


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """Where the files of a batch, or of several from `first` to `last`, are to lie. Picklable."""

    folder: Path  #: the table's
    place: str  #: below it, and of this try alone
    first: int
    last: int
    by_stream: bool = False  #: each stream has files of its own

    @classmethod
    def new(cls, folder: Path, first: int, last: int, *, by_stream: bool = False) -> StagedBatch:
        place = f"data/{last}-{uuid.uuid4().hex[:12]}"
        return cls(folder, place, first, last, by_stream)

    def open_writer(self, schema: pa.Schema) -> StagedBatchWriter:
        return StagedBatchWriter(self, schema)


@dataclass(slots=True)
class _ParquetFile:
    """One file; it is opened when there is much of it, or all."""

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
        """How many bytes there are."""
        self.flush()
        self.writer.close()
        fsync_path(self.path)
        return self.path.stat().st_size


class StagedBatchWriter:
    """One task's part in a draft."""

    __slots__ = ("_draft", "_pages", "_schema")

    def __init__(self, draft: StagedBatch, schema: pa.Schema) -> None:
        self._draft = draft
        self._schema = schema
        self._pages: dict[tuple[int, str | None], _ParquetFile] = {}

    def add(self, rows: pa.Table) -> None:
        """Rows of the schema, `day` among them, in any order."""
        for stream, of_stream in _streams(rows) if self._draft.by_stream else [(None, rows)]:
            for day, mine in _days(of_stream):
                pages = self._pages.get((day, stream))
                if pages is None:
                    pages = self._pages[day, stream] = self._new(day, stream)
                pages.add(mine)

    def close(self) -> list[DataFile]:
        files = []
        draft = self._draft
        for (day, stream), pages in self._pages.items():
            size = pages.close()
            path = str(pages.path.relative_to(draft.folder))
            files.append(
                DataFile(path, _name(day), pages.rows, size, draft.first, draft.last, stream)
            )
        return sorted(files, key=lambda file: (file.day, file.stream or ""))

    def _new(self, day: int, stream: str | None) -> _ParquetFile:
        place = self._draft.folder / self._draft.place / partition_folder(_name(day), stream)
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
    """What makes small files quickly: numbers that grow as differences, names as numbers."""
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
    """The folders between a table's and these files, deepest first."""
    found: dict[Path, None] = {}
    for file in files:
        path = (folder / file.path).parent
        while path != folder:
            found[path] = None
            path = path.parent
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


# Where in a batch's folder rows lie: by day and, in bronze, by stream.
#
#     _day=2026-11-15/_stream=sensors-0/….parquet
#
# Files keep both columns, so that each can be read alone; that the folders' names differ from
# theirs leaves readers that make columns of folders with one of each. Nothing is read off a path:
# what a file has is said in the table's log.

#: Every table has it: the UTC day a row belongs to.
DAY_COLUMN: Final = "day"
#: Tables whose streams lie apart have it.
STREAM_COLUMN: Final = "stream"
DAY_FOLDER: Final = "_day"
STREAM_FOLDER: Final = "_stream"
#: A stream's name may be longer than a file system lets a folder's be, once it is spelled out.
_MAX_NAME_CHARACTERS: Final = 120


def partition_folder(day: str, stream: str | None) -> str:
    """The folder of a day, or of a stream's day."""
    of_day = f"{DAY_FOLDER}={day}"
    return of_day if stream is None else f"{of_day}/{STREAM_FOLDER}={stream_folder(stream)}"


def stream_folder(stream: str) -> str:
    """The name in letters, digits and `-._~+`, which neither file systems nor Spark interpret."""
    spelled = quote(stream, safe="").replace("%", "+")
    if len(spelled) <= _MAX_NAME_CHARACTERS:
        return spelled
    return f"{spelled[:_MAX_NAME_CHARACTERS]}-{hashlib.sha256(stream.encode()).hexdigest()[:16]}"
