"""Compaction: merges the small files of batches into large ones, while others write and read.

A query with a latency of seconds writes thousands of small files per hour. Compaction rewrites
those of a day (in bronze, of a stream's day) into files of about `TARGET_FILE_BYTES` and publishes
them by one log entry that replaces the batches' entries (`lake/log.py`): a killed compaction has
either happened or not. Replaced files stay for `GRACE_SECONDS`, for readers that have planned
to read them. Files with several streams are split. The last batch of a table is left alone, because
it may be written again.
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
#: How long a reader may take after it has planned its files.
GRACE_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class CompactionResult:
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
    """Compact the tables of a flow. The caller holds the files lock."""
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
    compacted = table.log.compactions()
    done = []
    for day in sorted(
        {file.day for file in (*_uncompacted_files(settled), *_files_to_split(table, compacted))}
    ):
        if days is not None and not days[0].isoformat() <= day <= days[1].isoformat():
            continue
        before = compacted.get(day, CompactionEntry(day, -1, ()))
        fresh = [file for file in _uncompacted_files(settled, before.through) if file.day == day]
        large = _large_files(table, before.files, target)
        merged = {*before.files, *fresh} - {*large}
        if not fresh and not any(_has_many_streams(table, file) for file in merged):
            continue
        made = (_rewrite(spark, table, part) for part in _file_groups(merged, target))
        files = (*large, *(file for part in made for file in part))
        paths = {file.path for file in files}
        gone = [file for file in merged if file.path not in paths]
        table.mark_unused(gone)
        compacted[day] = CompactionEntry(day, through, files)
        table.log.publish(compacted[day])
        if gone:
            rows, old = sum(file.rows for file in files), len(before.files) + len(fresh)
            done.append(CompactionResult(table.name, day, rows, old, len(files)))
    _remove_entries(table, settled, compacted)
    return done


def _uncompacted_files(entries: Iterable[TableLogEntry], after: int = -1) -> Iterator[DataFile]:
    return (file for entry in entries if entry.batch > after for file in entry.files)


def _files_to_split(table: LakeTable, compacted: dict[str, CompactionEntry]) -> Iterator[DataFile]:
    return (
        file for each in compacted.values() for file in each.files if _has_many_streams(table, file)
    )


def _has_many_streams(table: LakeTable, file: DataFile) -> bool:
    """Whether the file was written before the table had files per stream."""
    return table.by_stream and file.stream is None


def _large_files(table: LakeTable, files: Sequence[DataFile], target: int) -> list[DataFile]:
    """Files that need no rewriting.

    Files of the same batches are judged together: if only some of them were merged with later
    batches, there would be no boundary between batches.
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
    """Groups of about the target size, oldest first; no batch is in two groups."""
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
    """Merge files into one, or one per stream, with a common range of batches."""
    first, last = min(file.first for file in files), max(file.last for file in files)
    made: list[DataFile] = []
    for stream, held, frame in _by_stream(spark, table, files):
        if len(held) == 1:
            made.append(replace(held[0], first=first, last=last))
            continue
        rows = frame().coalesce(1)
        order = [name for name in (STREAM_COLUMN, "offset") if name in rows.columns]
        if order:
            # Sorted files are smaller, and readers of a range skip row groups.
            rows = rows.sortWithinPartitions(*order)
        made += table.write_files(rows, f"{first}-{last}", first, last, stream)
    wanted, found = (sum(file.rows for file in each) for each in (files, made))
    if found != wanted:
        raise AssertionError(f"{table.name}: {wanted} rows became {found}")
    return made


def _by_stream(
    spark: SparkSession, table: LakeTable, files: Sequence[DataFile]
) -> Iterator[tuple[str | None, Sequence[DataFile], Callable[[], DataFrame]]]:
    """For each stream: its files and its rows. None is the stream of a table without streams.

    If a file has several streams, no files are assigned to a stream.
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
    table: LakeTable, entries: Sequence[TableLogEntry], compacted: dict[str, CompactionEntry]
) -> None:
    """Remove entries whose files are all replaced by compactions."""
    for entry in entries:
        if all(
            file.day in compacted and entry.batch <= compacted[file.day].through
            for file in entry.files
        ):
            table.log.remove(entry.batch)


def compaction_task(directory: FlowDirectory, every: float) -> PeriodicTask:
    """Compact the flow's tables periodically, unless a compaction or replay is running."""

    def work(spark: SparkSession) -> None:
        with directory.locks.hold(FlowLock.FILES, wait=False):
            compact(spark, directory.lake)

    return PeriodicTask("compaction", work, every, every)
