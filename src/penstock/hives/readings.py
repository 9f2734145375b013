"""Silver in the lake, in one job of Spark over a batch.

Each task reads the batch's files, takes the messages of its share of the sensors, decodes and
counts them in the order of the stream, and writes its part of silver's tables. What gold needs
comes back to the driver with the names of the files: little, whatever the size of the batch.
Nothing is shuffled: to read a few columns of a batch in every task costs less than to move rows.

The tables are entered one after the other, and all of them before gold. A batch that is tried again
replaces what an earlier try has entered.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock.hives.steps.decoded import MESSAGES
from penstock.hives.steps.profiles import Profiles
from penstock.hives.steps.reading import Carried, make
from penstock.hives.steps.receipts import DOUBTFUL, received
from penstock.hives.steps.tables import TABLES
from penstock.pipeline.flow import Batch
from penstock.pipeline.lake import Draft, File
from penstock.pipeline.stock import Stock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Fewer messages than this are not worth another task.
_TASK_ROWS: Final = 50_000
_COLUMNS: Final = (*MESSAGES.names, "headers")


def write(batch: Batch, profiles: Profiles, states: pa.Table) -> Carried:
    """Silver of a batch, of sensors that stood so; what else there is of it."""
    tasks = max(1, min(_cores(batch.spark), batch.rows // _TASK_ROWS))
    drafts = {name: batch.lake.draft(name, batch.id) for name in TABLES}
    work = _Work(profiles, states, batch.stock, drafts, tasks, batch.id)
    numbers = batch.spark.range(0, tasks, 1, tasks)
    told = numbers.mapInArrow(work, "files STRING, carried BINARY").collect()
    files: dict[str, list[File]] = {name: [] for name in TABLES}
    for row in told:
        for name, found in json.loads(row.files).items():
            files[name] += (File(**file) for file in found)
    for name, schema in TABLES.items():
        batch.lake.enter(name, batch.id, files[name], schema)
    return Carried.joined(bytes(row.carried) for row in told)


@dataclass(frozen=True, slots=True)
class _Work:
    """What a task does: one row in, the number of its share, and one out."""

    profiles: Profiles
    states: pa.Table
    stock: Stock
    drafts: dict[str, Draft]
    tasks: int
    batch: int

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in numbers:
            for number in rows["id"].to_pylist():
                yield self._work(number)

    def _work(self, number: int) -> pa.RecordBatch:
        tables, carried = make(self._messages(number), self.profiles, self.states)
        files = {}
        for name, rows in tables.items():
            writing = self.drafts[name].begin(TABLES[name])
            if len(rows):
                writing.add(_dated(rows, TABLES[name], self.batch))
            files[name] = [asdict(file) for file in writing.close()]
        told = {"files": [json.dumps(files)], "carried": [carried.to_bytes()]}
        return pa.RecordBatch.from_pydict(told)

    def _messages(self, number: int) -> Iterator[pa.RecordBatch]:
        for rows in self.stock.read(_COLUMNS):
            mine = _share(rows.unify_dictionaries(), number, self.tasks)
            if len(mine):
                yield from _as_decoded(received(mine))


def _share(rows: pa.Table, number: int, tasks: int) -> pa.Table:
    """The messages of this share of the sensors."""
    if tasks == 1:
        return rows
    keys = rows["routing_key"].combine_chunks()
    mine = np.array([_share_of(key, tasks) == number for key in keys.dictionary.to_pylist()], bool)
    return rows.filter(pa.array(mine[np.asarray(keys.indices)]))


def _share_of(key: str, tasks: int) -> int:
    """By what all topics of a sensor begin with, however they are spelled; the same everywhere."""
    words = key.replace("/", ".").split(".", 2)[:2]
    return zlib.crc32(".".join(words).encode()) % tasks


def _as_decoded(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """As decoders want them: names of streams are text, those of topics may be dictionaries."""
    place = rows.schema.get_field_index("stream")
    rows = rows.set_column(place, "stream", rows["stream"].cast(pa.string()))
    names = [*MESSAGES.names, *([DOUBTFUL] if DOUBTFUL in rows.schema.names else [])]
    yield from rows.select(names).combine_chunks().to_batches()


def _dated(rows: pa.Table, schema: pa.Schema, batch: int) -> pa.Table:
    day = rows["received_at"].cast(pa.date32())
    number = pa.array(np.full(len(rows), batch, np.int64))
    return rows.append_column("day", day).append_column("batch", number).select(schema.names)


def _cores(spark: SparkSession) -> int:
    """As many tasks as can run at a time; over Spark Connect nobody says."""
    from pyspark.errors import PySparkAttributeError

    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkAttributeError:
        return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
