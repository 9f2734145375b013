"""The lake: tables of Parquet files on a file system that the driver and all workers see.

    lake = Lake.open(data / "lake", "hives")
    lake.read(spark, "silver.reports", days=(date(2026, 11, 1), date(2026, 11, 7)))

A table is `layer.name`, and belongs to a flow: `silver/hives/reports`. Bronze is what came, by day
and stream, and there is one of it; the other layers lie by day and have generations, of which one
is current. Whoever opens the lake reads that one; a rebuild writes the next (`replay.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.pipeline.lake.draft import Draft
from penstock.pipeline.lake.log import Compaction, Entry, File
from penstock.pipeline.lake.pointer import Pointer
from penstock.pipeline.lake.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BRONZE: Final = "bronze"
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*\.[a-z][a-z0-9_-]*")


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
        return cls(root, flow, Pointer(root, flow).read().current)

    def at(self, generation: int) -> Lake:
        return Lake(self.root, self.flow, generation)

    def spanning(self, first: int) -> Lake:
        """For a batch that stands for several, from that one to its own."""
        return Lake(self.root, self.flow, self.generation, first)

    def write(self, table: str, batch_id: int, frame: DataFrame) -> Entry:
        """Write a batch of a table; a later try replaces an earlier one. Needs a column `day`."""
        return self.table(table).write(batch_id, frame, first=self._first)

    def draft(self, table: str, batch_id: int) -> Draft:
        """For workers to write a batch of a table themselves."""
        return self.table(table).draft(batch_id, self._first)

    def enter(self, table: str, batch_id: int, files: Sequence[File], schema: pa.Schema) -> Entry:
        """What they have written becomes the batch; nothing does, if it is nothing."""
        return self.table(table).enter(batch_id, files, schema)

    def clear(self, table: str, batch_id: int) -> None:
        """A batch has nothing of this table, whatever an earlier try of it has written."""
        self.table(table).clear(batch_id)

    def read(
        self, spark: SparkSession, table: str, days: tuple[date, date] | None = None
    ) -> DataFrame:
        """A table as it is now, or some days of it, from the first to the last.

        What is written or compacted afterwards does not change it. Its files are there for an hour
        at least.
        """
        return self.table(table).read(spark, days)

    def table(self, name: str) -> Table:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a table: should be as silver.reports")
        layer, _, short = name.partition(".")
        bronze = layer == BRONZE
        folder = self.root / layer / self.flow / short
        return Table(name, folder, 0 if bronze else self.generation, by_stream=bronze)

    def tables(self) -> Iterator[Table]:
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
                    target.publish(Compaction(each.day, min(each.through, before - 1), kept))
            for entry in entries:
                if entry.batch < before:
                    target.publish(entry)
        return other

    def drop(self, generation: int) -> None:
        """Forget a generation; its files go with a later sweep."""
        for table in self.at(generation)._rebuilt():
            table.retire(table.log.files())
            table.log.drop()

    def generations(self) -> set[int]:
        """All there is something of."""
        return {
            int(path.name.removeprefix("log-")) for path in self.root.glob(f"*/{self.flow}/*/log-*")
        }

    def _rebuilt(self) -> list[Table]:
        return [table for table in self.tables() if not table.name.startswith(f"{BRONZE}.")]
