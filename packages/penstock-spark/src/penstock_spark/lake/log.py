"""The log of a table: entries that name its files, each published by one rename.

    log/000000000042.json     the files of batch 42
    log/2026-11-15.json       the compacted files of a day, up to a batch
    log/schema.json           the columns in Spark's format

A file that no entry names is not part of the table. An entry is atomic, and publishing it again
replaces it. A compaction of a day replaces the files of all batches up to `through` for that day,
so publishing it adds its files and removes the batches' in one step.

Readers list batches first and compactions second: a batch entry that a compaction has removed in
between is covered by the compaction.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

from penstock.core.data_directory import private_opener

_DIGITS: Final = 12
_SCHEMA: Final = "schema.json"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file: the rows of some batches and a day, and perhaps of one stream."""

    path: str  #: below the table's folder
    day: str
    rows: int
    bytes: int
    first: int  #: the first batch
    last: int  #: the last batch
    stream: str | None = None  #: None: several streams, or a table without streams


@dataclass(frozen=True, slots=True)
class TableLogEntry:
    """The files of a batch, and facts of its writer."""

    batch: int
    files: tuple[DataFile, ...]
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompactionEntry:
    day: str
    through: int
    files: tuple[DataFile, ...]


class TableLog:
    __slots__ = ("folder",)

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def publish(self, entry: TableLogEntry | CompactionEntry) -> None:
        name = _batch_name(entry.batch) if isinstance(entry, TableLogEntry) else f"{entry.day}.json"
        write_atomically(self.folder / name, json.dumps(asdict(entry), separators=(",", ":")))

    def remove(self, batch: int) -> None:
        (self.folder / _batch_name(batch)).unlink(missing_ok=True)

    def batches(self) -> list[int]:
        """The ids of all batch entries in order, including compacted ones not yet removed."""
        with suppress(FileNotFoundError):
            names = [path.stem for path in self.folder.iterdir() if path.suffix == ".json"]
            return sorted(int(name) for name in names if name.isdigit())
        return []

    def entry(self, batch: int) -> TableLogEntry | None:
        try:
            found = json.loads((self.folder / _batch_name(batch)).read_bytes())
        except FileNotFoundError:
            return None
        return TableLogEntry(found["batch"], _files(found), found["facts"])

    def entries(self) -> Iterator[TableLogEntry]:
        for batch in self.batches():
            if (entry := self.entry(batch)) is not None:
                yield entry

    def compactions(self) -> dict[str, CompactionEntry]:
        """By day."""
        found = {}
        for path in sorted(self.folder.glob("????-??-??.json")):
            content = json.loads(path.read_bytes())
            found[content["day"]] = CompactionEntry(
                content["day"], content["through"], _files(content)
            )
        return found

    def schema(self) -> str | None:
        with suppress(FileNotFoundError):
            return (self.folder / _SCHEMA).read_text()
        return None

    def set_schema(self, schema: str) -> None:
        if self.schema() != schema:
            write_atomically(self.folder / _SCHEMA, schema)

    def drop(self) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self.folder)

    def files(self) -> list[DataFile]:
        """The files of the table, oldest batches first."""
        entries = list(self.entries())
        compactions = self.compactions()
        found = [file for each in compactions.values() for file in each.files]
        for entry in entries:
            for file in entry.files:
                compaction = compactions.get(file.day)
                if compaction is None or entry.batch > compaction.through:
                    found.append(file)
        return sorted(found, key=lambda file: (file.first, file.last, file.path))


def files_in_days(files: list[DataFile], days: tuple[date, date] | None) -> list[DataFile]:
    """The files of the days from the first to the last, inclusive."""
    if days is None:
        return files
    first, last = (day.isoformat() for day in days)
    return [file for file in files if first <= file.day <= last]


def write_atomically(path: Path, text: str) -> None:
    """Replace a file atomically and durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", opener=private_opener) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    fsync_path(path.parent)


def fsync_path(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _batch_name(batch: int) -> str:
    return f"{batch:0{_DIGITS}d}.json"


def _files(content: dict[str, Any]) -> tuple[DataFile, ...]:
    return tuple(DataFile(**file) for file in content["files"])
