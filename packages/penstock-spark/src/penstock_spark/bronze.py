"""Bronze: every message as received, stored before it is processed.

Flows read bronze, not the stream: a replayed batch is identical to the live one, and a stream is
read once for all tables. Spark assigns the messages of a batch to workers, which write the files.
The log entry of a batch has the next offset of every stream, so bronze alone determines where to
continue if the checkpoint is lost.

A flow that needs rows uses `batch.messages`. One whose workers need whole columns uses
`BronzeFiles`: reading a few columns with Arrow costs a fraction of passing the same rows through
Spark, so every task may read the whole batch and select its part.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock_spark.connector.columns import ARROW_TYPES, PACKED_COLUMN, unpack_messages
from penstock_spark.lake import DataFile, Lake, LakeTable, StagedBatch, TableLogEntry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader


MESSAGES_TABLE: Final = "bronze.messages"
#: The connector's columns, the UTC day of the timestamp, and the batch.
MESSAGES_SCHEMA: Final = pa.schema(
    [*ARROW_TYPES.items(), ("day", pa.date32()), ("batch", pa.int32())]
)
#: Microseconds: the end of the year 9999.
_MAX_TIMESTAMP: Final = 253_402_300_800_000_000
#: The time of a batch. It is in Spark's checkpoint and so the same in every attempt.
_BATCH_TIME: Final = "now"


@dataclass(frozen=True, slots=True)
class BronzeBatch:
    batch: int
    rows: int
    files: tuple[DataFile, ...]
    ends: Mapping[str, int]  #: the next offset of every stream after this batch
    newest: datetime | None  #: the time of its newest message

    @classmethod
    def of(cls, entry: TableLogEntry) -> BronzeBatch:
        rows = sum(file.rows for file in entry.files)
        newest = entry.facts.get("newest_ms")
        moment = None if newest is None else datetime.fromtimestamp(newest / 1000, UTC)
        return cls(entry.batch, rows, entry.files, entry.facts.get("ends", {}), moment)


def load_messages(reader: DataStreamReader) -> DataFrame:
    """The streams in packed form: many messages per row, and the time of the batch."""
    from pyspark.sql.functions import current_timestamp

    return (
        reader.schema(f"{PACKED_COLUMN} BINARY").load().withColumn(_BATCH_TIME, current_timestamp())
    )


def write_batch(lake: Lake, batch: int, arrived: DataFrame) -> BronzeBatch:
    """Write a batch of messages; runs a Spark job."""
    table = lake.table(MESSAGES_TABLE)
    # The entry of the previous batch may be compacted; then an earlier attempt of this one is used.
    known = last_batch(lake, batch)
    seen = StreamPositions(dict(known.ends) if known is not None else {})
    files: list[DataFile] = []
    work = _BronzeWriter(table.stage(batch), batch)
    for row in arrived.mapInArrow(work, "report STRING").collect():
        report = json.loads(row.report)
        files += (DataFile(**file) for file in report["files"])
        seen.join(report["ends"], report["newest_ms"])
    facts = {"ends": seen.ends, "newest_ms": seen.newest_ms}
    return BronzeBatch.of(
        table.commit(batch, sorted(files, key=lambda file: file.path), MESSAGES_SCHEMA, facts)
    )


def last_batch(lake: Lake, up_to: int | None = None) -> BronzeBatch | None:
    """The last batch, or the last one up to a number.

    Compaction never removes the entry of the very last.
    """
    log = lake.table(MESSAGES_TABLE).log
    for batch in reversed(log.batches()):
        if (up_to is None or batch <= up_to) and (entry := log.entry(batch)) is not None:
            return BronzeBatch.of(entry)
    return None


@dataclass(slots=True)
class StreamPositions:
    """The next offset of each stream, and the time of the newest message."""

    ends: dict[str, int] = field(default_factory=dict)
    newest_ms: int | None = None

    def add(self, messages: pa.Table) -> None:
        found = messages.select(["stream", "offset"]).group_by("stream")
        ends = found.aggregate([("offset", "max")]).to_pylist()
        newest = int(pc.max(messages["timestamp"]).cast(pa.int64()).as_py()) // 1000
        self.join({row["stream"]: row["offset_max"] + 1 for row in ends}, newest)

    def join(self, ends: Mapping[str, int], newest_ms: int | None) -> None:
        for stream, end in ends.items():
            self.ends[stream] = max(end, self.ends.get(stream, 0))
        if newest_ms is not None:
            self.newest_ms = max(newest_ms, self.newest_ms or newest_ms)


@dataclass(frozen=True, slots=True)
class _BronzeWriter:
    """A task: writes files and returns one row that describes them."""

    staged: StagedBatch
    batch: int

    def __call__(self, arrived: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = self.staged.open_writer(MESSAGES_SCHEMA)
        seen = StreamPositions()
        for rows in arrived:
            for now, value in zip(rows[_BATCH_TIME], rows[PACKED_COLUMN], strict=True):
                for messages in unpack_messages(value):
                    if len(messages):
                        table = add_timestamps(messages, now, self.batch)
                        writer.add(table)
                        seen.add(table)
        report: dict[str, Any] = {"files": [asdict(file) for file in writer.close()]}
        report |= {"ends": seen.ends, "newest_ms": seen.newest_ms}
        yield pa.RecordBatch.from_pydict({"report": [json.dumps(report)]})


def add_timestamps(messages: pa.RecordBatch, now: pa.TimestampScalar, batch: int) -> pa.Table:
    """Add the day and the batch; replace a missing or invalid timestamp by the batch's time."""
    times = messages["timestamp"]
    least, most = pc.min_max(times.cast(pa.int64())).values()
    if times.null_count or least.as_py() < 0 or most.as_py() >= _MAX_TIMESTAMP:
        times_us = times.cast(pa.int64())
        valid = pc.and_(pc.greater_equal(times_us, 0), pc.less(times_us, _MAX_TIMESTAMP))
        times = pc.if_else(valid.fill_null(False), times, now.cast(times.type))
    columns = {name: messages[name] for name in messages.schema.names}
    columns |= {
        "timestamp": times,
        "day": times.cast(pa.date32()),
        "batch": pa.array(np.full(len(messages), batch, np.int32)),
    }
    return pa.table(columns, MESSAGES_SCHEMA)


#: Columns with few distinct values.
_DICTIONARY_COLUMNS: Final = ("stream", "exchange", "routing_key")


@dataclass(frozen=True, slots=True)
class BronzeFiles:
    """The messages in some files of bronze, or a part of them. Picklable."""

    folder: Path
    files: tuple[DataFile, ...]
    since: int = 0  #: this batch and later ones
    until: datetime | None = None  #: messages before this time

    @property
    def whole(self) -> bool:
        """Whether all messages in the files are selected."""
        return self.until is None and all(file.first >= self.since for file in self.files)

    def read(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The tables of the files; columns without any value are omitted."""
        for file in self.files:
            with pq.ParquetFile(
                self.folder / file.path, read_dictionary=_DICTIONARY_COLUMNS
            ) as opened:
                wanted = [name for name in columns if not _is_all_null(opened.metadata, name)]
                also = [] if self.whole else [n for n in ("batch", "timestamp") if n not in wanted]
                rows = opened.read([*wanted, *also], use_threads=False)
            yield rows if self.whole else self._select(rows).select(wanted)

    def frame(self, spark: SparkSession, table: LakeTable) -> DataFrame:
        """The same as a DataFrame."""
        from pyspark.sql.functions import col, lit

        messages = table.read(spark, files=self.files)
        if any(file.first < self.since for file in self.files):
            messages = messages.filter(col("batch") >= self.since)
        if self.until is not None:
            messages = messages.filter(col("timestamp") < lit(self.until))
        return messages

    def _select(self, rows: pa.Table) -> pa.Table:
        wanted = pc.greater_equal(rows["batch"], self.since)
        if self.until is not None:
            moment = pa.scalar(self.until, rows["timestamp"].type)
            wanted = pc.and_(wanted, pc.less(rows["timestamp"], moment))
        return rows.filter(wanted)


def _is_all_null(metadata: pq.FileMetaData, name: str) -> bool:
    """Whether a column has only nulls, according to the statistics of the file."""
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(row_group.num_columns):
            column = row_group.column(index)
            if column.path_in_schema.partition(".")[0] != name:
                continue
            statistics = column.statistics
            nulls = None if statistics is None else statistics.null_count
            if nulls is None or nulls < column.num_values:
                return False
    return True
