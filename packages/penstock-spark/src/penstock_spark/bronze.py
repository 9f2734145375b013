"""Bronze: every message as received, stored before it is processed.

Flows read bronze, not the stream: a replayed batch is identical to the live one, and a stream is
read once for all tables. Spark assigns the messages of a batch to workers, which write the files.
A batch is one commit of the Delta table; it records the batch's number and the next offset of each
stream as transactions, so bronze alone determines where to continue if the checkpoint is lost. A
batch that was committed is not written again.

Rows have a `shard`, a hash of the message key (`sharding.py`). Large files are sorted by it, so
that a worker reads only its shards: `BronzeFiles.read(columns, shards)`. A flow that needs rows
uses `batch.messages`, one whose workers need whole columns `batch.bronze_files`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.errors import ConfigurationError, PreconditionFailed
from penstock.core.resources import return_free_memory
from penstock.core.units import MiB
from penstock_spark.connector.columns import ARROW_TYPES, PACKED_COLUMN, unpack_messages
from penstock_spark.lake import DataFile, Lake, LakeTable, StagedBatch, StorageLocation
from penstock_spark.lake.file_reader import read_errors
from penstock_spark.lake.lake import BATCH_COLUMN, DAY_COLUMN
from penstock_spark.lake.storage import storage_errors
from penstock_spark.sharding import DEFAULT_SHARDS, ShardKey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader


MESSAGES_TABLE: Final = "bronze.messages"
SHARD_COLUMN: Final = "shard"
#: The connector's columns, the UTC day of the timestamp, the batch and the shard.
MESSAGES_SCHEMA: Final = pa.schema(
    [
        *ARROW_TYPES.items(),
        (DAY_COLUMN, pa.date32()),
        (BATCH_COLUMN, pa.int32()),
        (SHARD_COLUMN, pa.int32()),
    ]
)
_SHARDS_PROPERTY: Final = "penstock.shards"
#: Microseconds: the end of the year 9999.
_MAX_TIMESTAMP: Final = 253_402_300_800_000_000
#: What a worker keeps of freed memory after a task with up to so many messages. After a larger one
#: it keeps more for the next, see `session.py`.
_KEPT_BYTES: Final = 16 * MiB
_SMALL_TASK: Final = 20_000
#: The time of a batch. It is in Spark's checkpoint and so the same in every attempt.
_BATCH_TIME: Final = "now"


@dataclass(frozen=True, slots=True)
class BronzeBatch:
    batch: int
    rows: int
    files: tuple[DataFile, ...]
    ends: Mapping[str, int]  #: the next offset of its streams after it
    newest: datetime | None  #: the time of its newest message


def open_table(lake: Lake, shards: int | None = None) -> tuple[LakeTable, int]:
    """The table, which is created if it does not exist, and the number of its shards."""
    table = lake.table(MESSAGES_TABLE)
    wanted = {_SHARDS_PROPERTY: str(shards or DEFAULT_SHARDS)}
    table.create(MESSAGES_SCHEMA, (DAY_COLUMN,), wanted)
    found = int(table.configuration.get(_SHARDS_PROPERTY, 1))
    if shards is not None and shards != found:
        raise ConfigurationError(
            f"{table.location} has {found} shards, which is fixed when a table is created, not "
            f"{shards}: omit --shards, or move the lake away and start again"
        )
    return table, found


def claim(lake: Lake) -> int:
    """Become the only writer, and return the number to write with.

    An older writer, perhaps on another machine, cannot commit any more.
    """
    table, _ = open_table(lake)
    while True:
        number = (table.last_transaction(_writer(lake)) or 0) + 1
        if table.commit(_writer(lake), number, ()):
            return number


class FlowTakenOver(ConfigurationError):
    """Another process writes the flow's tables."""


def load_messages(reader: DataStreamReader) -> DataFrame:
    """The streams in packed form: many messages per row, and the time of the batch."""
    from pyspark.sql.functions import current_timestamp

    return (
        reader.schema(f"{PACKED_COLUMN} BINARY").load().withColumn(_BATCH_TIME, current_timestamp())
    )


def write_batch(
    lake: Lake,
    batch: int,
    arrived: DataFrame,
    words: int | None = None,
    writer: int | None = None,
) -> BronzeBatch:
    """Write a batch of messages by a Spark job, unless it was written before.

    `words` are those of the shard key; `writer` is the number of the claim.
    """
    table, shards = open_table(lake)
    if (found := find_batch(lake, batch)) is not None:
        return found
    seen = StreamPositions()
    files: list[DataFile] = []
    work = _BronzeWriter(StagedBatch(table.location, SHARD_COLUMN), batch, ShardKey(shards, words))
    for row in arrived.mapInArrow(work, "report STRING").collect():
        report = json.loads(row.report)
        files += (DataFile(**file) for file in report["files"])
        seen.join(report["ends"], report["newest_us"])
    if files:
        ends = {_position(lake, stream): end for stream, end in seen.ends.items()}
        expect = None if writer is None else (_writer(lake), writer)
        try:
            table.commit(lake.flow, batch, files, transactions=ends, expect=expect)
        except PreconditionFailed as error:
            raise FlowTakenOver(
                f"flow {lake.flow!r}: another process has begun to write {lake.root}; this one ends"
            ) from error
    return BronzeBatch(
        batch, sum(file.rows for file in files), tuple(files), seen.ends, seen.newest
    )


def find_batch(lake: Lake, batch: int) -> BronzeBatch | None:
    """A batch that was committed."""
    table = lake.table(MESSAGES_TABLE)
    last = table.last_transaction(lake.flow)
    if last is None or last < batch:
        return None
    files = tuple(table.files(**{BATCH_COLUMN: (batch, batch)}))
    found = BronzeFiles(table.location, files, batch, batch)
    newest = max((file.upper["timestamp"] for file in files), default=None)
    time = None if newest is None else datetime.fromisoformat(newest)
    return BronzeBatch(batch, found.count(), files, {}, time)


def last_batch(lake: Lake) -> int | None:
    table = lake.table(MESSAGES_TABLE)
    return table.last_transaction(lake.flow) if table.exists() else None


def stream_ends(lake: Lake) -> dict[str, int]:
    """The next offset of every stream."""
    prefix = _position(lake, "")
    found = lake.table(MESSAGES_TABLE).transactions()
    return {
        name.removeprefix(prefix): end for name, end in found.items() if name.startswith(prefix)
    }


def _position(lake: Lake, stream: str) -> str:
    return f"{lake.flow}/offset/{stream}"


def _writer(lake: Lake) -> str:
    return f"{lake.flow}/writer"


@dataclass(slots=True)
class StreamPositions:
    """The next offset of each stream, and the time of the newest message."""

    ends: dict[str, int] = field(default_factory=dict)
    newest_us: int | None = None

    @property
    def newest(self) -> datetime | None:
        if self.newest_us is None:
            return None
        moment: datetime = pa.scalar(self.newest_us, ARROW_TYPES["timestamp"]).as_py()
        return moment

    def add(self, messages: pa.Table) -> None:
        streams = messages["stream"].unique().to_pylist()
        for stream in streams:
            of_stream = messages["offset"]
            if len(streams) > 1:
                of_stream = of_stream.filter(pc.equal(messages["stream"], stream))
            self.join({stream: pc.max(of_stream).as_py() + 1}, None)
        self.join({}, int(pc.max(messages["timestamp"]).cast(pa.int64()).as_py()))

    def join(self, ends: Mapping[str, int], newest_us: int | None) -> None:
        for stream, end in ends.items():
            self.ends[stream] = max(end, self.ends.get(stream, 0))
        if newest_us is not None:
            self.newest_us = max(newest_us, self.newest_us or newest_us)


@dataclass(frozen=True, slots=True)
class _BronzeWriter:
    """A task: writes files and returns one row that describes them."""

    staged: StagedBatch
    batch: int
    key: ShardKey

    def __call__(self, arrived: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = self.staged.open_writer(MESSAGES_SCHEMA)
        seen = StreamPositions()
        for rows in arrived:
            for now, value in zip(rows[_BATCH_TIME], rows[PACKED_COLUMN], strict=True):
                for messages in unpack_messages(value):
                    if len(messages):
                        table = complete_messages(messages, now, self.batch, self.key)
                        writer.add(table)
                        seen.add(table)
        files = writer.close()
        report: dict[str, Any] = {"files": [asdict(file) for file in files]}
        report |= {"ends": seen.ends, "newest_us": seen.newest_us}
        yield pa.RecordBatch.from_pydict({"report": [json.dumps(report)]})
        if sum(file.rows for file in files) <= _SMALL_TASK:
            return_free_memory(_KEPT_BYTES)


def complete_messages(
    messages: pa.RecordBatch, now: pa.TimestampScalar, batch: int, key: ShardKey
) -> pa.Table:
    """Add day, batch and shard; replace a missing or invalid timestamp by the batch's time."""
    times = messages["timestamp"]
    least, most = pc.min_max(times.cast(pa.int64())).values()
    if times.null_count or least.as_py() < 0 or most.as_py() >= _MAX_TIMESTAMP:
        times_us = times.cast(pa.int64())
        valid = pc.and_(pc.greater_equal(times_us, 0), pc.less(times_us, _MAX_TIMESTAMP))
        times = pc.if_else(valid.fill_null(False), times, now.cast(times.type))
    columns = {name: messages[name] for name in messages.schema.names}
    columns |= {
        "timestamp": times,
        DAY_COLUMN: times.cast(pa.date32()),
        BATCH_COLUMN: pa.array(np.full(len(messages), batch, np.int32)),
        SHARD_COLUMN: pa.array(key.shards_of(messages["routing_key"])),
    }
    return pa.table(columns, MESSAGES_SCHEMA)


#: Columns with few distinct values.
_DICTIONARY_COLUMNS: Final = ("stream", "exchange", "routing_key")


@dataclass(frozen=True, slots=True)
class BronzeFiles:
    """The messages in some files of bronze, or a part of them. Picklable."""

    location: StorageLocation
    files: tuple[DataFile, ...]
    first: int = 0  #: this batch and later ones
    last: int | None = None  #: this batch and earlier ones
    until: datetime | None = None  #: messages before this time
    shards: int = DEFAULT_SHARDS  #: of the table

    @property
    def whole(self) -> bool:
        """Whether all messages in the files are selected."""
        return self.until is None and all(
            file.lower[BATCH_COLUMN] >= self.first
            and (self.last is None or file.upper[BATCH_COLUMN] <= self.last)
            for file in self.files
        )

    def share(self, number: int, tasks: int) -> range:
        """The shards of one of several tasks, for `read`; neighbours are in the same row groups."""
        return range(number * self.shards // tasks, (number + 1) * self.shards // tasks)

    def count(self) -> int:
        if self.whole:
            return sum(file.rows for file in self.files)
        return sum(len(rows) for rows in self.read([BATCH_COLUMN]))

    def read(
        self, columns: Sequence[str], shards: Collection[int] | None = None
    ) -> Iterator[pa.Table]:
        """The tables of the files, or their rows of some shards; columns without any value are
        omitted."""
        filesystem = self.location.filesystem()
        for file in self.files:
            if shards is not None and not any(
                file.may_contain(SHARD_COLUMN, shard, shard) for shard in shards
            ):
                continue
            with (
                read_errors(self.location, file, MESSAGES_TABLE),
                storage_errors(self.location),
                pq.ParquetFile(
                    filesystem.open_input_file(file.path), read_dictionary=_DICTIONARY_COLUMNS
                ) as opened,
            ):
                present = set(opened.schema_arrow.names)
                wanted = [
                    name
                    for name in columns
                    if name in present and not _is_all_null(opened.metadata, name)
                ]
                groups = _row_groups(opened.metadata, shards)
                needed = list(dict.fromkeys([*wanted, *self._selecting(shards)]))
                rows = opened.read_row_groups(groups, needed, use_threads=False)
            yield self._select(rows, shards).select(wanted)

    def frame(self, spark: SparkSession, table: LakeTable) -> DataFrame:
        """The same as a DataFrame."""
        from pyspark.sql.functions import col, lit

        messages = table.read(spark, files=self.files)
        if not self.whole:
            messages = messages.filter(col(BATCH_COLUMN) >= self.first)
            if self.last is not None:
                messages = messages.filter(col(BATCH_COLUMN) <= self.last)
            if self.until is not None:
                messages = messages.filter(col("timestamp") < lit(self.until))
        return messages

    def _selecting(self, shards: Collection[int] | None) -> list[str]:
        """The columns that selecting rows needs."""
        names = [] if shards is None else [SHARD_COLUMN]
        return names if self.whole else [*names, BATCH_COLUMN, "timestamp"]

    def _select(self, rows: pa.Table, shards: Collection[int] | None) -> pa.Table:
        if not self.whole:
            wanted = pc.greater_equal(rows[BATCH_COLUMN], self.first)
            if self.last is not None:
                wanted = pc.and_(wanted, pc.less_equal(rows[BATCH_COLUMN], self.last))
            if self.until is not None:
                moment = pa.scalar(self.until, rows["timestamp"].type)
                wanted = pc.and_(wanted, pc.less(rows["timestamp"], moment))
            rows = rows.filter(wanted)
        if shards is not None:
            rows = rows.filter(pc.is_in(rows[SHARD_COLUMN], pa.array(sorted(shards), pa.int32())))
        return rows


def apply_readable(
    bronze_files: BronzeFiles,
    apply: Callable[[BronzeFiles], None],
    report: Callable[[DataFile, str], None],
) -> None:
    """Apply a batch; files that cannot be read are reported and left out.

    Spark passes on the text of an error only. It names the file, in our words or in Spark's.
    """
    while True:
        try:
            apply(bronze_files)
            return
        except Exception as error:
            text = str(error)
            damaged = [
                file
                for file in bronze_files.files
                if file.path.rpartition("/")[2] in text and any(each in text for each in _DAMAGED)
            ]
            if not damaged:
                raise
            for file in damaged:
                report(file, _damage(text))
            kept = tuple(file for file in bronze_files.files if file not in damaged)
            bronze_files = replace(bronze_files, files=kept)


_DAMAGED: Final = ("cannot be read", "FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER")


def _damage(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if any(each in line for each in _DAMAGED)]
    return lines[-1] if lines else text.partition("\n")[0]


def _row_groups(metadata: pq.FileMetaData, shards: Collection[int] | None) -> list[int]:
    """The row groups that may have rows of the shards."""
    every = range(metadata.num_row_groups)
    if shards is None:
        return list(every)
    index = metadata.schema.names.index(SHARD_COLUMN)
    found = []
    for group in every:
        statistics = metadata.row_group(group).column(index).statistics
        if statistics is None or any(statistics.min <= each <= statistics.max for each in shards):
            found.append(group)
    return found


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
