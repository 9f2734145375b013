"""Which files are a table: a log of entries, each published by one rename.

    log/000000000042.json     what batch 42 wrote
    log/2026-11-15.json       a day's compacted files: all its rows up to a batch
    log/schema.json           the columns, as Spark writes them down

A file that no entry names is not there. An entry is whole or absent, whoever is killed, and
publishing one again replaces it. A day's compaction stands for what every batch up to `through`
has of that day, so publishing it takes in its own files and leaves out the batches' in one step.

Readers look at batches first and at compactions after: an entry that is missing from the first
look because a compaction made it superfluous is in the second.
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
    """A Parquet file: the rows some batches have of a day, or of a stream's day."""

    path: str  #: below the table's folder
    day: str
    rows: int
    bytes: int
    first: int  #: the batches it has rows of: from this one
    last: int  #: to this one
    stream: str | None = None  #: the only one it has rows of; none: of any


@dataclass(frozen=True, slots=True)
class TableLogEntry:
    """A batch's files; `facts` are the writer's own."""

    batch: int
    files: tuple[DataFile, ...]
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompactionEntry:
    day: str
    through: int
    files: tuple[DataFile, ...]


class TableLog:
    """The entries of one table."""

    __slots__ = ("folder",)

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def publish(self, entry: TableLogEntry | CompactionEntry) -> None:
        name = _batch_name(entry.batch) if isinstance(entry, TableLogEntry) else f"{entry.day}.json"
        write_atomically(self.folder / name, json.dumps(asdict(entry), separators=(",", ":")))

    def remove(self, batch: int) -> None:
        (self.folder / _batch_name(batch)).unlink(missing_ok=True)

    def batches(self) -> list[int]:
        """The ids of all entries, in order; those a compaction stands for may be among them."""
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

    def keep_schema(self, schema: str) -> None:
        if self.schema() != schema:
            write_atomically(self.folder / _SCHEMA, schema)

    def drop(self) -> None:
        """Forget all of it."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self.folder)

    def files(self) -> list[DataFile]:
        """All files that are the table now, each row in one of them; oldest batches first."""
        entries = list(self.entries())
        compactions = self.compactions()
        found = [file for each in compactions.values() for file in each.files]
        for entry in entries:
            for file in entry.files:
                standing = compactions.get(file.day)
                if standing is None or entry.batch > standing.through:
                    found.append(file)
        return sorted(found, key=lambda file: (file.first, file.last, file.path))


def files_in_days(files: list[DataFile], days: tuple[date, date] | None) -> list[DataFile]:
    """Those of the days from the first to the second, both included."""
    if days is None:
        return files
    first, last = (day.isoformat() for day in days)
    return [file for file in files if first <= file.day <= last]


def write_atomically(path: Path, text: str) -> None:
    """A file is there with all of the text, or as it was before; a power cut included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(aside, "w", opener=private_opener) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    fsync_path(path.parent)


def fsync_path(path: Path) -> None:
    """A file or a folder, safe from a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _batch_name(batch: int) -> str:
    return f"{batch:0{_DIGITS}d}.json"


def _files(content: dict[str, Any]) -> tuple[DataFile, ...]:
    return tuple(DataFile(**file) for file in content["files"])
