"""Bronze: every message as it came, kept before anything is made of it.

What later steps see is read from bronze, not from the stream: a batch that is replayed is, to the
last byte, the one that was live, and a stream is read once however many tables are made of it.
Spark says which messages are a batch and gives them to workers, which write the files themselves.

Every batch's entry says how far each stream has been kept. So bronze alone tells where to go on,
should the checkpoint be lost (`batch_processor.py`).
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
#: Microseconds, at the end of the year 9999.
_MAX_TIMESTAMP: Final = 253_402_300_800_000_000
#: The time of a batch, which Spark keeps in its checkpoint: the same at every try.
_BATCH_TIME: Final = "now"


@dataclass(frozen=True, slots=True)
class BronzeBatch:
    """A batch as bronze has it."""

    batch: int
    rows: int
    files: tuple[DataFile, ...]
    ends: Mapping[str, int]  #: the next offset of every stream, as of this batch
    newest: datetime | None  #: when its last message came

    @classmethod
    def of(cls, entry: TableLogEntry) -> BronzeBatch:
        rows = sum(file.rows for file in entry.files)
        newest = entry.facts.get("newest_ms")
        moment = None if newest is None else datetime.fromtimestamp(newest / 1000, UTC)
        return cls(entry.batch, rows, entry.files, entry.facts.get("ends", {}), moment)


def load_messages(reader: DataStreamReader) -> DataFrame:
    """The streams as the engine reads them: many messages a row, and the time of the batch."""
    from pyspark.sql.functions import current_timestamp

    return (
        reader.schema(f"{PACKED_COLUMN} BINARY").load().withColumn(_BATCH_TIME, current_timestamp())
    )


def write_batch(lake: Lake, batch: int, arrived: DataFrame) -> BronzeBatch:
    """Write a batch of what arrives; a job of Spark's."""
    table = lake.table(MESSAGES_TABLE)
    # An earlier try of this batch knows as well as the batch before, whose entry may be compacted.
    known = last_batch(lake, batch)
    seen = StreamPositions(dict(known.ends) if known is not None else {})
    files: list[DataFile] = []
    work = _BronzeWriter(table.stage(batch), batch)
    for row in arrived.mapInArrow(work, "told STRING").collect():
        told = json.loads(row.told)
        files += (DataFile(**file) for file in told["files"])
        seen.join(told["ends"], told["newest_ms"])
    facts = {"ends": seen.ends, "newest_ms": seen.newest_ms}
    return BronzeBatch.of(
        table.commit(batch, sorted(files, key=lambda file: file.path), MESSAGES_SCHEMA, facts)
    )


def last_batch(lake: Lake, up_to: int | None = None) -> BronzeBatch | None:
    """The last batch that is kept, or that one or the last before it.

    The very last has its entry whatever is compacted.
    """
    log = lake.table(MESSAGES_TABLE).log
    for batch in reversed(log.batches()):
        if (up_to is None or batch <= up_to) and (entry := log.entry(batch)) is not None:
            return BronzeBatch.of(entry)
    return None


@dataclass(slots=True)
class StreamPositions:
    """Where each stream ends, and when the last message came."""

    ends: dict[str, int] = field(default_factory=dict)
    newest_ms: int | None = None

    def add(self, messages: pa.Table) -> None:
        """Messages, whole runs of a stream as a rule."""
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
    """What a task does with what arrives: files, and one row that tells of them."""

    draft: StagedBatch
    batch: int

    def __call__(self, arrived: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writing = self.draft.open_writer(MESSAGES_SCHEMA)
        seen = StreamPositions()
        for rows in arrived:
            for now, value in zip(rows[_BATCH_TIME], rows[PACKED_COLUMN], strict=True):
                for messages in unpack_messages(value):
                    if len(messages):
                        table = add_timestamps(messages, now, self.batch)
                        writing.add(table)
                        seen.add(table)
        told: dict[str, Any] = {"files": [asdict(file) for file in writing.close()]}
        told |= {"ends": seen.ends, "newest_ms": seen.newest_ms}
        yield pa.RecordBatch.from_pydict({"told": [json.dumps(told)]})


def add_timestamps(messages: pa.RecordBatch, now: pa.TimestampScalar, batch: int) -> pa.Table:
    """Messages with a time and a day each.

    A broker that does not tell when a message came, or hands on what a publisher made up and no
    calendar has, leaves the time of the batch.
    """
    times = messages["timestamp"]
    least, most = pc.min_max(times.cast(pa.int64())).values()
    if times.null_count or least.as_py() < 0 or most.as_py() >= _MAX_TIMESTAMP:
        moments = times.cast(pa.int64())
        there = pc.and_(pc.greater_equal(moments, 0), pc.less(moments, _MAX_TIMESTAMP))
        times = pc.if_else(there.fill_null(False), times, now.cast(times.type))
    columns = {name: messages[name] for name in messages.schema.names}
    columns |= {
        "timestamp": times,
        "day": times.cast(pa.date32()),
        "batch": pa.array(np.full(len(messages), batch, np.int32)),
    }
    return pa.table(columns, MESSAGES_SCHEMA)


# The messages of a batch where they lie: files of bronze, which workers may read themselves.
#
# A flow that asks Spark for rows has `batch.messages`. One whose workers want whole columns has the
# files as well: reading a few columns of them with Arrow takes a fraction of what it takes to bring
# the same rows to Python through Spark, so little that every task may read all of a batch and take
# what is its own.

#: Many rows have the same.
_DICTIONARY_COLUMNS: Final = ("stream", "exchange", "routing_key")


@dataclass(frozen=True, slots=True)
class BronzeFiles:
    """All messages of some files of bronze, or those of them that are wanted. Picklable."""

    folder: Path
    files: tuple[DataFile, ...]
    since: int = 0  #: of this batch and later
    until: datetime | None = None  #: that came before

    @property
    def whole(self) -> bool:
        """Whether all that is in the files is wanted."""
        return self.until is None and all(file.first >= self.since for file in self.files)

    def read(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """File by file; names are dictionaries, and columns without any value are left out."""
        for file in self.files:
            with pq.ParquetFile(
                self.folder / file.path, read_dictionary=_DICTIONARY_COLUMNS
            ) as opened:
                wanted = [name for name in columns if not _is_all_null(opened.metadata, name)]
                also = [] if self.whole else [n for n in ("batch", "timestamp") if n not in wanted]
                rows = opened.read([*wanted, *also], use_threads=False)
            yield rows if self.whole else self._wanted(rows).select(wanted)

    def frame(self, spark: SparkSession, table: LakeTable) -> DataFrame:
        """The same through Spark."""
        from pyspark.sql.functions import col, lit

        messages = table.read(spark, files=self.files)
        if any(file.first < self.since for file in self.files):
            messages = messages.filter(col("batch") >= self.since)
        if self.until is not None:
            messages = messages.filter(col("timestamp") < lit(self.until))
        return messages

    def _wanted(self, rows: pa.Table) -> pa.Table:
        wanted = pc.greater_equal(rows["batch"], self.since)
        if self.until is not None:
            moment = pa.scalar(self.until, rows["timestamp"].type)
            wanted = pc.and_(wanted, pc.less(rows["timestamp"], moment))
        return rows.filter(wanted)


def _is_all_null(metadata: pq.FileMetaData, name: str) -> bool:
    """Whether the file says of a column that it has nothing but nulls."""
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for place in range(row_group.num_columns):
            column = row_group.column(place)
            if column.path_in_schema.partition(".")[0] != name:
                continue
            told = column.statistics
            if told is None or told.null_count is None or told.null_count < column.num_values:
                return False
    return True
