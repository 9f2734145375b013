"""Compaction: merges the small files of batches into large ones, while others write and read.

A query with a latency of seconds writes thousands of small files per hour. `LakeTable.optimize`
merges those of a day in order of batches, and one commit replaces them: a killed compaction has
either happened or not. `LakeTable.vacuum` deletes what left the tables an hour ago, and what killed
writers left; readers that have planned to read it are done by then. So are those of a generation
that a replay has replaced, which is deleted, too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from penstock.core.logs import get_logger
from penstock_spark.bronze import MESSAGES_TABLE, SHARD_COLUMN
from penstock_spark.directory import FlowDirectory, FlowLock
from penstock_spark.flow import PeriodicTask
from penstock_spark.lake import GenerationPointer, Lake
from penstock_spark.lake.delta import GRACE, TARGET_FILE_BYTES
from penstock_spark.lake.lake import DAY_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CompactionResult:
    table: str
    rows: int
    before: int  #: files
    after: int


def compact(
    lake: Lake,
    days: tuple[date, date] | None = None,
    *,
    target: int = TARGET_FILE_BYTES,
    grace: timedelta = GRACE,
) -> list[CompactionResult]:
    """Compact the tables of a flow. The caller holds the files lock."""
    done = []
    between: dict[str, Any] = {DAY_COLUMN: days} if days else {}
    for table in lake.tables():
        before = table.size()
        cluster_by = SHARD_COLUMN if table.name == MESSAGES_TABLE else None
        merged = table.optimize(target, cluster_by, **between)
        table.vacuum(grace)
        if merged.files_removed:
            after = before.files - merged.files_removed + merged.files_added
            done.append(CompactionResult(table.name, before.rows, before.files, after))
            log.info("compacted", flow=lake.flow, table=table.name, rows=before.rows,
                     before=before.files, after=after)  # fmt: skip
    found = GenerationPointer(lake.root, lake.flow).read()
    if time.time() - found.since >= grace.total_seconds():
        for unused in lake.generations() - {found.current, found.next, found.newest}:
            lake.drop(unused)
    return done


def compaction_task(directory: FlowDirectory, every: float) -> PeriodicTask:
    """Compact the flow's tables periodically, unless a compaction or replay is running."""

    def work(spark: SparkSession) -> None:
        with directory.locks.hold(FlowLock.FILES, wait=False):
            compact(directory.lake)

    return PeriodicTask("compaction", work, every, every)
