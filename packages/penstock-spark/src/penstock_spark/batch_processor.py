"""The function of `foreachBatch`: writes a batch to bronze and passes it to the flow.

It holds the flow's batch lock, so that generations of tables are never exchanged during a batch. It
is picklable: with Spark Connect it runs on the server.

Spark numbers batches from 0 in every checkpoint; a flow's batches have one numbering. So a
`FlowCheckpoint` records, beside Spark's files, which number its first batch has. A new checkpoint
over a lake with messages begins after them, in number and in offsets: losing a checkpoint loses and
duplicates nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock_spark import bronze
from penstock_spark.batch_spans import batch_span
from penstock_spark.bronze import BronzeFiles, apply_readable
from penstock_spark.directory import FlowDirectory, FlowLock
from penstock_spark.flow import FlowBatch, PipelineFlow
from penstock_spark.lake import Lake
from penstock_spark.lake.storage import write_atomically
from penstock_spark.progress import FlowProgress
from penstock_spark.replay import finish_adoption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


log = get_logger(__name__)


class StopRequested(Exception):
    """The runner is to stop and the batch has not begun."""


def never_stopped() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class BatchProcessor:
    flow: PipelineFlow
    directory: FlowDirectory
    checkpoint: FlowCheckpoint
    stopping: Callable[[], bool] = never_stopped
    writer: int | None = None  #: the number of the claim on bronze

    def __call__(self, arrived: DataFrame, spark_batch: int) -> None:
        number = self.checkpoint.number(spark_batch)
        with self.directory.locks.hold(FlowLock.BATCH):
            if self.stopping():
                raise StopRequested
            finish_adoption(self.flow, self.directory)
            began = time.perf_counter()
            lake = self.directory.lake
            batch = bronze.write_batch(lake, number, arrived, self.flow.key_words, self.writer)
            bronzed = time.perf_counter()
            if batch.rows:
                self._apply(batch, arrived.sparkSession)
                self._record(batch, bronzed - began, time.perf_counter() - bronzed)

    def _record(self, batch: bronze.BronzeBatch, bronzing: float, applying: float) -> None:
        progress = FlowProgress(self.directory.progress, self.flow.name)
        done = progress.record_batch(batch, bronzing, applying, time.time())
        log.info(
            "batch applied",
            flow=self.flow.name,
            batch=batch.batch,
            rows=batch.rows,
            seconds=round(done.seconds, 3),
            rate=round(done.rate),
            behind=None if done.behind is None else round(done.behind, 3),
        )

    def reapply_last_batch(self, spark: SparkSession) -> None:
        """Apply the last batch of bronze again after the checkpoint was lost.

        It may have been applied before; the flow's own mark tells.
        """
        with self.directory.locks.hold(FlowLock.BATCH):
            finish_adoption(self.flow, self.directory)
            lake, last = self.directory.lake, self.checkpoint.first - 1
            batch = bronze.find_batch(lake, last) if bronze.last_batch(lake) == last else None
            if batch is not None:
                self._apply(batch, spark)

    def _apply(self, batch: bronze.BronzeBatch, spark: SparkSession) -> None:
        lake = self.directory.lake
        table, shards = bronze.open_table(lake)

        def apply(files: BronzeFiles) -> None:
            rows = batch.rows if files.files == batch.files else files.count()
            source = ",".join(sorted(batch.ends)) or self.flow.name
            with batch_span(
                source,
                rows,
                lambda: files.read(["headers"]),
                **{"penstock.flow": self.flow.name, "penstock.batch": batch.batch},
            ):
                self.flow.apply(FlowBatch(batch.batch, spark, files, rows, lake))

        progress = FlowProgress(self.directory.progress, self.flow.name)
        files = BronzeFiles(table.location, batch.files, batch.batch, batch.batch, shards=shards)
        apply_readable(files, apply, progress.report_damage)


_CHECKPOINT_FILE: Final = "penstock.json"


@dataclass(frozen=True, slots=True)
class FlowCheckpoint:
    folder: Path
    first: int = 0  #: the flow's number of Spark's batch 0
    starting: Mapping[str, int] = field(default_factory=dict)  #: offsets, of streams in bronze

    def number(self, spark_batch: int) -> int:
        return self.first + spark_batch

    def committed(self, batch: int) -> bool:
        """Whether Spark has committed the batch."""
        return (self.folder / "commits" / str(batch - self.first)).exists()


def open_checkpoint(folder: Path, lake: Lake) -> FlowCheckpoint:
    """The existing checkpoint, or a new one that begins where bronze ends."""
    try:
        found = json.loads((folder / _CHECKPOINT_FILE).read_bytes())
        return FlowCheckpoint(folder, found["first"], found["starting"])
    except FileNotFoundError:
        pass
    if (folder / "metadata").exists():
        raise ConfigurationError(
            f"{folder} is the checkpoint of another query: choose another data directory, or move "
            "it away to continue where bronze ends"
        )
    batch = bronze.last_batch(lake)
    new = (
        FlowCheckpoint(folder)
        if batch is None
        else FlowCheckpoint(folder, batch + 1, bronze.stream_ends(lake))
    )
    if batch is not None:
        log.warning("checkpoint missing", batch=new.first, ends=new.starting)
    content = asdict(new)
    del content["folder"]
    write_atomically(folder / _CHECKPOINT_FILE, json.dumps(content))
    return new
