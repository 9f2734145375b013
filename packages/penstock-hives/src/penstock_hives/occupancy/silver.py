"""Silver tables of a batch, in one Spark job.

Each task reads the files of the batch, selects the messages of its sensors, decodes and counts them
in stream order, and writes its files of the silver tables. A `SilverSummary` (counts by hive and
slot, sensor states, statuses, dead letters, notices) returns to the driver. There is no shuffle:
reading a few columns in every task costs less. Tables are committed one after the other, before
gold. A retried batch replaces its files.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock_hives.occupancy.anomalies import NOTICE_SCHEMA
from penstock_hives.occupancy.counts import ReportCounts, count_reports
from penstock_hives.occupancy.decoder import DOUBTFUL, decode_messages, resolve_receipt_times
from penstock_hives.occupancy.profiles import SensorProfiles
from penstock_hives.occupancy.schemas import (
    DECODED_SCHEMA,
    MESSAGE_SCHEMA,
    SILVER_DEAD_LETTER_SCHEMA,
    SILVER_REPORT_SCHEMA,
    SILVER_STATUS_SCHEMA,
    SILVER_TABLES,
    UNCOUNTED,
    Quality,
    SilverPart,
)
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA
from penstock_hives.occupancy.slots import SLOT_MICROS, SlotCounts, merge_counts
from penstock_spark.bronze import BronzeFiles
from penstock_spark.flow import FlowBatch
from penstock_spark.lake import DataFile, StagedBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Fewer messages than this are not worth another task.
_TASK_ROWS: Final = 50_000
_COLUMNS: Final = (*MESSAGE_SCHEMA.names, "headers")


def write_silver(batch: FlowBatch, profiles: SensorProfiles, states: pa.Table) -> SilverSummary:
    """Write the silver tables of a batch and return what gold needs of it."""
    tasks = max(1, min(_cores(batch.spark), batch.rows // _TASK_ROWS))
    drafts = {name: batch.lake.stage(name, batch.id) for name in SILVER_TABLES}
    work = _SilverTask(profiles, states, batch.bronze_files, drafts, tasks, batch.id)
    numbers = batch.spark.range(0, tasks, 1, tasks)
    results = numbers.mapInArrow(work, "files STRING, summary BINARY").collect()
    files: dict[str, list[DataFile]] = {name: [] for name in SILVER_TABLES}
    for row in results:
        for name, written in json.loads(row.files).items():
            files[name] += (DataFile(**file) for file in written)
    for name, schema in SILVER_TABLES.items():
        batch.lake.commit(name, batch.id, files[name], schema)
    return SilverSummary.merged(bytes(row.summary) for row in results)


@dataclass(frozen=True, slots=True)
class _SilverTask:
    """A row in, the number of the task's share; a row out, its files and its summary."""

    profiles: SensorProfiles
    states: pa.Table
    bronze_files: BronzeFiles
    drafts: dict[str, StagedBatch]
    tasks: int
    batch: int

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in numbers:
            for number in rows["id"].to_pylist():
                yield self._work(number)

    def _work(self, number: int) -> pa.RecordBatch:
        tables, summary = make_silver(self._messages(number), self.profiles, self.states)
        files = {}
        for name, rows in tables.items():
            writing = self.drafts[name].open_writer(SILVER_TABLES[name])
            if len(rows):
                writing.add(_dated(rows, SILVER_TABLES[name], self.batch))
            files[name] = [asdict(file) for file in writing.close()]
        row = {"files": [json.dumps(files)], "summary": [summary.to_bytes()]}
        return pa.RecordBatch.from_pydict(row)

    def _messages(self, number: int) -> Iterator[pa.RecordBatch]:
        for rows in self.bronze_files.read(_COLUMNS):
            mine = _share(rows.unify_dictionaries(), number, self.tasks)
            if len(mine):
                yield from _as_decoded(resolve_receipt_times(mine))


def _share(rows: pa.Table, number: int, tasks: int) -> pa.Table:
    if tasks == 1:
        return rows
    keys = rows["routing_key"].combine_chunks()
    mine = np.array([_share_of(key, tasks) == number for key in keys.dictionary.to_pylist()], bool)
    return rows.filter(pa.array(mine[np.asarray(keys.indices)]))


def _share_of(key: str, tasks: int) -> int:
    """By the prefix that all topics of a sensor share, in either spelling."""
    words = key.replace("/", ".").split(".", 2)[:2]
    return zlib.crc32(".".join(words).encode()) % tasks


def _as_decoded(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Decoders expect names of streams as text; routing keys may be dictionaries."""
    index = rows.schema.get_field_index("stream")
    rows = rows.set_column(index, "stream", rows["stream"].cast(pa.string()))
    names = [*MESSAGE_SCHEMA.names, *([DOUBTFUL] if DOUBTFUL in rows.schema.names else [])]
    yield from rows.select(names).combine_chunks().to_batches()


def _dated(rows: pa.Table, schema: pa.Schema, batch: int) -> pa.Table:
    day = rows["received_at"].cast(pa.date32())
    number = pa.array(np.full(len(rows), batch, np.int64))
    return rows.append_column("day", day).append_column("batch", number).select(schema.names)


def _cores(spark: SparkSession) -> int:
    """Tasks that can run at a time; Spark Connect does not report it."""
    from pyspark.errors import PySparkAttributeError

    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkAttributeError:
        return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


_NUMBERS: Final = ("total_in", "total_out", "delta_in", "delta_out", "missed", "quality")
_COUNT_SCHEMA: Final = pa.schema([(each.name, pa.int64()) for each in fields(SlotCounts)])


@dataclass(frozen=True, slots=True)
class SilverSummary:
    """What gold needs of a batch; `statuses` and `dead_letters` are rows of `DECODED_SCHEMA`."""

    counts: SlotCounts
    states: pa.Table
    statuses: pa.Table
    dead_letters: pa.Table
    notices: pa.Table

    def to_bytes(self) -> bytes:
        counts = [pa.array(getattr(self.counts, name)) for name in _COUNT_SCHEMA.names]
        tables = (
            pa.Table.from_arrays(counts, schema=_COUNT_SCHEMA),
            *(self.states, self.statuses, self.dead_letters, self.notices),
        )
        sink = pa.BufferOutputStream()
        for table in tables:
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        return bytes(sink.getvalue())

    @classmethod
    def merged(cls, parts: Iterable[bytes]) -> SilverSummary:
        schemas = (
            *(_COUNT_SCHEMA, SENSOR_STATE_SCHEMA),
            *(DECODED_SCHEMA, DECODED_SCHEMA, NOTICE_SCHEMA),
        )
        columns = [[schema.empty_table()] for schema in schemas]
        for part in parts:
            source = pa.BufferReader(part)
            for tables in columns:
                tables.append(pa.ipc.open_stream(source).read_all())
        counts, *others = (pa.concat_tables(tables).combine_chunks() for tables in columns)
        slots = SlotCounts(*(np.asarray(counts[name]) for name in _COUNT_SCHEMA.names))
        return cls(merge_counts([slots]), *others)


def make_silver(
    messages: Iterable[pa.RecordBatch], profiles: SensorProfiles, states: pa.Table
) -> tuple[Mapping[str, pa.Table], SilverSummary]:
    """Rows by table, without the columns `day` and `batch`, and the summary.

    All messages of the sensors are decoded first, because they count in stream order.
    """
    parts: dict[SilverPart, list[pa.RecordBatch]] = {part: [] for part in SilverPart}
    for batch in messages:
        for rows in decode_messages(batch, profiles):
            if len(rows):
                # Every batch has rows of one part.
                parts[SilverPart(rows["part"][0].as_py())].append(rows)
    decoded, statuses, dead_letters = (
        pa.Table.from_batches(parts[part], DECODED_SCHEMA).combine_chunks()
        for part in (SilverPart.REPORT, SilverPart.STATUS, SilverPart.DEAD_LETTER)
    )
    counted = count_reports(decoded, statuses, profiles, states)
    summary = SilverSummary(
        counts=_slot_counts(decoded, counted),
        states=pa.Table.from_batches([counted.states], SENSOR_STATE_SCHEMA),
        statuses=statuses,
        dead_letters=dead_letters,
        notices=pa.Table.from_batches([counted.notices], NOTICE_SCHEMA),
    )
    tables = {
        "silver.reports": _reports(decoded, counted),
        "silver.statuses": _flattened(statuses, "status", SILVER_STATUS_SCHEMA),
        "silver.dead_letters": _flattened(dead_letters, "dead_letter", SILVER_DEAD_LETTER_SCHEMA),
    }
    return tables, summary


def _reports(decoded: pa.Table, counted: ReportCounts) -> pa.Table:
    """Reports and events, and what each adds; duplicates are dropped."""
    schema = _undated(SILVER_REPORT_SCHEMA)
    if not len(decoded):
        return schema.empty_table()
    columns = {name: decoded[name] for name in schema.names if name in DECODED_SCHEMA.names}
    for name in _NUMBERS:
        columns[name] = pa.array(getattr(counted, name)).cast(schema.field(name).type)
    for name in ("total_in", "total_out"):
        if decoded[name].null_count:  # an event has none
            columns[name] = pc.if_else(decoded[name].is_valid(), columns[name], None)
    restarts = counted.quality & int(Quality.RESTART) != 0
    if restarts.any():
        columns["kind"] = pc.if_else(pa.array(restarts), "restart", decoded["kind"])
    table = pa.table(columns).select(schema.names).cast(schema)
    copies = counted.quality & int(Quality.DUPLICATE) != 0
    return table.filter(pa.array(~copies)) if copies.any() else table


def _flattened(rows: pa.Table, column: str, schema: pa.Schema) -> pa.Table:
    """Rows in which the fields of a struct column are columns."""
    fields = flatten_struct(rows, column)
    columns = {name: fields[name] for name in fields.schema.names}
    columns |= {name: rows[name] for name in schema.names if name in rows.schema.names}
    undated = _undated(schema)
    return pa.table(columns).select(undated.names).cast(undated)


def _undated(schema: pa.Schema) -> pa.Schema:
    """Without the columns that `_dated` adds."""
    return pa.schema([field for field in schema if field.name not in ("day", "batch")])


def _slot_counts(decoded: pa.Table, counted: ReportCounts) -> SlotCounts:
    """Entries and exits by hive and slot of `at`.

    A report that counted nobody has a slot, too: it shows that the hive had data.
    """
    counts = counted.quality & int(UNCOUNTED) == 0
    hive = np.asarray(decoded["hive_id"])[counts]
    slot = np.asarray(decoded["at"].cast(pa.int64()))[counts] // SLOT_MICROS
    return merge_counts(
        [SlotCounts(hive, slot, counted.delta_in[counts], counted.delta_out[counts])]
    )


def flatten_struct(rows: pa.Table, column: str) -> pa.Table:
    whole = rows[column].combine_chunks()
    array = whole if isinstance(whole, pa.StructArray) else pa.concat_arrays(whole.chunks)
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(array)])
