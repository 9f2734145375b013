"""Bronze: every message as it came, kept before anything is made of it.

What later steps see is read from bronze, not from the stream: a batch that is replayed is, to the
last byte, the one that was live, and a stream is read once however many tables are made of it.
Spark says which messages are a batch and gives them to workers, which write the files themselves.

Every batch's entry says how far each stream has been kept. So bronze alone tells where to go on,
should the checkpoint be lost (`checkpoint.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.connector.columns import ARROW_TYPES
from penstock.pipeline.connector.packed import PACKED, unpack
from penstock.pipeline.lake import Draft, Entry, File, Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamReader

MESSAGES: Final = "bronze.messages"
#: The connector's columns, the UTC day of the timestamp, and the batch.
SCHEMA: Final = pa.schema([*ARROW_TYPES.items(), ("day", pa.date32()), ("batch", pa.int32())])
#: Microseconds, at the end of the year 9999.
_END_OF_TIME: Final = 253_402_300_800_000_000
#: The time of a batch, which Spark keeps in its checkpoint: the same at every try.
_NOW: Final = "now"


@dataclass(frozen=True, slots=True)
class Kept:
    """A batch as bronze has it."""

    batch: int
    rows: int
    files: tuple[File, ...]
    ends: Mapping[str, int]  #: the next offset of every stream, as of this batch
    newest: datetime | None  #: when its last message came

    @classmethod
    def of(cls, entry: Entry) -> Kept:
        rows = sum(file.rows for file in entry.files)
        newest = entry.facts.get("newest_ms")
        moment = None if newest is None else datetime.fromtimestamp(newest / 1000, UTC)
        return cls(entry.batch, rows, entry.files, entry.facts.get("ends", {}), moment)


def arriving(reader: DataStreamReader) -> DataFrame:
    """The streams as the engine reads them: many messages a row, and the time of the batch."""
    from pyspark.sql.functions import current_timestamp

    return reader.schema(f"{PACKED} BINARY").load().withColumn(_NOW, current_timestamp())


def keep(lake: Lake, batch: int, arrived: DataFrame) -> Kept:
    """Write a batch of what arrives; a job of Spark's."""
    table = lake.table(MESSAGES)
    # An earlier try of this batch knows as well as the batch before, whose entry may be compacted.
    known = last(lake, batch)
    seen = Seen(dict(known.ends) if known is not None else {})
    files: list[File] = []
    work = _Keeping(table.draft(batch), batch)
    for row in arrived.mapInArrow(work, "told STRING").collect():
        told = json.loads(row.told)
        files += (File(**file) for file in told["files"])
        seen.join(told["ends"], told["newest_ms"])
    facts = {"ends": seen.ends, "newest_ms": seen.newest_ms}
    return Kept.of(table.enter(batch, sorted(files, key=lambda file: file.path), SCHEMA, facts))


def last(lake: Lake, up_to: int | None = None) -> Kept | None:
    """The last batch that is kept, or that one or the last before it.

    The very last has its entry whatever is compacted.
    """
    log = lake.table(MESSAGES).log
    for batch in reversed(log.batches()):
        if (up_to is None or batch <= up_to) and (entry := log.entry(batch)) is not None:
            return Kept.of(entry)
    return None


@dataclass(slots=True)
class Seen:
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
class _Keeping:
    """What a task does with what arrives: files, and one row that tells of them."""

    draft: Draft
    batch: int

    def __call__(self, arrived: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writing = self.draft.begin(SCHEMA)
        seen = Seen()
        for rows in arrived:
            for now, value in zip(rows[_NOW], rows[PACKED], strict=True):
                for messages in unpack(value):
                    if len(messages):
                        table = stamped(messages, now, self.batch)
                        writing.add(table)
                        seen.add(table)
        told: dict[str, Any] = {"files": [asdict(file) for file in writing.close()]}
        told |= {"ends": seen.ends, "newest_ms": seen.newest_ms}
        yield pa.RecordBatch.from_pydict({"told": [json.dumps(told)]})


def stamped(messages: pa.RecordBatch, now: pa.TimestampScalar, batch: int) -> pa.Table:
    """Messages with a time and a day each.

    A broker that does not tell when a message came, or hands on what a publisher made up and no
    calendar has, leaves the time of the batch.
    """
    times = messages["timestamp"]
    least, most = pc.min_max(times.cast(pa.int64())).values()
    if times.null_count or least.as_py() < 0 or most.as_py() >= _END_OF_TIME:
        moments = times.cast(pa.int64())
        there = pc.and_(pc.greater_equal(moments, 0), pc.less(moments, _END_OF_TIME))
        times = pc.if_else(there.fill_null(False), times, now.cast(times.type))
    columns = {name: messages[name] for name in messages.schema.names}
    columns |= {
        "timestamp": times,
        "day": times.cast(pa.date32()),
        "batch": pa.array(np.full(len(messages), batch, np.int32)),
    }
    return pa.table(columns, SCHEMA)
