"""Many small files into few large ones, while batches are written and others read.

A query that answers within a second or two writes thousands of small files an hour. Compaction
rewrites a day's, of each stream where these lie apart, into files of about `TARGET_FILE_BYTES`, and
publishes them by one entry that stands for the batches they came from (`lake/log.py`); killed at
any point, it has happened or it has not. Files that have left a table stay for `GRACE_SECONDS`, for
readers that know them. Files from before streams lay apart are parted by it.

The last batch of a table is left alone: it is the one that may be written again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.core.logs import get_logger
from penstock.core.units import MiB
from penstock_spark.directory import FlowDirectory, FlowLock
from penstock_spark.flow import PeriodicTask
from penstock_spark.lake import DataFile, Lake, LakeTable
from penstock_spark.lake.files import STREAM_COLUMN
from penstock_spark.lake.log import CompactionEntry, TableLogEntry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


log = get_logger(__name__)

TARGET_FILE_BYTES: Final = 128 * MiB
#: How long a reader may take to finish with what it planned to read.
GRACE_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class CompactionResult:
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
    target: int = TARGET_FILE_BYTES,
    grace: float = GRACE_SECONDS,
) -> list[CompactionResult]:
    """Compact all tables of a flow, all days or some. The lock on its files is the caller's."""
    done = []
    for table in lake.tables():
        done += compact_table(spark, table, days, target)
        table.delete_unused(grace, time.time())
    for each in done:
        log.info("compacted", flow=lake.flow, table=each.table, day=each.day, rows=each.rows,
                 before=each.before, after=each.after)  # fmt: skip
    return done


def compact_table(
    spark: SparkSession, table: LakeTable, days: tuple[date, date] | None, target: int
) -> list[CompactionResult]:
    entries = list(table.log.entries())
    if not entries:
        return []
    through = entries[-1].batch - 1
    settled = [entry for entry in entries if entry.batch <= through]
    standing = table.log.compactions()
    done = []
    for day in sorted(
        {file.day for file in (*_uncompacted_files(settled), *_files_to_split(table, standing))}
    ):
        if days is not None and not days[0].isoformat() <= day <= days[1].isoformat():
            continue
        before = standing.get(day, CompactionEntry(day, -1, ()))
        fresh = [file for file in _uncompacted_files(settled, before.through) if file.day == day]
        kept = _large_files(table, before.files, target)
        merged = {*before.files, *fresh} - {*kept}
        if not fresh and not any(_has_many_streams(table, file) for file in merged):
            continue
        made = (_rewrite(spark, table, part) for part in _file_groups(merged, target))
        files = (*kept, *(file for part in made for file in part))
        here = {file.path for file in files}
        gone = [file for file in merged if file.path not in here]
        table.mark_unused(gone)
        standing[day] = CompactionEntry(day, through, files)
        table.log.publish(standing[day])
        if gone:
            rows, old = sum(file.rows for file in files), len(before.files) + len(fresh)
            done.append(CompactionResult(table.name, day, rows, old, len(files)))
    _remove_entries(table, settled, standing)
    return done


def _uncompacted_files(entries: Iterable[TableLogEntry], after: int = -1) -> Iterator[DataFile]:
    return (file for entry in entries if entry.batch > after for file in entry.files)


def _files_to_split(table: LakeTable, standing: dict[str, CompactionEntry]) -> Iterator[DataFile]:
    return (
        file for each in standing.values() for file in each.files if _has_many_streams(table, file)
    )


def _has_many_streams(table: LakeTable, file: DataFile) -> bool:
    """Whether it is from before the table's streams lay apart."""
    return table.by_stream and file.stream is None


def _large_files(table: LakeTable, files: Sequence[DataFile], target: int) -> list[DataFile]:
    """Those that are as they should be.

    What was made of the same batches is judged as one: if one stream's files were rewritten with
    later batches and another's not, there would be no place between batches to part them at.
    """
    sizes: Counter[tuple[int, int]] = Counter()
    for file in files:
        sizes[file.first, file.last] += file.bytes
    return [
        file
        for file in files
        if sizes[file.first, file.last] >= target // 2 and not _has_many_streams(table, file)
    ]


def _file_groups(files: Iterable[DataFile], target: int) -> Iterator[list[DataFile]]:
    """Oldest first, as many together as make about the size; no batch is in two of them."""
    part: list[DataFile] = []
    size, last = 0, -1
    for file in sorted(files, key=lambda file: (file.first, file.last, file.path)):
        if part and file.first > last and size + file.bytes > target:
            yield part
            part, size = [], 0
        part.append(file)
        size += file.bytes
        last = max(last, file.last)
    if part:
        yield part


def _rewrite(spark: SparkSession, table: LakeTable, files: Sequence[DataFile]) -> list[DataFile]:
    """One file of several, or one for each stream; all say that they are of the same batches."""
    first, last = min(file.first for file in files), max(file.last for file in files)
    made: list[DataFile] = []
    for stream, held, frame in _by_stream(spark, table, files):
        if len(held) == 1:
            made.append(replace(held[0], first=first, last=last))
            continue
        rows = frame().coalesce(1)
        order = [name for name in (STREAM_COLUMN, "offset") if name in rows.columns]
        if order:
            # Neighbours alike: smaller files, and readers of a range skip what they do not want.
            rows = rows.sortWithinPartitions(*order)
        made += table.write_files(rows, f"{first}-{last}", first, last, stream)
    wanted, found = (sum(file.rows for file in each) for each in (files, made))
    if found != wanted:
        raise AssertionError(f"{table.name}: {wanted} rows became {found}")
    return made


def _by_stream(
    spark: SparkSession, table: LakeTable, files: Sequence[DataFile]
) -> Iterator[tuple[str | None, Sequence[DataFile], Callable[[], DataFrame]]]:
    """Each stream, the files that have it alone, and its rows; one of none, where all lie together.

    With a file among them that has several streams, no stream has files alone.
    """
    from pyspark.sql.functions import col, lit

    if any(_has_many_streams(table, file) for file in files):
        every = table.read(spark, files=files)
        for row in every.select(STREAM_COLUMN).distinct().collect():
            name = row[STREAM_COLUMN]
            yield name, (), partial(every.where, col(STREAM_COLUMN) == lit(name))
        return
    for name in sorted({file.stream for file in files}, key=lambda name: name or ""):
        held = [file for file in files if file.stream == name]
        yield name, held, partial(table.read, spark, files=held)


def _remove_entries(
    table: LakeTable, entries: Sequence[TableLogEntry], standing: dict[str, CompactionEntry]
) -> None:
    """Remove entries that compactions stand for altogether."""
    for entry in entries:
        if all(
            file.day in standing and entry.batch <= standing[file.day].through
            for file in entry.files
        ):
            table.log.remove(entry.batch)


# Compaction now and then, beside a query that runs for long.


def compaction_task(directory: FlowDirectory, every: float) -> PeriodicTask:
    """Compact the flow's tables every so many seconds, unless somebody does, or replays."""

    def tidy(spark: SparkSession) -> None:
        with directory.locks.hold(FlowLock.FILES, wait=False):
            compact(spark, directory.lake)

    return PeriodicTask("compaction", tidy, every, every)
