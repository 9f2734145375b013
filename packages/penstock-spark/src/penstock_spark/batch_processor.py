"""What is done with a batch: kept as bronze, then given to the flow. Spark calls it.

Everything happens under the flow's lock on batches, so tables are never exchanged in the middle of
one. It is picklable: over Spark Connect it runs where the server is.
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
from penstock_spark.bronze import BronzeFiles
from penstock_spark.directory import FlowDirectory, FlowLock
from penstock_spark.flow import FlowBatch, PipelineFlow
from penstock_spark.lake import Lake
from penstock_spark.lake.log import write_atomically
from penstock_spark.progress import FlowProgress
from penstock_spark.replay import finish_adoption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


log = get_logger(__name__)


class StopRequested(Exception):
    """The engine is to stop, and this batch has not begun."""


def never_stopped() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class BatchProcessor:
    """`foreachBatch`'s function."""

    flow: PipelineFlow
    directory: FlowDirectory
    checkpoint: FlowCheckpoint
    halted: Callable[[], bool] = never_stopped

    def __call__(self, arrived: DataFrame, spark_batch: int) -> None:
        number = self.checkpoint.number(spark_batch)
        with self.directory.locks.hold(FlowLock.BATCH):
            if self.halted():
                raise StopRequested
            finish_adoption(self.flow, self.directory)
            began = time.perf_counter()
            kept = bronze.write_batch(self.directory.lake, number, arrived)
            bronzed = time.perf_counter()
            if kept.rows:
                self._apply(kept, arrived.sparkSession)
                self._record(kept, bronzed - began, time.perf_counter() - bronzed)

    def _record(self, kept: bronze.BronzeBatch, bronzing: float, applying: float) -> None:
        progress = FlowProgress(self.directory.progress, self.flow.name)
        done = progress.record_batch(kept, bronzing, applying, time.time())
        log.info(
            "batch applied",
            flow=self.flow.name,
            batch=kept.batch,
            rows=kept.rows,
            seconds=round(done.seconds, 3),
            rate=round(done.rate),
            behind=None if done.behind is None else round(done.behind, 3),
        )

    def reapply_last_batch(self, spark: SparkSession) -> None:
        """Apply bronze's last batch once more, for a checkpoint that was begun behind it.

        Whether it was applied before, the checkpoint that was lost knew; the flow's mark knows too.
        """
        with self.directory.locks.hold(FlowLock.BATCH):
            finish_adoption(self.flow, self.directory)
            kept = bronze.last_batch(self.directory.lake)
            if kept is not None and kept.batch == self.checkpoint.first - 1:
                self._apply(kept, spark)

    def _apply(self, kept: bronze.BronzeBatch, spark: SparkSession) -> None:
        lake = self.directory.lake
        table = lake.table(bronze.MESSAGES_TABLE)
        bronze_files = BronzeFiles(table.folder, kept.files)
        self.flow.apply(
            FlowBatch(kept.batch, bronze_files.frame(spark, table), bronze_files, kept.rows, lake)
        )


# Where a flow's query goes on: Spark's checkpoint, or, without one, bronze.
#
# Spark numbers batches from 0 in every checkpoint. A flow's batches have one numbering for good, so
# a checkpoint remembers, beside Spark's files, which of the flow's numbers its first batch has. A
# new one over a lake that holds messages already begins behind them, in number and in offsets:
# losing a checkpoint loses nothing and doubles nothing.

_CHECKPOINT_FILE: Final = "penstock.json"


@dataclass(frozen=True, slots=True)
class FlowCheckpoint:
    """A checkpoint's folder, and what it was begun with."""

    folder: Path
    first: int = 0  #: the flow's number of Spark's batch 0
    #: Where streams were to begin, as far as bronze knows them.
    starting: Mapping[str, int] = field(default_factory=dict)

    def number(self, spark_batch: int) -> int:
        return self.first + spark_batch

    def committed(self, batch: int) -> bool:
        """Whether Spark knows that the batch is done."""
        return (self.folder / "commits" / str(batch - self.first)).exists()


def open_checkpoint(folder: Path, lake: Lake) -> FlowCheckpoint:
    """The checkpoint there, or a new one that begins where bronze ends."""
    try:
        found = json.loads((folder / _CHECKPOINT_FILE).read_bytes())
        return FlowCheckpoint(folder, found["first"], found["starting"])
    except FileNotFoundError:
        pass
    if (folder / "metadata").exists():
        raise ConfigurationError(
            f"{folder} is the checkpoint of another query: choose another data directory, or move "
            "it away to go on where bronze ends"
        )
    kept = bronze.last_batch(lake)
    new = (
        FlowCheckpoint(folder)
        if kept is None
        else FlowCheckpoint(folder, kept.batch + 1, kept.ends)
    )
    if kept is not None:
        log.warning("no checkpoint: going on where bronze ends", batch=new.first, ends=new.starting)
    content = asdict(new)
    del content["folder"]
    write_atomically(folder / _CHECKPOINT_FILE, json.dumps(content))
    return new
