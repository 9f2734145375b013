"""Replay: rebuilds silver and gold from bronze, while batches are applied.

The next generation is built from the files of bronze in order, in large batches. When it is
complete, the batch lock is acquired, new messages are applied too, and the generations are
exchanged, in the lake and in the flow's tables. Live batches wait only for this last step.

A replay that is killed has changed nothing, or, killed in the last step, is completed by the next
holder of the batch lock (`finish_adoption`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from penstock.core.errors import NotFound
from penstock.core.logs import get_logger
from penstock_spark.bronze import MESSAGES_TABLE, BronzeFiles, apply_readable, open_table
from penstock_spark.directory import FlowDirectory, FlowLock
from penstock_spark.flow import FlowBatch, PipelineFlow
from penstock_spark.lake import DataFile, Lake
from penstock_spark.lake.lake import BATCH_COLUMN
from penstock_spark.progress import FlowProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger(__name__)

#: The approximate size of a batch, unless one file has more.
BATCH_ROWS: Final = 1_000_000
#: The number of rounds before the last one, for which live batches wait.
MAX_CATCH_UP_ROUNDS: Final = 8
#: Live batches can wait for fewer rows than this.
FEW_ROWS: Final = 20_000


@dataclass(frozen=True, slots=True)
class ReplayResult:
    generation: int
    first: int  #: the first batch
    last: int  #: the last batch
    rows: int
    adopted: bool


@dataclass(frozen=True, slots=True)
class ReplayGroup:
    """Files that are replayed as one batch; no live batch is in two groups."""

    files: tuple[DataFile, ...]
    first: int
    last: int
    rows: int


def finish_adoption(flow: PipelineFlow, directory: FlowDirectory) -> None:
    """Complete an exchange of generations that was begun. The caller holds the batch lock."""
    found = directory.pointer.read()
    if found.next is not None:
        flow.adopt(found.next)
        directory.pointer.write(replace(found, current=found.next, next=None, since=time.time()))
        log.info("generation adopted", flow=flow.name, generation=found.next)


def group_files(files: Sequence[DataFile], rows: int) -> Iterator[ReplayGroup]:
    """Files, oldest first, in groups of about that many rows.

    Files with common batches (at midnight, or at the end of a compacted file) stay together.
    """
    group: list[DataFile] = []
    begin = last = size = 0
    for file in sorted(files, key=lambda file: (*batches_of(file), file.path)):
        first, end = batches_of(file)
        if group and first > last and size + file.rows > rows:
            yield ReplayGroup(tuple(group), begin, last, size)
            group, size = [], 0
        if not group:
            begin, last = first, end
        group.append(file)
        last = max(last, end)
        size += file.rows
    if group:
        yield ReplayGroup(tuple(group), begin, last, size)


def batches_of(file: DataFile) -> tuple[int, int]:
    """The first and the last batch in a file."""
    return file.lower[BATCH_COLUMN], file.upper[BATCH_COLUMN]


class FlowReplay:
    def __init__(
        self,
        spark: SparkSession,
        flow: PipelineFlow,
        directory: FlowDirectory,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        self._spark = spark
        self._flow = flow
        self._directory = directory
        self._batch_rows = batch_rows

    def run(self, since: datetime | None = None, until: datetime | None = None) -> ReplayResult:
        """Rebuild from the messages since a time, or somewhat earlier; by default from all.

        With `until`, later messages are omitted, and the result is not adopted but kept until the
        next replay, for inspection.
        """
        if until is None:
            self._flow.check_adoption()
        with self._directory.locks.hold(FlowLock.FILES):
            generation = self._new_generation()
            lake = self._directory.lake
            first = self._begin(lake, generation, since)
            rebuilt = lake.branch(self._spark, generation, first)
            FlowProgress(self._directory.progress, self._flow.name).clear_damage()
            log.info("replay started", flow=self._flow.name, generation=generation, batch=first)
            rebuild = _RebuiltGeneration(
                self._spark, self._flow, self._directory, rebuilt, first, self._batch_rows, until
            )
            for _ in range(MAX_CATCH_UP_ROUNDS):
                if rebuild.catch_up() < FEW_ROWS:
                    break
            if until is None:
                self._adopt(rebuild)
            log.info(
                "replay finished", flow=self._flow.name, generation=generation, rows=rebuild.rows
            )
            return ReplayResult(generation, first, rebuild.next - 1, rebuild.rows, until is None)

    def _new_generation(self) -> int:
        """A new generation number; remains of other generations are deleted."""
        with self._directory.locks.hold(FlowLock.BATCH):
            finish_adoption(self._flow, self._directory)
            found = self._directory.pointer.read()
            lake = self._directory.lake
            for unused in {*lake.generations(), found.newest} - {found.current}:
                self._flow.discard(unused)
                lake.drop(unused)
            number = found.newest + 1
            self._directory.pointer.write(replace(found, newest=number))
            return number

    def _begin(self, lake: Lake, generation: int, since: datetime | None) -> int:
        files = _messages(lake)
        if not files:
            raise NotFound(f"flow {self._flow.name!r} has no messages in bronze to replay")
        day = "" if since is None else since.astimezone(UTC).date().isoformat()
        wanted = min(
            (batches_of(file)[0] for file in files if (file.partition["day"] or "") >= day),
            default=max(batches_of(file)[1] for file in files) + 1,
        )
        # Rows of a rebuild have the number of the last batch that was replayed with theirs.
        if wanted <= self._directory.pointer.read().rebuilt:
            wanted = 0
        while (answer := self._flow.begin_rebuild(generation, wanted)) != wanted:
            wanted = 0 if answer <= self._directory.pointer.read().rebuilt else answer
        return wanted

    def _adopt(self, rebuild: _RebuiltGeneration) -> None:
        with self._directory.locks.hold(FlowLock.BATCH):
            rebuild.catch_up()
            pointer = self._directory.pointer
            found = replace(pointer.read(), next=rebuild.lake.generation, rebuilt=rebuild.next - 1)
            pointer.write(found)
            finish_adoption(self._flow, self._directory)


class _RebuiltGeneration:
    def __init__(
        self,
        spark: SparkSession,
        flow: PipelineFlow,
        directory: FlowDirectory,
        lake: Lake,
        first: int,
        batch_rows: int,
        until: datetime | None,
    ) -> None:
        self.lake = lake
        self.next = first  #: the first batch that it lacks
        self.rows = 0
        self._spark = spark
        self._flow = flow
        self._report = FlowProgress(directory.progress, flow.name).report_damage
        self._batch_rows = batch_rows
        self._until = until

    def catch_up(self) -> int:
        """Apply further messages of bronze; returns their number."""
        before = self.rows
        files = [file for file in _messages(self.lake) if batches_of(file)[1] >= self.next]
        if self._until is not None:
            end = self._until.astimezone(UTC).date().isoformat()
            files = [file for file in files if (file.partition["day"] or "") <= end]
        for group in group_files(files, self._batch_rows):
            self._apply(group)
        return self.rows - before

    def _apply(self, group: ReplayGroup) -> None:
        table, shards = open_table(self.lake)
        rows = 0

        def apply(files: BronzeFiles) -> None:
            nonlocal rows
            rows = files.count()
            self._flow.apply(
                FlowBatch(group.last, self._spark, files, rows, self.lake, is_rebuild=True)
            )

        files = BronzeFiles(table.location, group.files, self.next, None, self._until, shards)
        apply_readable(files, apply, self._report)
        self.rows += rows
        self.next = group.last + 1
        log.info("batches replayed", flow=self._flow.name, batch=group.last, rows=rows)


def _messages(lake: Lake) -> list[DataFile]:
    table = lake.table(MESSAGES_TABLE)
    return table.files() if table.exists() else []
