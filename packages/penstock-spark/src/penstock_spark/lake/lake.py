"""The lake of a flow: its tables by layer and name, in generations.

    lake = Lake.open(data / "lake", "hives")
    lake.read(spark, "silver.reports", days=(date(2026, 11, 1), date(2026, 11, 7)))

A table is `layer.name` and belongs to a flow: `silver.reports` is the Delta table
`silver/hives/reports`. Tables have the columns `day`, by which they are partitioned, and `batch`,
by which a repeated batch replaces its rows. Bronze exists once; the other layers have generations,
one of which is current: generation 2 is `silver/hives/reports.2`. A rebuild writes the next
generation (`replay.py`).

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

from penstock.core.errors import ConfigurationError
from penstock_spark.lake.data_file import DataFile, DataFileWriter
from penstock_spark.lake.delta import LakeTable
from penstock_spark.lake.storage import StorageLocation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


BRONZE: Final = "bronze"
DAY_COLUMN: Final = "day"
BATCH_COLUMN: Final = "batch"
_TABLE_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*\.[a-z][a-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """Where workers write a batch of a table. Picklable."""

    location: StorageLocation
    cluster_by: str | None = None

    def open_writer(self, schema: pa.Schema) -> DataFileWriter:
        return DataFileWriter(self.location, schema, (DAY_COLUMN,), self.cluster_by)


class Lake:
    """The tables of a flow, of one generation. Picklable."""

    def __init__(self, root: StorageLocation | Path, flow: str, generation: int = 0) -> None:
        self.root = root if isinstance(root, StorageLocation) else StorageLocation.parse(root)
        self.flow = flow
        self.generation = generation
        self._tables: dict[str, LakeTable] = {}

    def __reduce__(self) -> tuple[type[Lake], tuple[StorageLocation, str, int]]:
        return type(self), (self.root, self.flow, self.generation)

    @classmethod
    def open(cls, root: StorageLocation | Path, flow: str) -> Lake:
        """The current generation."""
        return cls(root, flow, GenerationPointer(root, flow).read().current)

    def at(self, generation: int) -> Lake:
        return Lake(self.root, self.flow, generation)

    def write(self, table: str, batch_id: int, frame: DataFrame) -> list[DataFile]:
        """Write a batch of a table, with a column `day`, by a Spark job; replaces an earlier
        attempt."""
        from pyspark.sql.functions import lit
        from pyspark.sql.pandas.types import to_arrow_schema

        if BATCH_COLUMN not in frame.columns:
            frame = frame.withColumn(BATCH_COLUMN, lit(batch_id).cast("bigint"))
        schema = to_arrow_schema(frame.schema, timezone="UTC")
        schema = pa.schema([each.with_nullable(True) for each in schema])
        rows = frame.mapInArrow(_FileWriter(self.stage(table, batch_id), schema), "files STRING")
        files = [DataFile(**file) for row in rows.collect() for file in json.loads(row.files)]
        self.commit(table, batch_id, files, schema)
        return files

    def stage(self, table: str, batch_id: int) -> StagedBatch:
        """Let workers write a batch of a table."""
        return StagedBatch(self.table(table).location)

    def commit(
        self, table: str, batch_id: int, files: Sequence[DataFile], schema: pa.Schema
    ) -> None:
        """Make the written files the batch; without files it has no rows."""
        found = self.table(table)
        if not files:
            last = found.last_transaction(self.flow) if found.exists() else None
            if last is None or last < batch_id:
                return  # there is nothing to replace
        found.create(schema, (DAY_COLUMN,))
        found.commit(self.flow, batch_id, files, replace_by=BATCH_COLUMN)

    def read(
        self, spark: SparkSession, table: str, days: tuple[date, date] | None = None
    ) -> DataFrame:
        """The current content of a table, or of the days from the first to the last.

        Later writes and merges of files do not change it; its files exist for at least an hour.
        """
        found = self.table(table)
        return found.read(spark, found.files(**({DAY_COLUMN: days} if days else {})))

    def table(self, name: str) -> LakeTable:
        found = self._tables.get(name)
        if found is None:
            if not _TABLE_NAME.fullmatch(name):
                raise ValueError(f"invalid table name {name!r}: should be like silver.reports")
            layer, _, short = name.partition(".")
            if layer != BRONZE and self.generation:
                short = f"{short}.{self.generation}"
            found = LakeTable(self.root / layer / self.flow / short, name)
            self._check_format(found)
            self._tables[name] = found
        return found

    def tables(self) -> Iterator[LakeTable]:
        """The tables that exist, by name; bronze first."""
        for layer, short, generation in self._folders():
            if generation == (0 if layer == BRONZE else self.generation):
                table = self.table(f"{layer}.{short}")
                if table.exists():
                    yield table

    def branch(self, spark: SparkSession, generation: int, before: int) -> Lake:
        """Another generation with the batches of this one before `before`."""
        other = self.at(generation)
        if before > 0:
            for table in self._rebuilt():
                rows = table.read(spark, table.files(**{BATCH_COLUMN: (0, before - 1)}))
                other.write(table.name, before - 1, rows.where(f"{BATCH_COLUMN} < {before}"))
        return other

    def drop(self, generation: int) -> None:
        """Delete a generation."""
        for layer, short, number in self._folders():
            if layer != BRONZE and number == generation:
                self.at(generation).table(f"{layer}.{short}").drop()

    def generations(self) -> set[int]:
        """The generations that exist."""
        return {number for layer, _, number in self._folders() if layer != BRONZE}

    def _rebuilt(self) -> list[LakeTable]:
        return [table for table in self.tables() if not table.name.startswith(f"{BRONZE}.")]

    def _folders(self) -> Iterator[tuple[str, str, int]]:
        """Layer, name and generation of every table."""
        for layer in self.root.folders():
            for folder in (self.root / layer / self.flow).folders():
                short, _, number = folder.partition(".")
                if number.isdigit() or not number:
                    yield layer, short, int(number or 0)

    def _check_format(self, table: LakeTable) -> None:
        path = table.location.path
        if path is not None and (path / "log-0").is_dir():
            raise ConfigurationError(
                f"{self.root} has the table format of an earlier release, which is not converted: "
                f"move it and {self.root.path.parent if self.root.path else ''}/checkpoints away; "
                "the flow then reads its streams from their beginning"
            )


@dataclass(frozen=True, slots=True)
class _FileWriter:
    """A task: writes files and returns one row that describes them."""

    staged: StagedBatch
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = self.staged.open_writer(self.schema)
        for batch in batches:
            if len(batch):
                writer.add(pa.Table.from_batches([batch]).cast(self.schema))
        files = [asdict(file) for file in writer.close()]
        yield pa.RecordBatch.from_pydict({"files": [json.dumps(files)]})


@dataclass(frozen=True, slots=True)
class Generations:
    current: int = 0
    next: int | None = None  #: being adopted
    newest: int = 0  #: the last number assigned
    rebuilt: int = -1  #: the last batch of the rebuild that made the current one
    since: float = 0.0  #: seconds since 1970, when it became current


class GenerationPointer:
    __slots__ = ("_file", "_root")

    def __init__(self, root: StorageLocation | Path, flow: str) -> None:
        self._root = root if isinstance(root, StorageLocation) else StorageLocation.parse(root)
        self._file = f"generations/{flow}.json"

    def read(self) -> Generations:
        found = self._root.read_json(self._file)
        return Generations(**(found or {}))

    def write(self, generations: Generations) -> None:
        self._root.write_json(self._file, asdict(generations))
