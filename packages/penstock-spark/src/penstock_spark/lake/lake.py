"""The lake: tables of Parquet files on a file system that the driver and all workers see.

    lake = Lake.open(data / "lake", "hives")
    lake.read(spark, "silver.reports", days=(date(2026, 11, 1), date(2026, 11, 7)))

A table is `layer.name`, and belongs to a flow: `silver/hives/reports`. Bronze is what came, by day
and stream, and there is one of it; the other layers lie by day and have generations, of which one
is current. Whoever opens the lake reads that one; a rebuild writes the next (`replay.py`).
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
    """One flow's tables, of one generation. Small, picklable, keeps nothing open."""

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
        """The generation that is current now."""
        return cls(root, flow, GenerationPointer(root, flow).read().current)

    def at(self, generation: int) -> Lake:
        return Lake(self.root, self.flow, generation)

    def spanning(self, first: int) -> Lake:
        """For a batch that stands for several, from that one to its own."""
        return Lake(self.root, self.flow, self.generation, first)

    def write(self, table: str, batch_id: int, frame: DataFrame) -> TableLogEntry:
        """Write a batch of a table; a later try replaces an earlier one. Needs a column `day`."""
        return self.table(table).write(batch_id, frame, first=self._first)

    def stage(self, table: str, batch_id: int) -> StagedBatch:
        """For workers to write a batch of a table themselves."""
        return self.table(table).stage(batch_id, self._first)

    def commit(
        self, table: str, batch_id: int, files: Sequence[DataFile], schema: pa.Schema
    ) -> TableLogEntry:
        """What they have written becomes the batch; nothing does, if it is nothing."""
        return self.table(table).commit(batch_id, files, schema)

    def remove_batch(self, table: str, batch_id: int) -> None:
        """A batch has nothing of this table, whatever an earlier try of it has written."""
        self.table(table).remove_batch(batch_id)

    def read(
        self, spark: SparkSession, table: str, days: tuple[date, date] | None = None
    ) -> DataFrame:
        """A table as it is now, or some days of it, from the first to the last.

        What is written or compacted afterwards does not change it. Its files are there for an hour
        at least.
        """
        return self.table(table).read(spark, days)

    def table(self, name: str) -> LakeTable:
        if not _TABLE_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a table: should be as silver.reports")
        layer, _, short = name.partition(".")
        bronze = layer == BRONZE
        folder = self.root / layer / self.flow / short
        return LakeTable(name, folder, 0 if bronze else self.generation, by_stream=bronze)

    def tables(self) -> Iterator[LakeTable]:
        """Those that have something, by name; bronze first."""
        for folder in sorted(self.root.glob(f"*/{self.flow}/*")):
            table = self.table(f"{folder.parent.parent.name}.{folder.name}")
            if table.log.folder.is_dir():
                yield table

    def boundary(self, batch: int) -> int:
        """The last batch not behind this one where the tables can be parted.

        A file that compaction made has many batches and cannot.
        """
        files = [file for table in self._rebuilt() for file in table.log.files()]
        while straddling := [file.first for file in files if file.first < batch <= file.last]:
            batch = min(straddling)
        return batch

    def branch(self, generation: int, before: int) -> Lake:
        """Another generation, which has all this one has of batches before that one."""
        other = self.at(generation)
        for table in self._rebuilt():
            target = other.table(table.name).log
            if (schema := table.log.schema()) is not None:
                target.keep_schema(schema)
            entries = list(table.log.entries())
            for each in table.log.compactions().values():
                kept = tuple(file for file in each.files if file.last < before)
                if kept:
                    target.publish(CompactionEntry(each.day, min(each.through, before - 1), kept))
            for entry in entries:
                if entry.batch < before:
                    target.publish(entry)
        return other

    def drop(self, generation: int) -> None:
        """Forget a generation; its files go with a later sweep."""
        for table in self.at(generation)._rebuilt():
            table.mark_unused(table.log.files())
            table.log.drop()

    def generations(self) -> set[int]:
        """All there is something of."""
        return {
            int(path.name.removeprefix("log-")) for path in self.root.glob(f"*/{self.flow}/*/log-*")
        }

    def _rebuilt(self) -> list[LakeTable]:
        return [table for table in self.tables() if not table.name.startswith(f"{BRONZE}.")]


# Which generation of a flow's tables is current, and which is about to be.
#
# Lake and database change over together, though no one transaction spans them: the pointer first
# says what is about to happen, then the database does it, then the pointer says that it is done.
# Whoever finds a change begun finishes it (`replay.finish`).


@dataclass(frozen=True, slots=True)
class Generations:
    current: int = 0
    next: int | None = None  #: being adopted
    newest: int = 0  #: the last number given out


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
