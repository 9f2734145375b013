"""Many small files into few large ones, while batches are written and others read.

A query that answers within a second or two writes thousands of small files an hour. Compaction
rewrites a day's into files of about `TARGET`, and publishes them by one entry that stands for the
batches they came from (`lake/log.py`); killed at any point, it has happened or it has not. Files
that have left a table stay for `GRACE`, for readers that know them.

The last batch of a table is left alone: it is the one that may be written again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final

from penstock.core.logs import get_logger
from penstock.core.units import MiB
from penstock.pipeline.lake import File, Lake, Table
from penstock.pipeline.lake.log import Compaction, Entry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger(__name__)

TARGET: Final = 128 * MiB
#: How long a reader may take to finish with what it planned to read.
GRACE: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Compacted:
    """What became of a day of a table."""

    table: str
    day: str
    rows: int
    before: int  #: files
    after: int


def compact(
    spark: SparkSession,
    lake: Lake,
    days: tuple[date, date] | None = None,
    *,
    target: int = TARGET,
    grace: float = GRACE,
) -> list[Compacted]:
    """Compact all tables of a flow, all days or some. The claim on its files is the caller's."""
    done = []
    for table in lake.tables():
        done += compact_table(spark, table, days, target)
        table.sweep(grace, time.time())
    for each in done:
        log.info("compacted", flow=lake.flow, table=each.table, day=each.day, rows=each.rows,
                 before=each.before, after=each.after)  # fmt: skip
    return done


def compact_table(
    spark: SparkSession, table: Table, days: tuple[date, date] | None, target: int
) -> list[Compacted]:
    entries = list(table.log.entries())
    if not entries:
        return []
    through = entries[-1].batch - 1
    settled = [entry for entry in entries if entry.batch <= through]
    standing = table.log.compactions()
    done = []
    for day in sorted({file.day for entry in settled for file in entry.files}):
        if days is not None and not days[0].isoformat() <= day <= days[1].isoformat():
            continue
        before = standing.get(day, Compaction(day, -1, ()))
        fresh = [
            file
            for entry in settled
            for file in entry.files
            if file.day == day and entry.batch > before.through
        ]
        # Large ones are as they should be.
        kept = [file for file in before.files if file.bytes >= target // 2]
        merged = sorted(
            {*before.files, *fresh} - {*kept}, key=lambda file: (file.first, file.last, file.path)
        )
        if len(merged) < 2 and not fresh:
            continue
        files = (*kept, *(_rewrite(spark, table, part) for part in _parts(merged, target)))
        table.retire(merged)
        standing[day] = Compaction(day, through, files)
        table.log.publish(standing[day])
        if len(merged) > 1:
            rows, old = sum(file.rows for file in files), len(before.files) + len(fresh)
            done.append(Compacted(table.name, day, rows, old, len(files)))
    _forget(table, settled, standing)
    return done


def _rewrite(spark: SparkSession, table: Table, files: Sequence[File]) -> File:
    """One file of several."""
    first, last = min(file.first for file in files), max(file.last for file in files)
    if len(files) == 1:
        return files[0]
    frame = table.read(spark, files=files).coalesce(1)
    order = [name for name in ("stream", "offset") if name in frame.columns]
    if order:
        # Neighbours alike: smaller files, and readers of a range skip what they do not want.
        frame = frame.sortWithinPartitions(*order)
    (made,) = table.lay(frame, f"{first}-{last}", first, last)
    wanted = sum(file.rows for file in files)
    if made.rows != wanted:
        raise AssertionError(f"{table.name}: {wanted} rows became {made.rows}")
    return made


def _parts(files: Sequence[File], target: int) -> list[list[File]]:
    parts: list[list[File]] = []
    size = 0
    for file in files:
        if not parts or size + file.bytes > target:
            parts.append([])
            size = 0
        parts[-1].append(file)
        size += file.bytes
    return parts


def _forget(table: Table, entries: Sequence[Entry], standing: dict[str, Compaction]) -> None:
    """Remove entries that compactions stand for altogether."""
    for entry in entries:
        if all(
            file.day in standing and entry.batch <= standing[file.day].through
            for file in entry.files
        ):
            table.log.remove(entry.batch)
