"""Many small files into few large ones, while batches are written and others read.

A query that answers within a second or two writes thousands of small files an hour. Compaction
rewrites a day's, of each stream where these lie apart, into files of about `TARGET`, and publishes
them by one entry that stands for the batches they came from (`lake/log.py`); killed at any point,
it has happened or it has not. Files that have left a table stay for `GRACE`, for readers that know
them. Files from before streams lay apart are parted by it.

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
from penstock.pipeline.lake import File, Lake, Table
from penstock.pipeline.lake.folders import STREAM
from penstock.pipeline.lake.log import Compaction, Entry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    for day in sorted({file.day for file in (*_fresh(settled), *_to_part(table, standing))}):
        if days is not None and not days[0].isoformat() <= day <= days[1].isoformat():
            continue
        before = standing.get(day, Compaction(day, -1, ()))
        fresh = [file for file in _fresh(settled, before.through) if file.day == day]
        kept = _large(table, before.files, target)
        merged = {*before.files, *fresh} - {*kept}
        if not fresh and not any(_mixed(table, file) for file in merged):
            continue
        made = (_rewrite(spark, table, part) for part in _parts(merged, target))
        files = (*kept, *(file for part in made for file in part))
        here = {file.path for file in files}
        gone = [file for file in merged if file.path not in here]
        table.retire(gone)
        standing[day] = Compaction(day, through, files)
        table.log.publish(standing[day])
        if gone:
            rows, old = sum(file.rows for file in files), len(before.files) + len(fresh)
            done.append(Compacted(table.name, day, rows, old, len(files)))
    _forget(table, settled, standing)
    return done


def _fresh(entries: Iterable[Entry], after: int = -1) -> Iterator[File]:
    return (file for entry in entries if entry.batch > after for file in entry.files)


def _to_part(table: Table, standing: dict[str, Compaction]) -> Iterator[File]:
    return (file for each in standing.values() for file in each.files if _mixed(table, file))


def _mixed(table: Table, file: File) -> bool:
    """Whether it is from before the table's streams lay apart."""
    return table.by_stream and file.stream is None


def _large(table: Table, files: Sequence[File], target: int) -> list[File]:
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
        if sizes[file.first, file.last] >= target // 2 and not _mixed(table, file)
    ]


def _parts(files: Iterable[File], target: int) -> Iterator[list[File]]:
    """Oldest first, as many together as make about the size; no batch is in two of them."""
    part: list[File] = []
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


def _rewrite(spark: SparkSession, table: Table, files: Sequence[File]) -> list[File]:
    """One file of several, or one for each stream; all say that they are of the same batches."""
    first, last = min(file.first for file in files), max(file.last for file in files)
    made: list[File] = []
    for stream, held, frame in _by_stream(spark, table, files):
        if len(held) == 1:
            made.append(replace(held[0], first=first, last=last))
            continue
        rows = frame().coalesce(1)
        order = [name for name in (STREAM, "offset") if name in rows.columns]
        if order:
            # Neighbours alike: smaller files, and readers of a range skip what they do not want.
            rows = rows.sortWithinPartitions(*order)
        made += table.lay(rows, f"{first}-{last}", first, last, stream)
    wanted, found = (sum(file.rows for file in each) for each in (files, made))
    if found != wanted:
        raise AssertionError(f"{table.name}: {wanted} rows became {found}")
    return made


def _by_stream(
    spark: SparkSession, table: Table, files: Sequence[File]
) -> Iterator[tuple[str | None, Sequence[File], Callable[[], DataFrame]]]:
    """Each stream, the files that have it alone, and its rows; one of none, where all lie together.

    With a file among them that has several streams, no stream has files alone.
    """
    from pyspark.sql.functions import col, lit

    if any(_mixed(table, file) for file in files):
        every = table.read(spark, files=files)
        for row in every.select(STREAM).distinct().collect():
            name = row[STREAM]
            yield name, (), partial(every.where, col(STREAM) == lit(name))
        return
    for name in sorted({file.stream for file in files}, key=lambda name: name or ""):
        held = [file for file in files if file.stream == name]
        yield name, held, partial(table.read, spark, files=held)


def _forget(table: Table, entries: Sequence[Entry], standing: dict[str, Compaction]) -> None:
    """Remove entries that compactions stand for altogether."""
    for entry in entries:
        if all(
            file.day in standing and entry.batch <= standing[file.day].through
            for file in entry.files
        ):
            table.log.remove(entry.batch)
