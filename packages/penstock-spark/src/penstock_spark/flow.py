"""The interface of a flow: how an application's messages become its tables.

The runner reads streams, writes bronze and cuts batches; a flow processes a batch. Spark's
checkpoint and this contract give exactly-once results:

* A batch has the same id and the same messages in every attempt. It is attempted again only if the
  attempt before failed, and the next batch begins after it has succeeded.
* `apply` writes silver through `batch.lake`, where a later attempt replaces an earlier one, and
  gold in one transaction with a mark of the batch's id. A batch whose mark exists is skipped: after
  a crash between the commits of gold and of Spark it is attempted again.
* Ids increase and may have gaps. The result does not depend on how messages are divided into
  batches: a replay uses larger ones.

A rebuild creates a second set of tables, a *generation*, from bronze, while batches are applied to
the first. The runner calls `begin_rebuild`, then `apply` with batches that are `is_rebuild`, then
`adopt`, during which no other batch is applied.

Periodic tasks (compaction, a nightly forecast) each have a thread and a scheduler pool of Spark, so
that a batch need not wait for them. A task that fails is logged and retried later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from penstock.core.errors import ResourceLocked
from penstock.core.logs import get_logger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock_spark.bronze import BronzeFiles
    from penstock_spark.lake import Lake, StorageLocation
    from penstock_spark.stream_declaration import StreamDeclaration


#: Messages of a batch. A batch has what has arrived, so only a backlog makes large ones; the larger
#: they are, the less the driver costs.
LARGEST_BATCH: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class FlowBatch:
    id: int
    spark: SparkSession
    bronze_files: BronzeFiles  #: its messages, for workers that read files or their shards
    rows: int
    lake: Lake  #: of the generation of this batch
    is_rebuild: bool = False  #: of a rebuild: the current tables stay unchanged

    @property
    def messages(self) -> DataFrame:
        """The connector's columns, `timestamp` never null, with `day` (UTC, of the timestamp),
        `batch` and `shard`.

        Read from files, so that several actions on it are cheap. Spark lists the files each time
        that this is called.
        """
        from penstock_spark.bronze import MESSAGES_TABLE

        return self.bronze_files.frame(self.spark, self.lake.table(MESSAGES_TABLE))

    @property
    def generation(self) -> int:
        return self.lake.generation


class PipelineFlow(Protocol):
    """With Spark Connect it has to be picklable."""

    @property
    def name(self) -> str:
        """Up to 20 of a-z, 0-9, - and _; part of paths and marks."""

    @property
    def streams(self) -> str:
        """The value of the connector's option `streams`."""

    @property
    def sources(self) -> Sequence[StreamDeclaration]:
        """Streams to declare if none of `streams` exists."""

    @property
    def key_words(self) -> int | None:
        """The first words of the routing key that are the message key; None: all of them.

        Messages with the same key are in the same shard.
        """

    @property
    def periodic_tasks(self) -> Sequence[PeriodicTask]:
        """Work beside the batches, while the flow runs."""

    def apply(self, batch: FlowBatch) -> None:
        """Write silver and gold of a batch; returns when both are durable."""

    def begin_rebuild(self, generation: int, since: int) -> int:
        """Create a generation of gold without batch `since` and later ones.

        Returns the first batch to apply: `since` if the tables can be restored to the state before
        it, otherwise an earlier one; 0 is always valid. Remains of an unfinished rebuild are
        removed.
        """

    def check_adoption(self) -> None:
        """Raise if `adopt` cannot succeed. Called before a rebuild, which may take hours."""

    def adopt(self, generation: int) -> None:
        """Make the generation current, with its marks, in one transaction.

        Called again after a crash; then it does nothing if it was done.
        """

    def discard(self, generation: int) -> None:
        """Delete a generation that is not adopted, if it exists."""


@dataclass(frozen=True, slots=True)
class FlowContext:
    data: Path
    broker: str  #: its URL
    database: str | None = None  #: its URL; None: the embedded one in `data`
    cache: str | None = None  #: its URL; None: in process
    lake_location: StorageLocation | None = None  #: None: in `data`

    @property
    def lake(self) -> StorageLocation:
        from penstock_spark.lake import StorageLocation

        return self.lake_location or StorageLocation.parse(self.data / "lake")


#: Opens a flow, `module:function`.
FlowFactory = Callable[[FlowContext], AbstractContextManager[PipelineFlow]]


log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    name: str
    work: Callable[[SparkSession], None]  #: returns at once if nothing is due
    every: float  #: seconds between calls
    retry_after: float  #: seconds, after a failure
    first_after: float | None = None  #: seconds before the first call; None: as `every`


@contextmanager
def run_periodic_tasks(
    spark: SparkSession, flow: str, periodic_tasks: Sequence[PeriodicTask]
) -> Iterator[None]:
    """Run the tasks during the block."""
    end = threading.Event()
    for task in periodic_tasks:
        threading.Thread(
            target=_run_periodically, args=(spark, flow, task, end), name=task.name, daemon=True
        ).start()
    try:
        yield
    finally:
        # Running tasks are not awaited: an interrupted one has changed nothing.
        end.set()


def _run_periodically(
    spark: SparkSession, flow: str, task: PeriodicTask, end: threading.Event
) -> None:
    use_scheduler_pool(spark, task.name)
    pause = task.every if task.first_after is None else task.first_after
    while not end.wait(pause):
        pause = task.every
        try:
            task.work(spark)
        except ResourceLocked:
            continue  # another process is doing it
        except Exception as error:
            if not end.is_set():
                reason = str(error).partition("\n")[0]
                log.warning("periodic task failed", flow=flow, task=task.name, reason=reason)
            pause = task.retry_after


def use_scheduler_pool(spark: SparkSession, pool: str) -> None:
    """Run this thread's jobs in a scheduler pool of their own."""
    if not type(spark).__module__.startswith("pyspark.sql.connect"):
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
