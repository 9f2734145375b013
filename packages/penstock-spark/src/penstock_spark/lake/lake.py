"""The lake: tables of Parquet files on a file system that the driver and all workers share.

    lake = Lake.open(data / "lake", "hives")
    lake.read(spark, "silver.reports", days=(date(2026, 11, 1), date(2026, 11, 7)))

A table is `layer.name` and belongs to a flow: `silver/hives/reports`. Bronze is by day and stream
and exists once; the other layers are by day and have generations, one of which is current. A
rebuild writes the next generation (`replay.py`).

Lake and database change to a new generation together without a common transaction: the
`GenerationPointer` first names the next generation, then the database changes, then the pointer.
A change that was begun is completed by `replay.finish_adoption`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock_spark.lake.files import StagedBatch
from penstock_spark.lake.log import CompactionEntry, DataFile, TableLogEntry, write_atomically
from penstock_spark.lake.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


BRONZE: Final = "bronze"
_TABLE_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*\.[a-z][a-z0-9_-]*")


class Lake:
    """The tables of a flow, of one generation. Picklable."""

    __slots__ = ("_first", "flow", "generation", "root")

    def __init__(
        self, root: Path, flow: str, generation: int = 0, first: int | None = None
    ) -> None:
        self.root = root
        self.flow = flow
        self.generation = generation
        self._first = first

    @classmethod
    def open(cls, root: Path, flow: str) -> Lake:
        """The current generation."""
        return cls(root, flow, GenerationPointer(root, flow).read().current)

    def at(self, generation: int) -> Lake:
        return Lake(self.root, self.flow, generation)

    def spanning(self, first: int) -> Lake:
        """For a batch that combines several, from `first` on."""
        return Lake(self.root, self.flow, self.generation, first)

    def write(self, table: str, batch_id: int, frame: DataFrame) -> TableLogEntry:
        """Write a batch of a table, with a column `day`; replaces an earlier attempt."""
        return self.table(table).write(batch_id, frame, first=self._first)

    def stage(self, table: str, batch_id: int) -> StagedBatch:
        """Let workers write a batch of a table."""
        return self.table(table).stage(batch_id, self._first)

    def commit(
        self, table: str, batch_id: int, files: Sequence[DataFile], schema: pa.Schema
    ) -> TableLogEntry:
        """Make the written files the batch; without files the batch is removed."""
        return self.table(table).commit(batch_id, files, schema)

    def remove_batch(self, table: str, batch_id: int) -> None:
        """Remove what an earlier attempt of the batch has written to the table."""
        self.table(table).remove_batch(batch_id)

    def read(
        self, spark: SparkSession, table: str, days: tuple[date, date] | None = None
    ) -> DataFrame:
        """The current content of a table, or of the days from the first to the last.

        Later writes and compactions do not change it; its files exist for at least an hour.
        """
        return self.table(table).read(spark, days)

    def table(self, name: str) -> LakeTable:
        if not _TABLE_NAME.fullmatch(name):
            raise ValueError(f"invalid table name {name!r}: should be like silver.reports")
        layer, _, short = name.partition(".")
        bronze = layer == BRONZE
        folder = self.root / layer / self.flow / short
        return LakeTable(name, folder, 0 if bronze else self.generation, by_stream=bronze)

    def tables(self) -> Iterator[LakeTable]:
        """The tables that exist, by name; bronze first."""
        for folder in sorted(self.root.glob(f"*/{self.flow}/*")):
            table = self.table(f"{folder.parent.parent.name}.{folder.name}")
            if table.log.folder.is_dir():
                yield table

    def boundary(self, batch: int) -> int:
        """The last batch up to this one at which the tables can be split.

        A compacted file has many batches and cannot be split.
        """
        files = [file for table in self._rebuilt() for file in table.log.files()]
        while straddling := [file.first for file in files if file.first < batch <= file.last]:
            batch = min(straddling)
        return batch

    def branch(self, generation: int, before: int) -> Lake:
        """Another generation with the batches of this one before `before`."""
        other = self.at(generation)
        for table in self._rebuilt():
            target = other.table(table.name).log
            if (schema := table.log.schema()) is not None:
                target.set_schema(schema)
            entries = list(table.log.entries())
            for each in table.log.compactions().values():
                files = tuple(file for file in each.files if file.last < before)
                if files:
                    target.publish(CompactionEntry(each.day, min(each.through, before - 1), files))
            for entry in entries:
                if entry.batch < before:
                    target.publish(entry)
        return other

    def drop(self, generation: int) -> None:
        """Remove a generation; its files are deleted later."""
        for table in self.at(generation)._rebuilt():
            table.mark_unused(table.log.files())
            table.log.drop()

    def generations(self) -> set[int]:
        """The generations that exist."""
        return {
            int(path.name.removeprefix("log-")) for path in self.root.glob(f"*/{self.flow}/*/log-*")
        }

    def _rebuilt(self) -> list[LakeTable]:
        return [table for table in self.tables() if not table.name.startswith(f"{BRONZE}.")]


@dataclass(frozen=True, slots=True)
class Generations:
    current: int = 0
    next: int | None = None  #: being adopted
    newest: int = 0  #: the last number assigned


class GenerationPointer:
    __slots__ = ("_path",)

    def __init__(self, root: Path, flow: str) -> None:
        self._path = root / "generations" / f"{flow}.json"

    def read(self) -> Generations:
        try:
            return Generations(**json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return Generations()

    def write(self, generations: Generations) -> None:
        write_atomically(self._path, json.dumps(asdict(generations)))
