"""What is done with a batch: kept as bronze, then given to the flow. Spark calls it.

Everything happens under the flow's claim on batches, so tables are never exchanged in the middle of
one. It is picklable: over Spark Connect it runs where the server is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.logs import get_logger
from penstock.pipeline import bronze
from penstock.pipeline.checkpoint import Checkpoint
from penstock.pipeline.claims import Claim
from penstock.pipeline.flow import Batch, Flow
from penstock.pipeline.place import Place
from penstock.pipeline.progress import Progress
from penstock.pipeline.replay import finish_adoption
from penstock.pipeline.stock import Stock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = get_logger(__name__)


class Halted(Exception):
    """The engine is to stop, and this batch has not begun."""


def go_on() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Applying:
    """`foreachBatch`'s function."""

    flow: Flow
    place: Place
    checkpoint: Checkpoint
    halted: Callable[[], bool] = go_on

    def __call__(self, arrived: DataFrame, spark_batch: int) -> None:
        number = self.checkpoint.number(spark_batch)
        with self.place.claims.hold(Claim.BATCH):
            if self.halted():
                raise Halted
            finish_adoption(self.flow, self.place)
            began = time.perf_counter()
            kept = bronze.keep(self.place.lake, number, arrived)
            bronzed = time.perf_counter()
            if kept.rows:
                self._apply(kept, arrived.sparkSession)
                self._record(kept, bronzed - began, time.perf_counter() - bronzed)

    def _record(self, kept: bronze.Kept, bronzing: float, applying: float) -> None:
        progress = Progress(self.place.progress, self.flow.name)
        done = progress.record(kept, bronzing, applying, time.time())
        log.info(
            "batch applied",
            flow=self.flow.name,
            batch=kept.batch,
            rows=kept.rows,
            seconds=round(done.seconds, 3),
            rate=round(done.rate),
            behind=None if done.behind is None else round(done.behind, 3),
        )

    def again(self, spark: SparkSession) -> None:
        """Apply bronze's last batch once more, for a checkpoint that was begun behind it.

        Whether it was applied before, the checkpoint that was lost knew; the flow's mark knows too.
        """
        with self.place.claims.hold(Claim.BATCH):
            finish_adoption(self.flow, self.place)
            kept = bronze.last(self.place.lake)
            if kept is not None and kept.batch == self.checkpoint.first - 1:
                self._apply(kept, spark)

    def _apply(self, kept: bronze.Kept, spark: SparkSession) -> None:
        lake = self.place.lake
        table = lake.table(bronze.MESSAGES)
        stock = Stock(table.folder, kept.files)
        self.flow.apply(Batch(kept.batch, stock.frame(spark, table), stock, kept.rows, lake))
