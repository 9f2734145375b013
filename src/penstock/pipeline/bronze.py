"""Bronze: every message as it came, kept before anything is made of it.

What later steps see is read from bronze, not from the stream: a batch that is replayed is, to the
last byte, the one that was live, and a stream is read once however many tables are made of it.

Every batch's entry says how far each stream has been kept. So bronze alone tells where to go on,
should the checkpoint be lost (`checkpoint.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.lake import Entry, File, Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MESSAGES: Final = "bronze.messages"


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


def stamped(messages: DataFrame) -> DataFrame:
    """The connector's rows with a time and a day each.

    A broker that does not tell when a message came leaves the time of the batch, which Spark keeps
    in its checkpoint: the same at every try.
    """
    from pyspark.sql.functions import coalesce, col, current_timestamp, to_date

    return messages.withColumn(
        "timestamp", coalesce(col("timestamp"), current_timestamp())
    ).withColumn("day", to_date("timestamp"))


def keep(lake: Lake, batch: int, messages: DataFrame) -> Kept:
    """Write a batch of stamped messages; a job of Spark's."""
    from pyspark.sql.functions import lit

    table = lake.table(MESSAGES)
    # An earlier try of this batch knows as well as the batch before, whose entry may be compacted.
    known = last(lake, batch)
    ends = dict(known.ends) if known is not None else {}

    def facts(files: Sequence[Path]) -> dict[str, Any]:
        newest = None
        for path in files:
            found, latest = _seen(path)
            newest = latest if newest is None else max(newest, latest)
            for stream, end in found.items():
                ends[stream] = max(end, ends.get(stream, 0))
        return {"ends": ends, "newest_ms": newest}

    return Kept.of(table.write(batch, messages.withColumn("batch", lit(batch)), facts))


def last(lake: Lake, up_to: int | None = None) -> Kept | None:
    """The last batch that is kept, or that one or the last before it.

    The very last has its entry whatever is compacted.
    """
    log = lake.table(MESSAGES).log
    for batch in reversed(log.batches()):
        if (up_to is None or batch <= up_to) and (entry := log.entry(batch)) is not None:
            return Kept.of(entry)
    return None


def _seen(path: Path) -> tuple[dict[str, int], int]:
    """Where each stream ends in a file, and when its last message came."""
    found = pq.read_table(path, columns=["stream", "offset", "timestamp"])
    ends = found.group_by("stream").aggregate([("offset", "max")]).to_pylist()
    newest = pc.max(found["timestamp"]).as_py()
    # Spark keeps an instant; its files say so in one of several ways.
    moment = newest if newest.tzinfo is not None else newest.replace(tzinfo=UTC)
    return {row["stream"]: row["offset_max"] + 1 for row in ends}, int(moment.timestamp() * 1000)
